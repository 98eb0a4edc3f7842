"""Names given once: who comes second is told, a kill leaves nothing or all of it, what is lasting is made so in the right order."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import LONG
from timelapse.ingest.making import adopt
from timelapse.segments.manifest import IngestEntry
from timelapse.store.moves import aside, link_or_copy, move, put_folder, take_away
from timelapse.store.parts import put_file

ROOT = Path(__file__).parents[2]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is renamed and what is synced, in order, by last names."""
    found: list[str] = []

    def noting(name: str, of: Callable[..., str]) -> None:
        done = getattr(os, name)

        def call(*args: Any) -> Any:
            found.append(f"{name} {of(*args)}")
            return done(*args)

        monkeypatch.setattr(os, name, call)

    noting("rename", lambda old, new: Path(new).name)
    noting("fsync", lambda handle: Path(os.readlink(f"/proc/self/fd/{handle}")).name)
    return found


def folder(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    return path


class TestFolders:
    def test_who_comes_second_is_told(self, tmp_path: Path) -> None:
        place = tmp_path / "place"
        assert put_folder(folder(tmp_path / "a", "first"), place)
        assert not put_folder(folder(tmp_path / "b", "second"), place)
        assert (place / "file").read_text() == "first"
        assert (
            tmp_path / "b" / "file"
        ).read_text() == "second"  # its maker removes it, or uses it where it is

    def test_one_of_many_is_first(self, tmp_path: Path) -> None:
        place, won, begin = tmp_path / "place", [], threading.Barrier(8)

        def make(number: int) -> None:
            with aside(place) as made:
                (made / "file").write_text(str(number))
                begin.wait()
                if put_folder(made, place):
                    won.append(number)

        threads = [threading.Thread(target=make, args=(n,)) for n in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert [(place / "file").read_text()] == list(map(str, won))
        assert [p.name for p in tmp_path.iterdir()] == ["place"]

    def test_a_file_in_the_way_counts_as_first(self, tmp_path: Path) -> None:
        (tmp_path / "place").write_text("x")
        assert not put_folder(folder(tmp_path / "a", "y"), tmp_path / "place")

    def test_where_nothing_can_be_put_that_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            put_folder(folder(tmp_path / "a", "x"), tmp_path / "none" / "place")

    def test_a_block_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), aside(tmp_path / "place") as made:
            (made / "file").write_text(str(1 // 0))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("act", ["put", "take"])
    def test_a_kill_leaves_nothing_under_the_name(self, tmp_path: Path, act: str) -> None:
        """Before a folder gets its name; and between taking it away and removing what is in it. What is left goes with the next one."""
        code = (
            "import os, shutil, signal, sys\nfrom pathlib import Path\n"
            "from timelapse.store.moves import aside, put_folder, take_away\n"
            "def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
            "place = Path(sys.argv[1])\n"
            "if sys.argv[2] == 'put': os.rename = die\n"
            "with aside(place) as made:\n    (made / 'file').write_text('x')\n    put_folder(made, place)\n"
            "shutil.rmtree = die\ntake_away(place)\n"
        )
        place = tmp_path / "place"
        command = [sys.executable, "-c", code, str(place), act]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, env=env, check=False, timeout=LONG)
        assert done.returncode == -signal.SIGKILL
        assert len(list(tmp_path.iterdir())) == 1
        assert not place.exists()
        with aside(place) as made:
            (made / "file").write_text("y")
            assert put_folder(made, place)
        assert [p.name for p in tmp_path.iterdir()] == ["place"]

    def test_taking_away_what_is_not_there(self, tmp_path: Path) -> None:
        assert not take_away(tmp_path / "place")
        assert take_away(folder(tmp_path / "place", "x"))
        assert list(tmp_path.iterdir()) == []


class TestLasting:
    """The bytes and the entries of a folder are synced before its name is given, the name afterwards."""

    def test_a_folder(self, tmp_path: Path, told: list[str]) -> None:
        put_folder(folder(tmp_path / "a", "x"), tmp_path / "place", lasting=True)
        assert told == ["fsync a", "rename place", f"fsync {tmp_path.name}"]

    def test_moves(self, tmp_path: Path, told: list[str]) -> None:
        """Each folder that something moved to is synced once, when all have moved."""
        for name in ("a", "b", "c", "into", "other"):
            (tmp_path / name).mkdir()
        into, other = tmp_path / "into", tmp_path / "other"
        move(
            [(tmp_path / "a", into / "a"), (tmp_path / "b", into / "b"), (tmp_path / "c", other / "c")],
            lasting=True,
        )
        assert told == ["rename a", "rename b", "rename c", "fsync into", "fsync other"]

    def test_what_can_be_made_again_is_not_synced(self, tmp_path: Path, told: list[str]) -> None:
        put_folder(folder(tmp_path / "a", "x"), tmp_path / "b")
        move([(tmp_path / "b", tmp_path / "c")])
        assert told == ["rename b", "rename c"]

    def test_what_an_append_quarantines(self, tmp_path: Path, told: list[str]) -> None:
        """A manifest that names these files comes afterwards: their names have to be durable by then."""
        (tmp_path / "staging" / "quarantine").mkdir(parents=True)
        (tmp_path / "staging" / "quarantine" / "bad.parquet").write_bytes(b"x")
        (tmp_path / "log" / "segments").mkdir(parents=True)
        entry = IngestEntry(2, 0, 0.0, [], ["bad.parquet"], "")
        adopt(tmp_path / "staging", tmp_path / "log", [], entry, tmp_path / "staging" / "segments")
        assert told == ["rename bad.parquet", "fsync quarantine"]
        assert (tmp_path / "log" / "quarantine" / "bad.parquet").read_bytes() == b"x"


class TestFiles:
    def test_a_file_that_is_to_be_new(self, tmp_path: Path) -> None:
        for text in ("first", "second"):
            (tmp_path / text).write_text(text)
        put_file(tmp_path / "first", tmp_path / "place", new=True)
        with pytest.raises(FileExistsError):
            put_file(tmp_path / "second", tmp_path / "place", new=True)
        assert (tmp_path / "place").read_text() == "first"
        put_file(tmp_path / "second", tmp_path / "place", lasting=True)
        assert (tmp_path / "place").read_text() == "second"
        assert [p.name for p in tmp_path.iterdir()] == ["place"]

    def test_a_second_name_of_a_file(self, tmp_path: Path) -> None:
        """Again, too: a rename between two names of one file does nothing, and nothing may be left of it."""
        (tmp_path / "old").write_text("x")
        for _ in range(2):
            link_or_copy(tmp_path / "old", tmp_path / "new")
        assert (tmp_path / "new").samefile(tmp_path / "old")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]

    def test_a_copy_where_there_are_no_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def none(*_: Any) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", none)
        (tmp_path / "old").write_text("x")
        (tmp_path / "new").write_text("y")
        link_or_copy(tmp_path / "old", tmp_path / "new")
        assert (tmp_path / "new").read_text() == "x"
        assert not (tmp_path / "new").samefile(tmp_path / "old")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]
