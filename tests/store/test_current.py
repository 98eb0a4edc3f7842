"""A log and a run that were stored before there were checksums still open, and say what cannot be checked."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import StorageError
from timelapse.run import Run
from timelapse.run.files import check_files

HERE = Path(__file__).parent / "current"
LOG_ID = "889bac8794dfc15208fb625fb8c17412"
DIGEST = "bd48e1eab8921341b742c059f0aa43bd"
STATE_DIGEST = "5462e9d00c3090ca8f2b62d115731b54"


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("stored_payments", HERE / "program.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_log_reads_as_it_did(program: ModuleType) -> None:
    log = tl.Log.open(HERE / "log")
    assert (log.id, log.version, log.count) == (LOG_ID, 2, 458)
    found = [(type(e), e.ts, e._values()) for e in log.events(program.Paid, program.Closed)]
    assert found[:400] == [(type(e), e.ts, e._values()) for e in program.events(0, 400)]
    assert tl.Log.open(HERE / "log", version=1).count == 400


def test_the_run_reads_as_it_did(program: ModuleType) -> None:
    log = tl.Log.open(HERE / "log")
    run = Run.open(HERE / "run", program.Payments())
    assert (run.digest, run.state_digest) == (DIGEST, STATE_DIGEST)
    assert (run.counts, run.rejected.num_rows, run.quarantined.num_rows) == ({"Large": 172}, 134, 10)
    again = tl.replay(program.Payments, log, slices=2, spark=False, quarantine=True)
    assert (again.digest, again.state_digest) == (DIGEST, STATE_DIGEST)
    assert run.table("Large").equals(again.table("Large"))
    for name in ("spent", "closed", "latest"):
        assert run.state(name).equals(again.state(name))


def test_it_says_that_nothing_can_be_checked(program: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as error:
        check_files(Run.open(HERE / "run"))
    assert error.value.code == "TL934"
    shown = cli("verify", "--files", HERE / "run")
    assert (shown.code, "TL934" in shown.err) == (2, True)
    shown = cli("verify", "--files", HERE / "log")
    assert (shown.code, "TL934" in shown.err) == (2, True)


def test_an_append_to_it_keeps_what_is_there(program: ModuleType, tmp_path: Path) -> None:
    """The new segments have checksums, the old ones none."""
    shutil.copytree(HERE / "log", tmp_path / "log")
    (tmp_path / "paid.csv").write_text(f"ts,user,shop,cents\n{600 * tl.SECOND},1,a,2\n")
    log = tl.Log.open(tmp_path / "log").append({program.Paid: str(tmp_path / "paid.csv")}, unit="us")
    assert log.count == 459
    assert [f.part is None for s in log.manifest.segments for f in s.files].count(False) == 1
    assert tl.Log.open(tmp_path / "log", version=2).id == LOG_ID
    shown = cli("verify", "--files", tmp_path / "log")
    assert (shown.code, "4 files have no checksums" in shown.out) == (
        0,
        True,
    )  # of events, and of its quarantine
