"""One flipped bit in any file of a run or a log is found by whoever reads it, and the file is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import LogError, StorageError
from timelapse.run import Run
from timelapse.run.files import check_files
from timelapse.run.verified import read_verified
from timelapse.store.parts import BLOCK, CheckedFile, PartWriter, part_at

EVENTS = 3_000


class E(tl.Event):
    n: int
    name: str


class Odd(tl.Record, key="n"):
    n: int


class Rules(tl.Program):
    """It fails at one event, rejects some, and has states of several kinds of columns."""

    seen: tl.Counter[int]
    named: tl.Value[str, int | None]
    pairs: tl.Set[tuple[int, str]]

    @tl.on(E)
    def go(self, e: E) -> None:
        if 7 // (e.n - 11) > 100:
            return
        self.seen[e.n % 97] += 1
        self.named[e.name] = None if e.n % 5 == 0 else e.n
        self.pairs.add((e.n % 7, e.name))
        if e.n % 100 == 7:
            self.reject("seven")
        if e.n % 2:
            self.emit(Odd(n=e.n))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("altered")
    log = tl.Log.from_events(
        folder / "log", [E(n=n, name=f"n{n % 211}", ts=n) for n in range(EVENTS)], block=512
    )
    tl.replay(Rules, log, folder / "run", 3, False, quarantine=True)
    return folder


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole / "run", tmp_path / "run")
    return tmp_path / "run"


def flip(path: Path, place: float) -> None:
    """Flip one bit, so far into the file."""
    data = bytearray(path.read_bytes())
    data[int((len(data) - 1) * place)] ^= 1 << 4
    path.write_bytes(data)


ASKED: dict[str, Callable[[Run], object]] = {
    "outputs/Odd/part-000001.parquet": lambda run: run.table("Odd"),
    "rejected/part-000002.parquet": lambda run: run.rejected,
    "quarantined/part-000000.parquet": lambda run: run.quarantined,
    "state/seen/000001.arrow": lambda run: run.state("seen"),
    "state/named/000000.arrow": lambda run: run.value_at_cut("named", "never", 3),
    "state/pairs/000002.arrow": lambda run: run.changed("pairs", (1, "n3"), 2),
}


@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("name", ASKED)
def test_a_flipped_bit_is_found_by_who_reads(run: Path, name: str, place: float) -> None:
    ASKED[name](Run.open(run))
    flip(run / name, place)
    with pytest.raises(StorageError) as error:
        ASKED[name](Run.open(run))
    assert error.value.code == "TL931"
    assert error.value.place.file == str(run / name)


@pytest.mark.parametrize("place", [0.01, 0.4, 0.6, 0.97])
def test_an_altered_description_is_told(run: Path, place: float) -> None:
    flip(run / "run.json", place)
    with pytest.raises(tl.TimelapseError) as error:
        Run.open(run)
    assert error.value.code in ("TL931", "TL602")


def test_every_file_is_named_and_checked(run: Path) -> None:
    files = sorted(
        p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file() and p.name != "run.json"
    )
    manifest = Run.open(run).manifest
    assert manifest.files is not None
    assert sorted(manifest.files) == files
    assert len({name.split("/")[0] for name in files}) == 5
    found = check_files(Run.open(run))
    assert (found.ok, found.files, found.others) == (True, len(files), ())
    for name in (n for n in files if (run / n).stat().st_size):
        before = (run / name).read_bytes()
        flip(run / name, 0.5)
        found = check_files(Run.open(run))
        assert [e.place.file for e in found.errors] == [str(run / name)]
        (run / name).write_bytes(before)


def test_verify_of_a_part_names_a_file_beyond_it(run: Path) -> None:
    """It said "equal", for a state after the events that it looked at."""
    flip(run / "state/seen/000002.arrow", 0.5)
    shown = cli("verify", run, "--events", "10")
    assert (shown.code, "TL931" in shown.err, "state/seen/000002.arrow" in shown.err) == (2, True, True)


def test_verify_files(run: Path, whole: Path) -> None:
    shown = cli("verify", "--files", run)
    assert shown.code == 0, shown.err
    assert "files are those that were written" in shown.out
    flip(run / "outputs/Odd/part-000000.parquet", 0.4)
    flip(run / "state/seen/000000.arrow", 0.4)
    (run / "rejected/part-000000.parquet").unlink()
    (run / "stray").write_text("x")
    shown = cli("verify", "--files", run)
    assert shown.code == 1
    for name in (
        "outputs/Odd/part-000000.parquet",
        "state/seen/000000.arrow",
        "rejected/part-000000.parquet",
    ):
        assert name in shown.out
    assert "stray" in shown.out
    assert cli("verify", "--files", whole / "log").code == 0


@pytest.mark.parametrize("command", ["diff", "state"])
def test_commands_answer_nothing_from_an_altered_run(run: Path, whole: Path, command: str) -> None:
    flip(run / "outputs/Odd/part-000001.parquet", 0.4)
    flip(run / "state/seen/000001.arrow", 0.4)
    shown = cli("diff", whole / "run", run) if command == "diff" else cli("state", run, "seen")
    assert (shown.code, "TL931" in shown.err) == (2, True)


@pytest.mark.parametrize("place", [0.002, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_a_flipped_bit_of_a_log_is_found(whole: Path, tmp_path: Path, place: float) -> None:
    """By page or, at its end, by block; `--files` reads the rest too."""
    shutil.copytree(whole / "log", tmp_path / "log")
    path = next((tmp_path / "log").rglob("E.parquet"))
    flip(path, place)
    shown = cli("verify", "--files", tmp_path / "log")
    assert (shown.code, "E.parquet" in shown.out) == (1, True)
    log = tl.Log.open(tmp_path / "log")
    expected = [(n, n, f"n{n % 211}") for n in range(EVENTS)]
    try:
        assert [(e.ts, e.n, e.name) for e in log.events(E)] == expected
    except (LogError, StorageError) as error:
        assert error.place.file == str(path)


def test_little_is_read_of_a_large_file(tmp_path: Path) -> None:
    """What is altered elsewhere does not matter to who does not read it."""
    path = tmp_path / "file"
    with PartWriter(path) as file:
        for n in range(64):
            file.write(bytes([n]) * 70_001)
    assert file.part() == part_at(path)
    data = bytearray(path.read_bytes())
    data[3 * BLOCK + 5] ^= 1
    path.write_bytes(data)
    checked = CheckedFile(path, file.part(), "")
    checked.need(0, 3 * BLOCK)
    checked.need(4 * BLOCK)
    with pytest.raises(StorageError, match="bytes 786,432 to 1,048,575"):
        checked.need(3 * BLOCK + 100, 3 * BLOCK + 101)


def test_what_is_written_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(KeyError), PartWriter(path) as file:
        file.write(b"half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with PartWriter(path, new=True) as file:
        file.write(b"first")
    with pytest.raises(FileExistsError), PartWriter(path, new=True) as file:
        file.write(b"second")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"first")]


def test_a_flipped_bit_in_a_logs_quarantine_is_found(tmp_path: Path) -> None:
    """Who reads the bad rows learns it, and whoever checks all files."""
    source = tmp_path / "in.csv"
    source.write_text("n,name,ts\n" + "".join(f"{'x' if n % 7 == 3 else n},a{n},{n}\n" for n in range(200)))
    log = tl.Log.write(tmp_path / "log", {E: str(source)}, ts="ts", unit="us", max_bad=1.0, max_bad_day=1.0)
    assert log.quarantine().num_rows == 29
    (path,) = (tmp_path / "log" / "quarantine").iterdir()
    found = cli("verify", tmp_path / "log", "--files")
    assert found.code == 0, found.err
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(StorageError, match="altered") as error:
        tl.Log.open(tmp_path / "log").quarantine()
    assert error.value.code == "TL931"
    assert path.name in str(error.value)
    found = cli("verify", tmp_path / "log", "--files")
    assert found.code != 0
    assert path.name in found.out + found.err


def test_an_altered_verification_is_told_and_not_believed(run: Path) -> None:
    Run.open(run).verify()
    path = run / "verified.json"
    assert check_files(Run.open(run)).ok
    path.write_text(path.read_text().replace('"ok": true', '"ok": false'))
    assert read_verified(Run.open(run)) is None
    (error,) = check_files(Run.open(run)).errors
    assert error.code == "TL931"
    assert "verified.json" in str(error)
