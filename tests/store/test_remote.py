"""Paths of object stores read as paths of this machine do, and copies of objects keep to their limit."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from timelapse.errors import StorageError, UsageError
from timelapse.store import commits, fetched
from timelapse.store.drafts import change, put
from timelapse.store.objects import place_at
from timelapse.store.remote import RemotePath, opened, path_of, pinned, place_path

NAMES = [
    "run.json",
    "outputs/Spam/part-0.parquet",
    "outputs/Spam/part-1.parquet",
    "outputs/Ham/part-0.parquet",
    "state/a/0.arrow",
    "program/a#b c.py",
]


@pytest.fixture
def both(bucket: str, tmp_path: Path) -> tuple[Path, RemotePath]:
    """The same files here and there."""
    here, made = tmp_path / "here", tmp_path / "made"
    for folder in (here, made):
        for name in NAMES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(name.encode())
    there = place_path(f"{bucket}/a/b", "run")
    assert isinstance(there, RemotePath)
    return here, put(made, there, before=0)


def test_it_reads_as_a_folder_does(both: tuple[Path, RemotePath]) -> None:
    here, there = both
    for pattern in (
        "*",
        "*.json",
        "outputs/*/part-*.parquet",
        "*/*",
        "**/*.parquet",
        "outputs/Spam",
        "nothing*",
        "**/part-0.*",
    ):
        expected = {p.relative_to(here).as_posix() for p in here.glob(pattern)}
        assert {p.relative_to(there).as_posix() for p in there.glob(pattern)} == expected, pattern
        expected = {p.relative_to(here).as_posix() for p in here.rglob(pattern)}
        assert {p.relative_to(there).as_posix() for p in there.rglob(pattern)} == expected, pattern
    assert sorted(p.name for p in there.iterdir()) == sorted(p.name for p in here.iterdir())
    assert sorted(p.name for p in (there / "outputs").iterdir()) == ["Ham", "Spam"]
    for name in [*NAMES, "outputs", "outputs/Spam", "nothing", "outputs/nothing"]:
        a, b = here / name, there / name
        assert (a.exists(), a.is_file(), a.is_dir(), a.name, a.suffix) == (
            b.exists(),
            b.is_file(),
            b.is_dir(),
            b.name,
            b.suffix,
        )
        if a.is_file():
            assert a.stat().st_size == b.stat().st_size
            assert a.read_bytes() == b.read_bytes() == Path(os.fspath(b)).read_bytes()
            assert b.parent / b.name == b
            assert str(b) == f"{there}/{name}"
        elif not a.exists():
            with pytest.raises(FileNotFoundError):
                b.stat()
            with pytest.raises(FileNotFoundError):
                b.read_bytes()
            with pytest.raises(FileNotFoundError):
                open(b)  # noqa: SIM115


def test_it_stays_the_version_it_is(both: tuple[Path, RemotePath]) -> None:
    """In this process, pickled, and as text; a URL is the newest version whenever it is opened."""
    _, there = both
    with change(there, (), "test") as (_, folder):
        (folder / "run.json").write_bytes(b"second")
    url = str(there)
    assert (opened(place_path(url, "run")) / "run.json").read_bytes() == b"second"
    for same in (
        there,
        pickle.loads(pickle.dumps(there)),
        path_of(pinned(there)),
        place_path(f"{url}#1", "run"),
    ):
        assert (same / "run.json").read_bytes() == b"run.json"
        assert str(same) == url
        assert same == there
    assert len(list(opened(place_path(url, "run")).rglob("*.parquet"))) == 3


def test_nothing_is_written_by_it(both: tuple[Path, RemotePath]) -> None:
    _, there = both
    writes: list[Callable[[Path], object]] = [
        lambda p: p.write_bytes(b"x"), lambda p: p.write_text("x"), lambda p: p.open("w"), lambda p: p.mkdir(),
        lambda p: p.unlink(), lambda p: p.rename("x"), lambda p: p.touch(),
    ]  # fmt: skip
    for write in writes:
        for path in (there / "run.json", there / "new"):
            with pytest.raises(StorageError) as error:
                write(path)
            assert error.value.code == "TL938"
    with pytest.raises(OSError):
        open(there / "new", "wb")  # noqa: SIM115
    assert (there / "run.json").read_bytes() == b"run.json"


@pytest.mark.parametrize(
    "url", ["s3://b/../x", "s3://b/a?x=1", "s3://b/a#x", "s3://k:p@b/x", "s3://k@b/x", "S3://b/./x"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(StorageError) as error:
        place_path(url, "run")
    assert error.value.code == "TL930"
    assert "p@" not in str(error.value)


def test_copies_keep_to_their_limit(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not used for longest goes; what is in use stays; what went is fetched again."""
    place = place_at(f"{bucket}/x")
    files = {f"{n}": tmp_path / f"{n}" for n in range(8)}
    for path in files.values():
        path.write_bytes(os.urandom(100_000))
    commit = commits.publish(place, files, before=0)
    entries = [commit.files[f"{n}"] for n in range(8)]
    monkeypatch.setenv("TIMELAPSE_OBJECTS_LIMIT", "0.3M")
    with pytest.raises(UsageError):
        fetched.limit()
    monkeypatch.setenv("TIMELAPSE_OBJECTS_LIMIT", "300K")
    assert fetched.limit() == 300 << 10
    first = [fetched.fetch(place, e.key, e.part) for e in entries[:4]]
    assert all(path.exists() for path in first)  # they were just used
    for path in first[:3]:
        os.utime(path, (time.time() - 3600,) * 2)
    fetched.fetch(place, entries[0].key, entries[0].part)  # used again
    for entry in entries[4:6]:
        fetched.fetch(place, entry.key, entry.part)
    assert [path.exists() for path in first] == [True, False, False, True]
    again = fetched.fetch(place, entries[1].key, entries[1].part)
    assert again == first[1]
    assert again.read_bytes() == files["1"].read_bytes()
    assert not [p for p in fetched.folder().rglob(".*") if p.is_file()]


def test_the_end_of_a_file_alone(bucket: str, tmp_path: Path) -> None:
    """A Parquet file's footer is read without the file."""
    made = tmp_path / "made"
    made.mkdir()
    pq.write_table(
        pa.table({"a": pa.array(os.urandom(8) for _ in range(200_000))}),
        made / "x.parquet",
        compression="none",
    )
    there = place_path(f"{bucket}/x", "run")
    assert isinstance(there, RemotePath)
    before = (made / "x.parquet").read_bytes()
    at = put(made, there, before=0) / "x.parquet"
    for path in fetched.folder().rglob("*"):
        if path.is_file():
            path.unlink()
    assert isinstance(at, RemotePath)
    end = at.tail(1000)
    assert before.endswith(end)
    assert 1000 <= len(end) < len(before) / 2
    assert pq.read_metadata(pa.BufferReader(end)).num_rows == 200_000
    assert not [p for p in fetched.folder().rglob("*") if p.is_file()]
