"""What every place promises: folders, memory, object stores, and Arrow's file systems as HDFS is reached by."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs
import pytest

from tests.s3_server import S3Server
from timelapse.errors import StorageError
from timelapse.store import commits
from timelapse.store.hadoop import HadoopPlace
from timelapse.store.objects import place_at
from timelapse.store.place import FolderPlace, MemoryPlace, Place
from timelapse.streaming import chain


@pytest.fixture(params=["folder", "memory", "s3", "s3 bucket", "arrow"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield FolderPlace(tmp_path / "place")
    elif request.param == "memory":
        yield MemoryPlace()
    elif request.param == "arrow":
        yield HadoopPlace("local", pyarrow.fs.LocalFileSystem(), str(tmp_path / "place"))
    else:
        bucket = request.getfixturevalue("bucket")
        yield place_at(bucket if request.param == "s3 bucket" else f"{bucket}/some/folder")


class TestPlace:
    def test_what_is_put_is_read(self, place: Place, tmp_path: Path) -> None:
        """By both ways of putting, whole and in pieces."""
        data = os.urandom(10_000)
        (tmp_path / "file").write_bytes(data)
        place.create("a/b/one", data)
        place.upload("a/two", tmp_path / "file")
        for name in ("a/b/one", "a/two"):
            assert place.read(name) == data
        assert b"".join(place.pieces("a/two")) == data
        assert b"".join(place.pieces("a/two", 9_990)) == data[9_990:]
        assert b"".join(place.pieces("a/two", 10_000)) == b""

    def test_odd_names_and_empty_files(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        place.upload("p/a b%20ü+&=.json", tmp_path / "file")
        assert place.read("p/a b%20ü+&=.json") == b""
        assert list(place.names("p")) == ["a b%20ü+&=.json"]

    def test_what_is_not_there(self, place: Place) -> None:
        with pytest.raises(FileNotFoundError):
            place.read("x")
        with pytest.raises(FileNotFoundError):
            list(place.pieces("x"))
        assert not place.exists("x")
        assert list(place.names("x")) == []
        assert list(place.files("x")) == []
        place.remove(["x", "y/z"])

    def test_a_name_is_created_once(self, place: Place) -> None:
        place.create("n/1", b"first")
        for data in (b"second", b"first"):
            with pytest.raises(FileExistsError):
                place.create("n/1", data)
        assert place.read("n/1") == b"first"

    def test_one_of_many_creates_it(self, place: Place) -> None:
        """Writers at once: one is told that it was first, and what it wrote is there."""
        for attempt in range(4):
            won: list[int] = []
            begin = threading.Barrier(8)

            def write(number: int, name: str, won: list[int] = won, begin: threading.Barrier = begin) -> None:
                begin.wait()
                try:
                    place.create(name, b"%d" % number)
                except FileExistsError:
                    return
                won.append(number)

            name = f"race/{attempt}"
            threads = [threading.Thread(target=write, args=(n, name)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [b"%d" % n for n in won] == [place.read(name)]

    def test_names_and_files(self, place: Place) -> None:
        for name in ("f/b", "f/a", "f/c/d", "fa/x"):
            place.create(name, b"12345")
        assert list(place.names("f")) == ["a", "b", "c"]
        assert {"f", "fa"} <= set(place.names(""))
        assert sorted(n for n, _ in place.files("f")) == ["f/a", "f/b", "f/c/d"]
        assert {n for n, _ in place.files()} == {"f/b", "f/a", "f/c/d", "fa/x"}

    def test_hints_are_written_over(self, place: Place) -> None:
        place.hint("h", b"1")
        place.hint("h", b"2")
        assert place.read("h") == b"2"

    def test_what_is_removed_is_gone(self, place: Place) -> None:
        for name in ("r/a", "r/b"):
            place.create(name, b"x")
        place.remove(["r/a"])
        assert not place.exists("r/a")
        assert place.exists("r/b")
        place.create("r/a", b"again")
        assert place.read("r/a") == b"again"

    def test_a_live_run_s_chain_stands_on_it(self, place: Place) -> None:
        """Epochs are put in a row; who comes second with an epoch is told so, and putting the same bytes again is success."""

        def wait(why: str, _: float) -> None:
            pytest.fail(why)

        for number in range(1, 6):
            chain.put(place, number, b"epoch %d" % number, wait)
        assert chain.newest(place) == 5
        chain.put(place, 5, b"epoch 5", wait)
        with pytest.raises(chain.Overtaken):
            chain.put(place, 5, b"another", wait)


def _files(folder: Path, **named: str) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, text in named.items():
        found[f"d/{name}"] = folder / name
        found[f"d/{name}"].write_text(text)
    return found


def _read(place: Place, number: int) -> dict[str, str]:
    return {n: place.read(e.key).decode() for n, e in commits.read(place, number).files.items()}


class TestCommits:
    def test_versions_follow_one_another(self, place: Place, tmp_path: Path) -> None:
        assert commits.newest(place) == 0
        first = commits.publish(place, _files(tmp_path / "1", a="one", b="two"), before=0)
        assert commits.newest(place) == first.number == 1
        kept = {"d/b": first.files["d/b"]}
        commits.publish(place, _files(tmp_path / "2", a="three"), before=1, kept=kept)
        assert _read(place, 1) == {"d/a": "one", "d/b": "two"}
        assert _read(place, 2) == {"d/a": "three", "d/b": "two"}

    def test_one_of_many_makes_a_version(self, place: Place, tmp_path: Path) -> None:
        """The others are told so, and nothing of theirs stays; the version has one writer's files, all of them."""
        won: list[int] = []
        codes: list[str] = []
        begin = threading.Barrier(4)

        def write(number: int) -> None:
            files = _files(tmp_path / str(number), a=f"{number}", b=f"{number}")
            begin.wait()
            try:
                commits.publish(place, files, before=0)
            except StorageError as error:
                codes.append(error.code)
            else:
                won.append(number)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert codes == ["TL933"] * 3
        assert _read(place, 1) == {"d/a": f"{won[0]}", "d/b": f"{won[0]}"}
        assert len(list(place.files("parts"))) == 2

    def test_an_attempt_that_was_left_is_not_seen(self, place: Place, tmp_path: Path) -> None:
        """It is removed once it cannot be committed any more, and not before."""
        (lost,) = _files(tmp_path / "l", a="lost").values()
        place.upload("parts/00000002-0123456789abcdef/d/a", lost)
        commits.publish(place, _files(tmp_path / "1", a="one"), before=0)
        commits.clean(place)
        assert place.exists("parts/00000002-0123456789abcdef/d/a")  # version 2 is not there: it may come yet
        commits.publish(place, _files(tmp_path / "2", a="two"), before=1)
        assert _read(place, 2) == {"d/a": "two"}
        commits.clean(place, keep=2)
        assert not place.exists("parts/00000002-0123456789abcdef/d/a")
        assert _read(place, 1) == {"d/a": "one"}

    def test_a_writer_that_slept_is_told(
        self, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its version was made by others and removed, so its number is free: what it puts does not count, and it hears so."""
        commits.publish(place, _files(tmp_path / "1", a="1"), before=0)
        real = commits.newest

        def asleep(where: Place) -> int:
            for number in (2, 3):
                monkeypatch.setattr(commits, "newest", real)
                commits.publish(place, _files(tmp_path / str(number), a=f"{number}"), before=number - 1)
            commits.clean(place)
            return 1

        monkeypatch.setattr(commits, "newest", asleep)
        with pytest.raises(StorageError) as error:
            commits.publish(place, _files(tmp_path / "s", a="slept"), before=1)
        assert error.value.code == "TL939"
        assert commits.newest(place) == 3
        assert _read(place, 3) == {"d/a": "3"}
        commits.clean(place)
        assert list(place.names("commits")) == ["00000003"]
        assert len(list(place.files("parts"))) == 1

    @pytest.mark.parametrize("at", [10, 60, -30])
    def test_a_commit_that_was_altered_is_named(self, place: Place, tmp_path: Path, at: int) -> None:
        commits.publish(place, _files(tmp_path / "1", a="one"), before=0)
        name = commits.commit_name(1)
        data = bytearray(place.read(name))
        data[at] ^= 1
        place.remove([name])
        place.create(name, bytes(data))
        with pytest.raises(StorageError) as error:
            commits.read(place, 1)
        assert error.value.code in ("TL931", "TL938")
        assert name in str(error.value)


def test_the_answer_of_a_put_gets_lost(tmp_path: Path) -> None:
    """The commit landed, and the store says that it did not, or that it was there before: that is success."""

    class Forgetful(MemoryPlace):
        def create(self, name: str, data: bytes) -> None:
            super().create(name, data)
            raise FileExistsError(name)

    place = Forgetful()
    assert commits.publish(place, _files(tmp_path, a="one"), before=0).number == 1
    assert _read(place, 1) == {"d/a": "one"}


def test_two_that_were_refused_at_once(tmp_path: Path) -> None:
    """A store may refuse both of two puts at the same moment: then nothing is there, and the put is made again."""

    class Undecided(MemoryPlace):
        refused = 0

        def create(self, name: str, data: bytes) -> None:
            if self.refused < 2:
                self.refused += 1
                raise FileExistsError(name)
            super().create(name, data)

    place = Undecided()
    commits.publish(place, _files(tmp_path, a="one"), before=0)
    assert _read(place, 1) == {"d/a": "one"}


def test_no_keys_in_what_is_stored(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    place = place_at(f"{bucket}/x")
    commits.publish(place, _files(tmp_path, a="one"), before=0)
    stored = b"".join(place.read(one.name) for one in place.files())
    for key, value in s3.environment().items():
        assert value.encode() not in stored or key == "AWS_REGION"
    assert "testing-" not in repr(place.__dict__)
