"""Where a command is to write at its end is looked at before anything is read or replayed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.run_cli import cli

NOT_THERE = "no_such_file.py:Rules"
COMMANDS = [
    (("diff", NOT_THERE, NOT_THERE, "log"), "--report", "html"),
    (("sweep", NOT_THERE, "log", "limit=1,2"), "--report", "html"),
    (("sweep", NOT_THERE, "log", "limit=1,2"), "--plot", "svg"),
    (("state", "no_such_run", "seen", "--key", "a"), "--plot", "png"),
    (("explain", NOT_THERE), "--svg", "svg"),
    (("features", NOT_THERE, "log"), "--out", "csv"),
]
"""Commands whose program, log or run is not there: an error about the place shows that it was looked at first."""


@pytest.mark.parametrize(("arguments", "option", "suffix"), COMMANDS)
def test_places_are_looked_at_first(
    arguments: tuple[str, ...], option: str, suffix: str, tmp_path: Path
) -> None:
    (tmp_path / f"folder.{suffix}").mkdir()
    (tmp_path / "file").write_text("")
    found = [
        cli(*arguments, option, tmp_path / f"folder.{suffix}"),
        cli(*arguments, option, tmp_path / "file" / f"out.{suffix}"),
    ]
    if suffix != "html":
        found.append(cli(*arguments, option, tmp_path / "out.tiff"))
    for one in found:
        assert one.code == 2
        assert str(tmp_path) in one.err, one.err
        assert "no_such" not in one.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", f"folder.{suffix}"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_without_permission(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    found = cli("explain", NOT_THERE, "--svg", tmp_path / "closed" / "plan.svg")
    assert found.code == 2
    assert "must not be written" in found.err


@pytest.mark.parametrize(
    ("arguments", "option"), [c[:2] for c in COMMANDS if c[2] in ("svg", "png", "csv") and c[1] != "--svg"]
)
def test_plots_and_tables_need_their_folder(arguments: tuple[str, ...], option: str, tmp_path: Path) -> None:
    suffix = "csv" if option == "--out" else "svg"
    found = cli(*arguments, option, tmp_path / "nowhere" / f"out.{suffix}")
    assert found.code == 2
    assert "nowhere" in found.err, found.err
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("command", ["diff", "sweep"])
def test_what_is_no_report_is_not_replaced(command: str, tmp_path: Path) -> None:
    letter = tmp_path / "letter.html"
    letter.write_text("<p>Dear Sir</p>")
    more = (NOT_THERE, "log") if command == "diff" else ("log", "limit=1,2")
    found = cli(command, NOT_THERE, *more, "--report", letter)
    assert found.code == 2
    assert "TL830" in found.err
    assert letter.read_text() == "<p>Dear Sir</p>"


@pytest.mark.parametrize(("arguments", "option", "suffix"), COMMANDS)
@pytest.mark.parametrize("given", ["new/", "there", "there/", "./new/", ""])
def test_a_folder_is_no_file(
    arguments: tuple[str, ...], option: str, suffix: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    found = cli(*arguments, option, given)
    assert found.code == 2
    assert "TL809" in found.err
    if given:
        assert f"{option}: this is a folder" in found.err
        assert f"{option} {given.rstrip('/')}/" in found.err  # a file in it
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
