"""From pieces of a source to typed columns: CSV, JSON lines, text, and tables (Parquet, DataFrames)."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from timelapse.display import many
from timelapse.ingest import nested, records
from timelapse.ingest.amounts import Unfit
from timelapse.ingest.batches import Bad, Batch, as_text, no_rows, of_columns, of_objects, show
from timelapse.ingest.convert import plain
from timelapse.ingest.function_rows import of_rows
from timelapse.ingest.lines import Lines, count_of, line_ends
from timelapse.ingest.nested import plainly
from timelapse.ingest.objects import getter
from timelapse.ingest.plan import Plan
from timelapse.ingest.texts import cells_of
from timelapse.segments.quarantine import NOT_KEPT
from timelapse.tables.rowhash import one_array

NOT_UTF8 = "is not UTF-8"
NO_END = "a quoted cell does not end"
OPEN_CELL = "a quoted cell does not end on its line: one line is one record"

# --- lines ----------------------------------------------------------------------------------------------


def parse_lines(plan: Plan, lines: Lines) -> Batch:
    """A block of lines as events. Empty lines are no rows; they are counted as skipped."""
    data = lines.data
    if lines.starts is not None:
        at_header = plan.header and lines.first == 1
        return _parse_rows(plan, islice(records.split(lines), at_header, None))
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
    first, count = lines.first, lines.known
    if plan.format == "csv" and plan.header and first == 1:
        _, line_end, data = data.partition(b"\n")
        first, count = 2, None if count is None else count - 1
        if not line_end:
            return no_rows(plan)
    if plan.format == "csv" and plan.applied is None:
        quick = _quick_csv(plan, data, line_ends(data) + 1 if count is None else count)
        if quick is not None:
            rows = first + np.arange(len(next(iter(quick.values()))))
            return of_columns(plan, quick, rows, lambda place: show(data.split(b"\n")[place]), texts=True)
    return _parse_rows(plan, enumerate(data.split(b"\n"), first))


def _parse_rows(plan: Plan, lines: Iterable[tuple[int, bytes]]) -> Batch:
    """Rows with their numbers as events, one by one."""
    bad: list[Bad] = []
    numbers: list[int] = []
    raws: list[bytes] = []
    skipped = filtered = 0
    read = (_READERS if plan.applied is None else _WHOLE)[plan.format or "text"](plan)
    rows_read: list[Any] = []
    for number, raw in lines:
        if not raw:
            skipped += 1
            continue
        try:
            row = read(raw)
        except UnicodeDecodeError as error:
            bad.append(Bad(number, f"byte {error.start + 1} {NOT_UTF8}", show(raw)))
            continue
        except Unfit as error:
            bad.append(Bad(number, str(error), show(raw)))
            continue
        if row is None:
            skipped += 1
            continue
        if row is OTHER:
            filtered += 1
            continue
        rows_read.append(row)
        numbers.append(number)
        raws.append(raw)
    place = np.asarray(numbers, np.int64)
    if plan.applied is not None:
        batch = of_rows(plan, rows_read, place, lambda n: show(raws[n]))
    elif plan.format == "json":
        batch = of_objects(plan, rows_read, place, lambda n: show(raws[n]))
    else:
        wanted = _present(plan)
        texts = list(zip(*rows_read, strict=True)) if rows_read else [()] * len(wanted)
        columns = {
            name: pa.array(values, type=pa.string()) for name, values in zip(wanted, texts, strict=True)
        }
        batch = of_columns(plan, columns, place, lambda n: show(raws[n]), texts=True)
    if plan.private is not None:
        bad = [b._replace(raw=NOT_KEPT) for b in bad]
    batch.bad = sorted([*bad, *batch.bad], key=lambda one: one[:4])
    batch.read += len(bad) + skipped + filtered
    batch.filtered += filtered
    batch.skipped += skipped
    return batch


def _present(plan: Plan) -> list[str]:
    """The needed columns that the source has (those of optional fields may be missing)."""
    return [name for name in plan.needed if name in plan.names]


def _quick_csv(plan: Plan, data: bytes, lines: int) -> dict[str, pa.Array] | None:
    """The needed columns of a block of so many lines without surprises, split by Arrow; None where line by line is needed.

    Where quotes only enclose whole cells of texts without a separator, Arrow does not look for them, and they are taken off afterwards.
    """
    quote = plan.quote.encode() if plan.quote else b""
    if len(plan.sep.encode()) != 1 or b"\r" in data or not data or (len(quote) > 1 and quote in data):
        return None
    quotes = len(quote) == 1 and quote in data
    numbers = plan.numeric if b"x" not in data and b"X" not in data else {}
    codes = {name: _CODES for name, repeats in plan.coded.items() if repeats}
    enclosing: bool | None = None
    for kinds in [numbers, {}] if numbers else [{}]:
        for bare in [True, False] if quotes else [True]:
            way = bool(kinds), bare
            if (kinds or (bare and quotes)) and not plan.worth(way):
                continue
            if not bare and enclosing is None:
                enclosing = _whole_cells_quoted(data, quote, plan.sep.encode())
            if not bare and not enclosing:
                return None
            found = _split(plan, data, lines, {**kinds, **codes}, None if bare else plan.quote)
            if found is not None and bare and quotes:
                found = _unquoted(plan, found, data, quote)
            plan.tried.setdefault(way, []).append(found is not None)
            if found is not None:
                for name in codes:
                    if _FEW * len(found[name].dictionary) > lines:
                        plan.coded[name] = False
                return found
    return None


_CODES = pa.dictionary(pa.int32(), pa.string())
_FEW = 4
"""Texts come as codes as long as each stands so many times in a block, on average."""


def _split(
    plan: Plan, data: bytes, lines: int, kinds: Mapping[str, pa.DataType], quote: str | None
) -> dict[str, pa.Array] | None:
    """The needed columns of a block of so many lines, those in `kinds` as numbers and others as texts; None where a line does not fit."""
    names = [f"c{n}" for n in range(len(plan.names))]
    wanted = {names[plan.names.index(c)]: c for c in _present(plan)}
    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            parse_options=pacsv.ParseOptions(delimiter=plan.sep, quote_char=quote or False),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(wanted), column_types={n: kinds.get(c, pa.string()) for n, c in wanted.items()},
                null_values=[], strings_can_be_null=False,
            ),
        )  # fmt: skip
    except pa.ArrowInvalid:
        return None
    if table.num_rows != lines:  # Arrow leaves out empty lines
        return None
    if any(pa.types.is_floating(c.type) and pc.any(pc.is_inf(c)).as_py() for c in table.columns):
        return None  # Arrow makes infinity of a number that is too large for a float, which is a bad row
    return {c: one_array(table[n]) for n, c in wanted.items()}


def _unquoted(
    plan: Plan, columns: dict[str, pa.Array], data: bytes, quote: bytes
) -> dict[str, pa.Array] | None:
    """Columns of cells as they stand in the lines, without their quotes; None unless all quotes of the lines enclose cells of these columns."""
    every = len(columns) == len(plan.names)  # then there are no quotes elsewhere
    found = dict(columns)
    seen = 0
    for name, column in columns.items():
        coded = pa.types.is_dictionary(column.type)
        if not coded and not pa.types.is_string(column.type):
            continue  # a number with quotes is none to Arrow
        texts = column.dictionary if coded else column
        enclosed = _enclosed(texts, quote)
        if enclosed is None:
            return None
        if not enclosed.any():
            continue
        bare = pc.ascii_trim(texts, quote.decode())
        found[name] = pa.DictionaryArray.from_arrays(column.indices, bare, safe=False) if coded else bare
        if not every:
            seen += 2 * int(np.count_nonzero(enclosed[np.asarray(column.indices)] if coded else enclosed))
    return found if every or seen == count_of(data, quote) else None


def _enclosed(texts: pa.Array, quote: bytes) -> npt.NDArray[np.bool_] | None:
    """Which texts two quotes enclose; None where some text has other ones."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(texts) + 1]
    if data is None or not ends[-1]:
        return np.zeros(len(texts), np.bool_)
    is_quote = np.frombuffer(data, np.uint8)[: ends[-1]] == quote[0]
    # the byte that stands for an empty text is another's, which is of no account
    opened, closed = is_quote[np.minimum(ends[:-1], ends[-1] - 1)], is_quote[ends[1:] - 1]
    enclosed: npt.NDArray[np.bool_] = opened & closed & (np.diff(ends) >= 2)
    return enclosed if 2 * np.count_nonzero(enclosed) == np.count_nonzero(is_quote) else None


def _whole_cells_quoted(data: bytes, quote: bytes, sep: bytes) -> bool:
    """Whether all quotes of a block of lines stand around whole cells, or are doubled within one: then every reader of CSV agrees.

    Quotes are taken in turns as opening and closing ones. An opening one stands behind a separator or a
    line end, a closing one in front of one, and what they enclose has no line end; a doubled quote closes, and opens again at once.
    """
    if len(quote) != 1:
        return False
    bytes_ = np.frombuffer(data, np.uint8)
    quotes, ends = bytes_ == quote[0], bytes_ == ord("\n")
    marks = np.flatnonzero(quotes | ends)
    is_quote = quotes[marks]
    places = marks[is_quote]
    if len(places) % 2:
        return False
    inside = np.logical_xor.accumulate(is_quote)  # behind an opening quote, up to the closing one
    if (inside & ~is_quote).any():
        return False
    opening, closing = places[::2], places[1::2]
    before = np.where(opening > 0, bytes_[opening - 1], ord("\n"))
    behind = np.where(closing + 1 < len(bytes_), bytes_[np.minimum(closing + 1, len(bytes_) - 1)], ord("\n"))
    allowed = np.zeros(256, np.bool_)
    allowed[[sep[0], ord("\n"), quote[0]]] = True
    return bool(allowed[before].all() and allowed[behind].all())


def _csv_reader(plan: Plan) -> Callable[[bytes], list[str]]:
    expected, quote, sep = len(plan.names), plan.quote, plan.sep
    picks = [plan.names.index(name) for name in _present(plan)]

    def read(raw: bytes) -> list[str]:
        try:
            cells = cells_of(raw.decode(), sep, quote)
        except csv.Error as error:
            open_ = NO_END if plan.multiline else OPEN_CELL
            raise Unfit(open_ if str(error) == "unexpected end of data" else str(error)) from None
        if len(cells) != expected:
            raise Unfit(f"{many(len(cells), 'column', 'columns')}, not {expected}")
        return [cells[n] for n in picks]

    return read


def _text_reader(plan: Plan) -> Callable[[bytes], tuple[str | None, ...] | None]:
    search = plan.pattern.search
    wanted = _present(plan)

    def read(raw: bytes) -> tuple[str | None, ...] | None:
        found = search(raw.decode())
        if found is None:
            if plan.skip_unmatched:
                return None
            raise Unfit("the regular expression does not match")
        return tuple([found[name] for name in wanted])

    return read


OTHER = object()
"""In place of an object that is another source's."""


def _is_told(row: Any, wanted: list[tuple[list[str], tuple[str, ...]]]) -> bool:
    """Whether an object has the values of this source's."""
    for path, values in wanted:
        value = getter(type(row), path)(row)
        if value is None or value is msgspec.UNSET or as_text(value) not in values:
            return False
    return True


def _json_reader(plan: Plan) -> Callable[[bytes], Any]:
    decode = plan.decoder.decode
    telling = plan.telling

    def read(raw: bytes) -> Any:
        try:
            if telling is not None and not _is_told(telling[0].decode(raw), telling[1]):
                return OTHER
            return decode(raw)
        except UnicodeDecodeError:
            raw.decode()  # which byte of the line it is
            raise
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unfit(str(error)) from None

    return read


_READERS: dict[str, Callable[[Plan], Callable[[bytes], Any]]] = {
    "csv": _csv_reader, "text": _text_reader, "json": _json_reader,
}  # fmt: skip


def _whole_csv(plan: Plan) -> Callable[[bytes], dict[str, str]]:
    read = _csv_reader(
        replace(plan, choices=(), ts="", columns=plan.names, computed=(), only=(), arrival=None)
    )
    return lambda raw: dict(zip(plan.names, read(raw), strict=True))


def _whole_text(plan: Plan) -> Callable[[bytes], dict[str, str | None] | None]:
    read = _text_reader(
        replace(plan, choices=(), ts="", columns=plan.names, computed=(), only=(), arrival=None)
    )

    def whole(raw: bytes) -> dict[str, str | None] | None:
        found = read(raw)
        return None if found is None else dict(zip(plan.names, found, strict=True))

    return whole


def _whole_json(plan: Plan) -> Callable[[bytes], dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode

    def read(raw: bytes) -> dict[str, Any]:
        try:
            return decode(raw)
        except UnicodeDecodeError:
            raw.decode()
            raise
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unfit(str(error)) from None

    return read


_WHOLE: dict[str, Callable[[Plan], Callable[[bytes], Any]]] = {
    "csv": _whole_csv, "text": _whole_text, "json": _whole_json,
}  # fmt: skip
"""Readers of rows with all their columns, as dicts."""


# --- tables ---------------------------------------------------------------------------------------------


def parse_table(plan: Plan, table: pa.Table, first: int | None) -> Batch:
    """A table's rows as events. `first` is the number of the first, of those of a file or table, which count from 1 (None: rows have no number)."""
    rows = np.arange(first, first + table.num_rows, dtype=np.int64) if first is not None else (
        np.full(table.num_rows, -1, np.int64)
    )  # fmt: skip
    if plan.applied is not None:
        every = {name: [plain(v) for v in plainly(table[name])] for name in table.column_names}
        told = [dict(zip(every, values, strict=True)) for values in zip(*every.values(), strict=True)]
        return of_rows(
            plan, told, rows, lambda place: show(repr(told[place]).encode("utf-8", "backslashreplace"))
        )
    count = table.num_rows
    table = nested.flat(table, nested.with_marks(plan.needed))
    columns = {name: plainly(table[name]) for name in table.column_names}

    def raw(place: int) -> str:
        values = {name: plain(columns[name][place]) for name in plan.needed if name in columns}
        return show(repr(values).encode("utf-8", "backslashreplace"))

    apart = nested.taken_apart(columns, plan.needed, count)
    if apart is None:
        return of_columns(plan, columns, rows, raw, texts=False)
    parents = apart.parents
    batch = of_columns(
        plan,
        apart.columns,
        rows[parents],
        lambda at: raw(int(parents[at])),
        texts=False,
        items=(apart.places, apart.nulls),
    )
    batch.skipped, batch.read = apart.empty, batch.read + apart.empty
    return batch
