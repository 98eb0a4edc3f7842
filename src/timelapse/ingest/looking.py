"""Looking at data that nobody has described: which columns files have, what is in them, which of them is the time.

Only samples are read, from the first, the last and some files between. What is found is a proposal: `timelapse init` writes it
down with what it saw, for people to correct.
"""

from __future__ import annotations

import csv
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from timelapse.decoding import decoded
from timelapse.errors import IngestError
from timelapse.ingest import lines as text_lines
from timelapse.ingest import table_files
from timelapse.ingest.files import Format, SourceFile, check_is_text, format_of, list_files, told_by_suffix
from timelapse.ingest.inferring import Seen, infer
from timelapse.ingest.line_shapes import Shape, columns_of, over_new_year, shape_of, year_of
from timelapse.ingest.texts import rows_of

_FILES = 5
_ROWS = 2_000
_BYTES = 512 << 10
_SEPARATORS = (",", ";", "\t", "|")
_TIMES = (
    "ts", "time", "timestamp", "at", "datetime", "date", "event_time", "created_at", "created", "occurred_at",
)  # fmt: skip
"""Names of the event time, the likeliest first."""


@dataclass
class Looked:
    """What was found of the files of one event type."""

    type: str
    data: tuple[str, ...]
    """Paths, folders or globs."""
    files: int
    format: Format
    rows: int
    columns: list[Seen]
    ts: Seen | None
    sep: str = ","
    header: bool = True
    guessed: bool = False
    """Whether the format was: the files' suffixes do not tell it."""
    lines: list[str] = field(default_factory=list)
    """The first lines of plain text."""
    shape: Shape | None = None
    """Of plain text: how its lines are read."""
    year: int | None = None
    """Of times without a year: the last in which they are not later than the file's last change."""
    broken: int = 0
    """Of CSV: records whose cells have line breaks."""
    notes: list[str] = field(default_factory=list)
    renamed: list[tuple[Seen, Seen]] = field(default_factory=list)
    """Columns of which each file has one: the second may be the first under a new name."""


def _renamed(columns: Sequence[Seen], per_file: Sequence[dict[str, list[Any]]]) -> list[tuple[Seen, Seen]]:
    files = [one for one in per_file if one]
    found = []
    for n, old in enumerate(columns):
        for new in columns[n + 1 :]:
            if (
                old.type == new.type
                and all((old.name in one) != (new.name in one) for one in files)
                and any(old.name in one for one in files)
            ):
                if any(new.name in one for one in files):
                    found.append((old, new))
    return found


def look(data: str | Sequence[str], type_: str | None = None) -> Looked:
    """What the files under a path, folder or glob hold, or under several. Raises IngestError where there are none, or they cannot be read."""
    data = [data] if isinstance(data, str) else data
    files = list_files(data)
    guessed = None if told_by_suffix(files) else _guessed(files[0])
    format_ = guessed or format_of(files)
    chosen = [files[k] for k in sorted({(len(files) - 1) * n // max(1, _FILES - 1) for n in range(_FILES)})]
    name = type_ or type_name(data[0])
    found = Looked(name, tuple(data), len(files), format_, 0, [], None, guessed=guessed is not None)
    per_file: list[dict[str, list[Any]]] = []
    for file in chosen:
        if format_ in ("csv", "json", "text"):
            check_is_text(file, format_)
        if format_ == "csv":
            per_file.append(_csv(found, file))
        elif format_ == "json":
            per_file.append(_json(file))
        elif format_ == "text":
            per_file.append(_text(found, file))
        else:
            per_file.append(_table(format_, file))
    for folder in chosen[0].partition:
        for values, file in zip(per_file, chosen, strict=True):
            if folder not in values:
                values[folder] = [file.partition.get(folder)]
    found.rows = sum(max(map(len, one.values()), default=0) for one in per_file)
    names = list(dict.fromkeys(name for one in per_file for name in one))
    for column in names:
        if format_ == "json" and ('"' in column or "\\" in column or not column.isprintable()):
            found.notes.append(f"left out: the key {column!r} cannot be read")
            continue
        own = [v for one in per_file for v in one.get(column, [])]
        if not any(own) and any(other.startswith((f"{column}[]", f"{column}.")) for other in names):
            continue  # rows without the object, or whose list is empty, of one that is taken apart
        seen = infer(column, own, typed=format_ == "json")
        without = [file.path for one, file in zip(per_file, chosen, strict=True) if column not in one and one]
        if without:
            seen.missing = True
            seen.notes.append(
                f"not in {without[0]}"
                + (f" and {len(without) - 1} more of the files looked at" if len(without) > 1 else "")
            )
        found.columns.append(seen)
    found.ts = _time_among(found.columns)
    if found.shape is not None:
        found.ts = _time_of_shape(found.shape, found.columns)
    elif found.ts is None and format_ != "text":
        found.ts = _named_as_time(found.columns)
    found.renamed = _renamed(found.columns, per_file)
    if not found.rows and not found.lines:
        found.notes.append(
            "the files looked at have no rows: types are not known, and the time is guessed by its name"
        )
    if found.broken:
        found.notes.append(
            f"{found.broken:,} of the records looked at have cells with line breaks: multiline reads them"
        )
    return found


def type_name(data: str) -> str:
    """What the events under a path, folder or glob may be called: those of `raw/logins-*.csv` Logins. Raises IngestError for a glob of no file."""
    path = Path(data)
    glob = not path.is_dir() and any(c in data for c in "*?[")
    stem = Path(list_files([data])[0].path).name if glob else path.name
    plain = path.parent.name if stem.startswith("*") else stem
    words = [w for w in re.split(r"[^A-Za-z]+", re.split(r"[.=]", plain)[0]) if w]
    found = "".join(w[:1].upper() + w[1:] for w in words) or "Row"
    return f"{found}Event" if keyword.iskeyword(found) else found


def _guessed(file: SourceFile) -> Format | None:
    """The format of text whose name does not tell it, by its lines; None where it is none, or has none."""
    try:
        check_is_text(file, "text")
    except IngestError:
        return None
    if not (lines := _lines(file)):
        return None
    if lines[0].startswith("{"):
        return "json"
    if (shape := shape_of(lines)) is not None and shape.ts in shape.regex and _agreement(lines, ",") < 1:
        return "text"
    apart = (*_SEPARATORS, " ") if not any("  " in line for line in lines) else _SEPARATORS
    return "csv" if max(_agreement(lines, sep) for sep in apart) >= 1 else "text"


# --- samples --------------------------------------------------------------------------------------------


def _lines(file: SourceFile) -> list[str]:
    piece = text_lines.Piece(file, 0, 0, None if file.packed else file.size)
    for block in text_lines.read_lines(piece, _BYTES):
        return [
            line.rstrip("\r")
            for line in block.data.decode("utf-8", "replace").split("\n")[:_ROWS]
            if line.strip()
        ]
    return []


def _text(found: Looked, file: SourceFile) -> dict[str, list[Any]]:
    """The columns of lines of plain text, where their shape is known."""
    lines = _lines(file)
    if not found.lines:
        found.lines = lines[:5]
        found.shape = shape_of(lines)
        if found.shape is not None and not found.shape.has_year:
            found.year = year_of(found.shape, lines, file.modified)
            if over_new_year(found.shape, lines):
                found.notes.append(
                    f"times have no year and go from December to January: all are read as of {found.year}; cut the files there, and give each source its year"
                )
    if found.shape is None:
        return {}
    columns, others = columns_of(found.shape, lines)
    if others:
        found.notes.append(
            f'{others:,} of {len(lines):,} lines looked at have another shape: they are skipped; unmatched = "quarantine" keeps them as bad rows'
        )
    return columns


def _csv(found: Looked, file: SourceFile) -> dict[str, list[Any]]:
    lines = _lines(file)
    if not lines:
        return {}
    found.sep = max(_SEPARATORS, key=lambda sep: _agreement(lines, sep))
    if not _agreement(lines, found.sep) and len(lines) > 1 and _agreement(lines, " ") >= 1:
        found.sep = " "
    if not (rows := list(rows_of(lines, found.sep))):
        return {}
    width = Counter(map(len, rows)).most_common(1)[0][0]
    first = rows[0]
    header = len(set(first)) == len(first) and not any(_is_value(cell) for cell in first)
    found.header = header
    names = first if header else [f"c{n + 1}" for n in range(width)]
    body = [row for row in rows[header:] if len(row) == len(names)]
    whole, broken = _records(lines[header:], found.sep, len(names))
    if broken:
        found.broken += broken
        body = whole
    return {name: [row[n] for row in body] for n, name in enumerate(names)}


def _records(lines: Sequence[str], sep: str, width: int) -> tuple[list[list[str]], int]:
    """The records of lines of CSV whose quoted cells may go on over several, and how many do; those of another width are left out."""
    records: list[list[str]] = []
    broken = 0
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=sep, strict=True)
    with suppress(csv.Error):  # what follows is not known
        for row in reader:
            if len(row) == width:
                records.append(row)
                broken += any("\n" in cell for cell in row)
    return records, broken


def _agreement(lines: Sequence[str], sep: str) -> float:
    """How well a separator makes the same number of columns of all lines; 0 where it makes one."""
    counts = Counter(len(row) for row in rows_of(lines[:200], sep))
    width, most = counts.most_common(1)[0] if counts else (0, 0)
    return 0.0 if width < 2 else most / counts.total() + width / 1_000


def _is_value(text: str) -> bool:
    """Whether a cell is a number, a time or nothing, and so no name of a column."""
    return not text.strip() or infer("", [text]).type != "str"


def _json(file: SourceFile) -> dict[str, list[Any]]:
    rows = []
    for line in _lines(file):
        try:
            row = decoded(line, Any)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return _columns(rows)


def _columns(rows: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """The columns of objects, what is nested in them by path: a value of each object, or of each item of a list that is taken apart."""
    found: dict[str, list[Any]] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        flat: dict[str, list[Any]] = {}
        _flatten(row, "", flat)
        now = {"": 1, **{_list_of(name): len(values) for name, values in flat.items() if "[]" in name}}
        for name, values in flat.items():
            found.setdefault(name, [None] * counts[_list_of(name)]).extend(values)
        for name, own in found.items():
            if name not in flat:
                own += [None] * now.get(_list_of(name), 0)
        counts.update(now)
    return found


def _list_of(name: str) -> str:
    return name[: name.index("[]")] if "[]" in name else ""


def _flatten(value: dict[str, Any], prefix: str, into: dict[str, list[Any]]) -> None:
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, dict):
            _flatten(inner, f"{name}.", into)
        elif isinstance(inner, list) and any(isinstance(one, dict) for one in inner) and "[]" not in name:
            items = _columns(one for one in inner if isinstance(one, dict))
            into.update({f"{name}[].{own}": values for own, values in items.items() if "[]" not in own})
        else:
            into.setdefault(name, []).append(inner)


def _table(format_: Format, file: SourceFile) -> dict[str, list[Any]]:
    shape = table_files.shape(format_, file)
    names = [name for name in shape.columns if name]
    if not shape.groups:
        return {name: [] for name in names}
    part = next(table_files.read(format_, file, 0, _ROWS, None), None)
    if part is None:
        return {name: [] for name in names}
    values = [[_python(v) for v in part[name]] for name in names]
    return _columns(dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))


def _python(value: Any) -> Any:
    if isinstance(value, pa.Scalar):
        if pa.types.is_timestamp(value.type) and value.is_valid:
            return value.cast(pa.timestamp("us", value.type.tz), safe=False).as_py()
        return value.as_py()
    return value


# --- which column is the time ---------------------------------------------------------------------------


def _time_of_shape(shape: Shape, columns: Sequence[Seen]) -> Seen | None:
    """The group that is the time, read as the shape says."""
    found = next((c for c in columns if c.name == shape.ts), None)
    if found is not None and shape.time_format is not None:
        found.type, found.time, found.time_format = "tl.Time", True, shape.time_format
        found.naive = "%z" not in shape.time_format
        found.notes = [note for note in found.notes if "could be either" not in note]
    return found if found is not None and found.time else None


def _named_as_time(columns: Sequence[Seen]) -> Seen | None:
    """Of columns without a value the one that is called as times are."""
    named = {c.name.lower().rpartition(".")[2]: c for c in columns if c.example == ""}
    found = next((named[name] for name in _TIMES if name in named), None)
    if found is not None:
        found.notes.append("the time by its name alone: it has no values")
    return found


def _time_among(columns: Sequence[Seen]) -> Seen | None:
    """The column that is the event's time: by its name, else the first that is never missing."""
    times = [c for c in columns if c.time and "[]" not in c.name]
    for name in _TIMES:
        for column in times:
            if column.name.lower().rpartition(".")[2] == name:
                return column
    return next((c for c in times if not c.missing), times[0] if times else None)
