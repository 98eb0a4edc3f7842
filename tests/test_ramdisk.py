"""Where tests have their temporary files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests import ramdisk


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setattr(ramdisk, "_at_exit", lambda *given: None)


def test_a_folder_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ramdisk, "_has_room", lambda memory: True)
    dead, own = tmp_path / "timelapse-tests-99999999", tmp_path / f"timelapse-tests-{os.getpid()}"
    other = tmp_path / "timelapse-tests-mine"
    dead.mkdir()
    other.mkdir()
    environment: Any = {}
    assert ramdisk.use(environment, tmp_path) == own
    assert environment == {"TMPDIR": str(own), "TIMELAPSE_SCRATCH": str(own)}
    assert own.is_dir()
    assert not dead.exists()
    assert other.exists()


def test_not_where_there_is_no_room_or_a_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment: Any = {"TMPDIR": "/somewhere"}
    assert ramdisk.use(environment, tmp_path) is None
    monkeypatch.setattr(ramdisk, "FREE", 1 << 60)
    assert ramdisk.use({}, tmp_path) is None  # type: ignore[arg-type]
    assert ramdisk.use({}, tmp_path / "none") is None  # type: ignore[arg-type]
