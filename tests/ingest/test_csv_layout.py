"""Claims about files that are laid out otherwise than was said: they are recognised from their first lines, named, and the remedy given works."""

from __future__ import annotations

import gzip
import io
import lzma
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from timelapse.cli.console import as_options
from timelapse.errors import IngestError
from timelapse.ingest.looking import look
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare import prepare_files
from timelapse.log import Log, Source
from timelapse.segments.types import EventType


class Txn(tl.Event):
    a: int
    x: float
    s: str | None


T = ["2025-01-01T00:00:00Z", "2025-01-01T00:00:01Z"]
HEADER = "ts,a,x,s\n"


def refused(path: Path, **options: Any) -> IngestError:
    """The error with which an ingest of a file ends before it reads it."""
    with pytest.raises(IngestError) as raised:
        prepare_files(0, EventType.of(Txn), Source(path, **options), None, 0)
    assert str(raised.value.place).startswith(str(path))
    return raised.value


@pytest.mark.parametrize(
    ("text", "options", "code", "said", "hint", "remedy"),
    [
        (f"ts a x s\n{T[0]} 1 1.5 a\n", {}, "TL413", "4 with ' '", 'sep=" " (--sep \' \')', {"sep": " "}),
        (f"ts;a;x;s\n{T[0]};1;1.5;a\n", {}, "TL413", "4 with ';'", "sep=\";\" (--sep ';')", {"sep": ";"}),
        (f"ts\ta\tx\ts\n{T[0]}\t1\t1.5\ta\n", {}, "TL413", "4 with tab", 'sep="\\t" (--sep tab)', {"sep": "\t"}),
        (
            f"{HEADER}{T[0]};1;1.5;a\n", {}, "TL413", "its rows are separated by ';', not by ',' as the header is",
            "sep=\";\" (--sep ';') and columns= (--columns ts,a,x,s), which then stand for the header",
            {"sep": ";", "columns": ["ts", "a", "x", "s"]},
        ),
        (
            f"{T[0]};1;1.5;a\n", {"header": False, "columns": ["ts", "a", "x", "s"]}, "TL413", "its rows are separated by ';', not by ','",
            "sep=\";\" (--sep ';')", {"header": False, "columns": ["ts", "a", "x", "s"], "sep": ";"},
        ),
        (
            f"{T[0]},1,1.5,a\n", {}, "TL413", f"its first line seems to be a row, not a header: '{T[0]}'",
            "header=False (--no-header) and columns= (--columns) with the 4 names", {"header": False, "columns": ["ts", "a", "x", "s"]},
        ),
        (
            f"{T[0]},1,1,a\n", {}, "TL413", "its first line seems to be a row", "(--no-header)",
            {"header": False, "columns": ["ts", "a", "x", "s"]},
        ),
        (
            f"{T[0]},1,1.5,a\n", {"columns": ["ts", "a", "x", "s"]}, "TL413", "its first line is a row, and would be left out as a header",
            "header=False (--no-header)", {"header": False, "columns": ["ts", "a", "x", "s"]},
        ),
        (f"{HEADER}'{T[0]}','1','1.5','a,b'\n", {}, "TL413", "its rows are quoted by '", 'quote="\'" (--quote "\'")', {"quote": "'"}),
        (f"'ts','a','x','s'\n'{T[0]}','1','1.5','a'\n", {}, "TL413", "a column is named 'ts'", 'quote="\'"', {"quote": "'"}),
        (f'{HEADER}"{T[0]}","1","1.5","a"\n', {"quote": None}, "TL413", 'its rows are quoted by "', "(--quote '\"')", {}),
        (f'{HEADER}{T[0]},1,1.5,"5" disk\n', {}, "TL413", 'its rows are not quoted by "', "quote=None (--quote none)", {"quote": None}),
        (f"{HEADER}'{T[0]}';'1';'1.5';'a'\n", {}, "TL413", "separated by ';', not by ',' as the header is and quoted by '",
            "quote=\"'\" (--quote \"'\")", {"sep": ";", "quote": "'", "columns": ["ts", "a", "x", "s"]}),
    ],
)  # fmt: skip
def test_a_layout_that_is_wrong_for_all_rows_is_named_with_its_remedy(
    text: str,
    options: dict[str, Any],
    code: str,
    said: str,
    hint: str,
    remedy: dict[str, Any],
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    error = refused(path, **options)
    assert (error.code, said in error.message) == (code, True), error.message
    assert hint in str(error.hint)
    log = Log.write(tmp_path / "log", {Txn: Source(path, **remedy)})
    assert [(e.ts, e.a, int(e.x)) for e in log.events(Txn)] == [(1735689600_000000, 1, 1)]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{HEADER}{T[0]},1,1.5,'a'\n{T[1]},2,2.5,'b'\n", {}),  # texts may have such quotes
        (f"{HEADER}{T[0]};1;1.5;a\n{T[1]},2,2.5,b\n", {}),  # some rows fit: the others are bad
        (f"{HEADER}{T[0]},1,1.5\n", {}),  # no other layout fits
        (f"ts,a,x,s,2024,2025\n{T[0]},1,1.5,a,b,c\n", {}),  # numbers may be names
        (HEADER, {}),
        ("", {}),
        (f"when,a,x,s\n{T[0]},1,1.5,a\n", {"columns": ["ts", "a", "x", "s"]}),
    ],
)
def test_what_may_be_meant_is_read(text: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    prepare_files(0, EventType.of(Txn), Source(path, **options), None, 0)


def test_a_row_that_would_be_left_out_is_seen_where_the_folder_gives_the_time(tmp_path: Path) -> None:
    path = tmp_path / "day=2025-01-01" / "a.csv"
    path.parent.mkdir()
    path.write_text("1,1.5,a\n")
    options: dict[str, Any] = {"columns": ["a", "x", "s"], "ts": "day", "tz": "UTC"}
    assert "would be left out as a header" in refused(path, **options).message
    log = Log.write(tmp_path / "log", {Txn: Source(path, header=False, **options)})
    assert [(e.ts, e.a) for e in log.events(Txn)] == [(1735689600_000000, 1)]


def test_a_file_among_others_is_looked_at_too(tmp_path: Path) -> None:
    for day in range(3):
        (tmp_path / f"{day}.csv").write_text(f"{HEADER}{T[0]},1,1.5,a\n")
    (tmp_path / "2.csv").write_text(f"{HEADER}{T[0]};1;1.5;a\n")
    with pytest.raises(IngestError, match="its rows are separated by ';'") as raised:
        prepare_files(0, EventType.of(Txn), Source(tmp_path), None, 0)
    assert str(raised.value.place) == f"{tmp_path}/2.csv:2"


OBJECT = '{"ts":"2025-01-01T00:00:00Z","a":1,"x":1.5,"s":"b"}'
PRETTY = '{\n  "ts": "2025-01-01T00:00:00Z",\n  "a": 1,\n  "x": 1.5\n}\n'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", f"{HEADER}{T[0]},1,1.5,a\n".replace("\n", "\r"), "end with CR alone"),
        ("a b.jsonl", f"{OBJECT}\r{OBJECT}\r", "end with CR alone"),
        ("a.json", f"[{OBJECT},{OBJECT}]", "one JSON array"),
        ("a.json.gz", f" [\n{OBJECT},\n{OBJECT}\n]\n", "one JSON array"),
        ("a.json", PRETTY * 2, "over several lines each"),
        ("a.json", '{"ts": "2025-01-01T00:00:00Z",\n"a": 1, "x": 1.5}\n', "over several lines each"),
    ],
)
def test_files_that_are_no_lines_are_named_and_the_command_that_is_given_mends_them(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    error = refused(path)
    assert (error.code, said in error.message) == ("TL412", True)
    with pytest.raises(IngestError, match=said):
        look(str(path))
    command = str(error.hint).removeprefix("convert it: ")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    path.unlink()
    (made,) = tmp_path.iterdir()
    log = Log.write(tmp_path / "log", {Txn: made})
    assert {(e.ts, e.a, e.x) for e in log.events(Txn)} == {(1735689600_000000, 1, 1.5)}


@pytest.mark.parametrize(
    "text",
    [
        f"{OBJECT}\n{OBJECT}\n", '{"ts": \n' + f"{OBJECT}\n", OBJECT, "[1, 2]\n", "{\n" + f"{OBJECT}\n", "", "nonsense\n", "[" * 60_000,
    ],
)  # fmt: skip
def test_json_lines_of_which_some_are_bad_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    prepare_files(0, EventType.of(Txn), Source(path), None, 0)


def test_a_cell_over_two_lines_is_told_as_such_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'{HEADER}{T[0]},1,1.5,"a\nb"\n{T[1]},2,1.5,c\n')
    with pytest.raises(IngestError) as raised:
        Log.write(tmp_path / "log", {Txn: path})
    assert "a quoted cell does not end on its line: one line is one record" in raised.value.message
    assert "multiline= (--multiline) reads cells with line breaks" in str(raised.value.hint)
    log = Log.write(tmp_path / "log", {Txn: path}, max_bad=1)
    assert [e.a for e in log.events(Txn)] == [2]


def test_options_are_named_for_who_reads_them() -> None:
    """On the command line alone as it takes them; in Python both ways."""
    text = "sep=\" \" (--sep ' ') and quote='\"' (--quote '\"'), sep=\"|\" (--sep '|'), header=False (--no-header)"
    assert as_options(text) == "--sep ' ' and --quote '\"', --sep '|', --no-header"


def test_a_type_that_needs_no_time_from_its_rows_has_headers_all_the_same(tmp_path: Path) -> None:
    """`at`: the time of all rows. A first row in place of the header is found by the fields alone."""
    path = tmp_path / "a.csv"
    path.write_text("7,1.5,b\n8,2.5,c\n")
    assert "seems to be a row" in refused(path, at=T[0]).message
    path.write_text("a,x,s\n7,1.5,b\n")
    assert isinstance(prepare_files(0, EventType.of(Txn), Source(path, at=T[0]), None, 0).plan, Plan)


def test_a_line_that_would_be_a_bad_row_does_not_hide_those_behind_it(tmp_path: Path) -> None:
    """Lines are looked at one by one, as they are read; an open quote ends with its line, and long cells are cells."""
    (tmp_path / "a.csv").write_text(
        HEADER + f'{T[0]},1,1.5,"open\n' + f"{T[1]},2,2.5,{'y' * 200_000}\n" + f'{T[1]},3,3.5,"a,b"\n'
    )
    found = look(str(tmp_path / "a.csv"))
    assert (found.rows, found.sep) == (2, ",")
    assert [(c.name, c.type) for c in found.columns] == [
        ("ts", "tl.Time"),
        ("a", "int"),
        ("x", "float"),
        ("s", "str"),
    ]


def _packed(name: str) -> bytes:
    data = f"{HEADER}{T[0]},1,1.5,a\n".encode()
    if name.endswith((".xz", ".lzma")):
        return lzma.compress(data, lzma.FORMAT_XZ if name.endswith(".xz") else lzma.FORMAT_ALONE)
    out = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("a.csv", data)
    else:
        with tarfile.open(fileobj=out, mode="w:gz" if name.endswith("z") else "w") as tar:
            member = tarfile.TarInfo("a.csv")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "said", "remedy"),
    [
        ("a.csv.xz", "compressed by xz", "xz -d a.csv.xz"),
        ("a.csv.lzma", "compressed by xz", "xz -d a.csv.lzma"),
        ("a b.csv.zip", "a zip archive", "unzip 'a b.csv.zip'"),
        ("a.tar", "a tar archive", "tar -xf a.tar"),
        ("a.tar.gz", "a tar archive", "tar -xf a.tar.gz"),
        ("a.tgz", "a tar archive", "tar -xf a.tgz"),
    ],
)
def test_files_that_are_packed_otherwise_are_named_with_the_command_that_unpacks_them(
    name: str, said: str, remedy: str, tmp_path: Path
) -> None:
    """Also among others that are read, and for `init`: it was said that the format is not clear."""
    (tmp_path / "a.csv").write_text(f"{HEADER}{T[0]},1,1.5,a\n")
    path = tmp_path / name
    path.write_bytes(_packed(name))
    for error in (refused(path), refused(tmp_path)):
        assert (error.code, str(error.place)) == ("TL412", str(path))
        assert said in error.message
        assert remedy in str(error.hint)
    with pytest.raises(IngestError, match=said):
        look(str(path))


@pytest.mark.parametrize("name", ["a.csv.xz", "a.tar"])
def test_a_wrong_suffix_hides_none_of_them(name: str, tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    path.write_bytes(_packed(name))
    assert "which is not read" in refused(path).message
