"""Claims about reading text files in pieces."""

from __future__ import annotations

import bz2
import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timelapse.errors import IngestError
from timelapse.ingest.files import SourceFile
from timelapse.ingest.lines import (
    Lines,
    Piece,
    count_line_ends,
    header_line,
    pieces,
    read_lines,
    with_line_numbers,
)  # fmt: skip


def _numbered(found: list[Lines]) -> list[tuple[int, bytes]]:
    return [(lines.first + n, line) for lines in found for n, line in enumerate(lines.data.split(b"\n"))]


def _plain(data: bytes) -> list[tuple[int, bytes]]:
    """The definition: line ends separate lines; what follows the last one is a line unless it is empty."""
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    lines = data.split(b"\n")
    return list(enumerate(lines[:-1] if lines[-1] == b"" else lines, 1))


TEXT = st.lists(st.sampled_from([b"\n", b"\n\n", b"a", b"bc", b"\r\n", b"defgh" * 3, b""]), max_size=30).map(
    b"".join
)


@given(data=TEXT, bom=st.booleans(), size=st.integers(1, 40), block=st.integers(1, 12))
@example(data=b"", bom=True, size=1, block=1)
@example(data=b"a\nb", bom=True, size=3, block=2)
@example(data=b"a\n\n", bom=False, size=2, block=1)
def test_every_line_once_with_its_number_whatever_the_pieces(
    data: bytes, bom: bool, size: int, block: int
) -> None:
    """Pieces of any size, read in blocks of any size, give exactly the file's lines and numbers."""
    if bom:
        data = b"\xef\xbb\xbf" + data
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.txt"
        path.write_bytes(data)
        file = SourceFile(str(path), len(data))
        cut = pieces(file, 0, size)
        if len(cut) > 1 and bom and size < 3:
            cut = pieces(file, 0, 3)  # a mark that is itself cut does not occur: pieces have megabytes
        numbered = with_line_numbers(cut, [count_line_ends(p) for p in cut])
        found = [lines for piece in numbered for lines in read_lines(piece, max(block, 3))]
    assert _numbered(found) == _plain(data)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_are_read_as_one_piece(tmp_path: Path, suffix: str, pack) -> None:  # type: ignore[no-untyped-def]
    data = b"".join(b"line %d\n" % n for n in range(1000))
    path = tmp_path / f"file.txt{suffix}"
    path.write_bytes(pack(data))
    (piece,) = pieces(SourceFile(str(path), path.stat().st_size), 3, 10)
    assert piece == Piece(piece.file, 3, 0, None)
    assert _numbered(list(read_lines(piece, 100))) == _plain(data)
    assert header_line(piece.file) == b"line 0"


def test_a_damaged_compressed_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "file.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" * 10_000)[:-20])
    (piece,) = pieces(SourceFile(str(path), path.stat().st_size), 0)
    with pytest.raises(IngestError, match=r"file\.csv\.gz"):
        list(read_lines(piece))


def test_counts_restart_with_each_file() -> None:
    """Line numbers count from each file's start."""
    a, b = SourceFile("a", 20), SourceFile("b", 20)
    cut = [Piece(a, 0, 0, 10), Piece(a, 0, 10, 20), Piece(b, 1, 0, 10), Piece(b, 1, 10, 20)]
    assert [p.before for p in with_line_numbers(cut, [3, 4, 5, 6])] == [0, 3, 0, 5]
