"""Labels: what is known to be right, from a file or a table, beside the outputs of two runs.

A label names an output by its key: by columns of the record's key fields, or by one column `key`. The column `label`
says whether the output is right (true) or wrong; without it every row is right, as in a list of reports. The optional
column `ts` says when the label came about, or when the thing itself did. Columns of other names are named by the caller;
a table in which another column looks like the label is refused until somebody says which it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.compare.given import Given
from timelapse.errors import IngestError, Place, UsageError, meant
from timelapse.ingest.convert import convert, is_text
from timelapse.ingest.times import Times
from timelapse.model.types import BOOL, BYTES, FLOAT, INT, STR, TIME, OptionalType, ValueType
from timelapse.tables.loops import U64
from timelapse.tables.rowhash import both_lanes, one_array

if TYPE_CHECKING:
    from timelapse.compare.records import RecordDiff

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SEED = 0x6C6162656C73
_RIGHT = {"true", "yes", "1", "t", "y", "right", "positive"}
ALL_RIGHT = "none"
"""In place of the column that says right or wrong: every row is right."""
_WRONG = {"false", "no", "0", "f", "n", "wrong", "negative"}


@dataclass(frozen=True)
class Labels(Given):
    """A table of labels.

    `label`, `ts`, `key`: the columns that are not called so; `label` is ALL_RIGHT where every row counts as right.
    """

    label: str | None = None
    ts: str | None = None
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.table.column_names
        for option, column in (
            ("label", self.label),
            ("label-ts", self.ts),
            *(("label-key", k) for k in self.key),
        ):
            if column is not None and column not in names and (option, column) != ("label", ALL_RIGHT):
                raise UsageError(
                    f"--{option} {column}: the labels have no such column", place=Place(self.name),
                    hint=f"{meant(column, names)}columns: {', '.join(names)}", code="TL818",
                )  # fmt: skip

    @classmethod
    def of(
        cls, source: Any, *, label: str | None = None, ts: str | None = None, key: Sequence[str] = (),
    ) -> Labels:  # fmt: skip
        """Labels from a Parquet or CSV file (`.parquet`, else CSV with a header), an Arrow table, or a pandas or Polars DataFrame.

        `label`: the column that says right or wrong, ALL_RIGHT ("none") where every row counts as right; by default
        `label`. `ts`: that of the label's time; `key`: those that name the output, in the order of the record's key.
        Raises UsageError (TL818) for what cannot be read, and columns that are not there.
        """
        if not isinstance(source, Labels):
            read = Given.read(source, what="labels", columns=": key,label,ts", code="TL818")
            return cls(read.table, read.texts, read.name, label, ts, tuple(key))
        return replace(
            source, label=source.label if label is None else label, ts=source.ts if ts is None else ts,
            key=tuple(key) or source.key,
        )  # fmt: skip

    def fit(self, record: RecordDiff) -> tuple[str, ...] | None:
        """The columns that name a record type's outputs; None where there are none."""
        if record.identity == ("phase", "seq"):
            return None
        names = self.table.column_names
        if self.key:
            return self.key if len(self.key) == len(record.identity) else None
        if all(f in names for f in record.identity):
            return record.identity
        return ("key",) if len(record.identity) == 1 and "key" in names else None

    def record(self, records: Mapping[str, RecordDiff], wanted: str | None = None) -> str:
        """The record type that these labels are about. Raises UsageError (TL818) where that is not clear."""
        if wanted is not None and wanted not in records:
            raise UsageError(
                f"--labels {wanted}:{self.name}: there is no record type {wanted}",
                hint=f"{meant(wanted, records)}record types: {', '.join(records) or 'none'}", code="TL818",
            )  # fmt: skip
        found = {name: columns for name, r in records.items() if (columns := self.fit(r)) is not None}
        if wanted is not None:
            found = {n: c for n, c in found.items() if n == wanted}
        elif len(found) > 1:
            found = {n: c for n, c in found.items() if c == records[n].identity} or found
        if len(found) == 1:
            return next(iter(found))
        keyed = {
            n: ", ".join(r.identity) for n, r in records.items() if r.identity != ("phase", "seq")
        }  # fmt: skip
        if found:
            raise UsageError(
                f"{self.name} could be about {' or '.join(found)}", place=Place(self.name),
                hint=f"say which: --labels {next(iter(found))}:{self.name}", code="TL818",
            )  # fmt: skip
        known = "; ".join(f"{n} by {fields}" for n, fields in keyed.items())
        wanted_fields = [
            f for n, r in records.items() if n == (wanted or n) and n in keyed for f in r.identity
        ]
        close = next((c for c in self.table.column_names if meant(c, wanted_fields)), "COLUMN")
        raise UsageError(
            f"no column names the outputs of {wanted or 'any record type'}"
            f" (columns: {', '.join(self.table.column_names)})", place=Place(self.name),
            hint=f"say which: --label-key {close}; or name the columns as the record's key fields, or `key`: {known}" if known
            else "outputs have no key: declare class Spam(tl.Record, key=...), or give --key", code="TL818",
        )  # fmt: skip

    # --- columns ----------------------------------------------------------------------------------

    def keys(self, record: RecordDiff) -> tuple[pa.Table, Bools]:
        """The keys, as the record's own columns; and which rows have one (a missing key is no label)."""
        columns = self.fit(record)
        assert columns is not None
        arrays = []
        for field, column in zip(record.identity, columns, strict=True):
            target = record.schema.field(field).type
            arrays.append(self._column(column, _kind(target, field, self.name)).cast(target))
        full = np.ones(self.table.num_rows, np.bool_)
        for array in arrays:
            full &= np.asarray(array.is_valid())
        return pa.table(arrays, names=list(record.identity)), full

    def right(self) -> tuple[Bools, Bools]:
        """Which rows say that the output is right; which rows say anything at all."""
        rows = self.table.num_rows
        if self.label_column is None:
            return np.ones(rows, np.bool_), np.ones(rows, np.bool_)
        column = one_array(self.table.column(self.label_column))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_boolean(column.type):
            return np.asarray(pc.fill_null(column, False)), np.asarray(column.is_valid())
        if pa.types.is_null(column.type):
            return np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        words = pc.utf8_lower(pc.utf8_trim_whitespace(self._words(column)))
        right = pc.is_in(words, value_set=pa.array(sorted(_RIGHT)))
        wrong = pc.is_in(words, value_set=pa.array(sorted(_WRONG)))
        said = np.asarray(words.is_valid()) & np.asarray(pc.fill_null(pc.not_equal(words, ""), False))
        odd = np.flatnonzero(said & ~np.asarray(right) & ~np.asarray(wrong))
        if len(odd):
            raise self._bad(
                f"row {odd[0] + 1}: the label {words[int(odd[0])].as_py()[:40]!r} is neither true nor false"
            )
        return np.asarray(right), said

    @property
    def label_column(self) -> str | None:
        """The column that says right or wrong; None where every row is right."""
        if self.label is not None:
            return None if self.label == ALL_RIGHT else self.label
        return "label" if "label" in self.table.column_names else None

    @property
    def ts_column(self) -> str | None:
        """The column of the labels' times; None where they have none."""
        return self.ts or ("ts" if "ts" in self.table.column_names else None)

    def refuse_other_labels(self, used: Sequence[str]) -> None:
        """Raise UsageError (TL818) where nobody has said which column is the label, and one that is not used may be it.

        Every row would count as right, whatever that column says.
        """
        if self.label is not None or self.label_column is not None:
            return
        for name in self.table.column_names:
            if name not in used and self._says_yes_or_no(name):
                raise UsageError(
                    f"the labels have no column `label`, and {name} holds true and false: without a label every row counts as right",
                    place=Place(self.name), code="TL818",
                    hint=f"--label {name}, or --label {ALL_RIGHT} where every row is right",
                )  # fmt: skip

    def _says_yes_or_no(self, name: str) -> bool:
        column = one_array(self.table.column(name))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_boolean(column.type):
            return True
        if pa.types.is_integer(column.type):
            return set(pc.unique(column).to_pylist()) - {None} == {0, 1}
        if not is_text(column.type):
            return False
        words = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.large_string())))
        words = set(pc.unique(words).to_pylist()) - {None, ""}
        return bool(words & _RIGHT) and bool(words & _WRONG) and words <= _RIGHT | _WRONG

    def _words(self, column: pa.Array) -> pa.Array:
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            whole, reasons = convert(
                self.label_column or "label", column, OptionalType(INT), Times(), texts=False
            )
            if reasons:
                raise self._bad(next(iter(reasons.values())))
            return whole.cast(pa.string())
        if is_text(kind):
            return column.cast(pa.string())
        raise self._bad(f"the column {self.label_column} is {kind}: true or false is needed")

    def times(self) -> I64 | None:
        """When each label came about, in microseconds; None without a column of times."""
        if self.ts_column is None:
            return None
        return np.asarray(self._column(self.ts_column, TIME, required=True))

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column as numbers; a missing one is NaN. Raises UsageError for what is no number."""
        found = np.asarray(pc.fill_null(self._column(name, FLOAT), float("nan")))
        return found.astype(np.float64)

    def texts_of(self, name: str) -> pa.Array:
        """A column as people read it."""
        column = one_array(self.table.column(name))
        try:
            return column.cast(pa.string())
        except pa.ArrowNotImplementedError:  # lists and the like
            return pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())

    def _column(self, name: str, kind: ValueType, *, required: bool = False) -> pa.Array:
        column = one_array(self.table.column(name))
        wanted = kind if required else OptionalType(kind)
        try:
            values, reasons = convert(name, column, wanted, Times(), texts=self.texts)
        except IngestError as error:
            raise self._bad(error.message) from None
        for row, reason in sorted(reasons.items()):
            raise self._bad(f"row {row + 1}: {reason}")
        return values

    def _bad(self, message: str) -> UsageError:
        return UsageError(
            message,
            place=Place(self.name),
            hint="--label, --label-ts and --label-key name the columns",
            code="TL818",
        )


_KINDS: tuple[tuple[Any, ValueType], ...] = (
    (pa.types.is_boolean, BOOL), (pa.types.is_integer, INT), (pa.types.is_floating, FLOAT),
    (pa.types.is_timestamp, TIME), (pa.types.is_large_string, STR), (pa.types.is_string, STR),
    (pa.types.is_large_binary, BYTES), (pa.types.is_binary, BYTES),
)  # fmt: skip


def _kind(target: pa.DataType, field: str, name: str) -> ValueType:
    for test, kind in _KINDS:
        if test(target):
            return kind
    raise UsageError(
        f"outputs are named by {field}, a {target}: a label cannot say that", place=Place(name), code="TL818"
    )


def lanes_of(table: pa.Table, names: tuple[str, ...]) -> tuple[U64, U64]:
    """The 128-bit hash of each row's key columns."""
    return both_lanes([one_array(table.column(n)) for n in names], table.num_rows, _SEED)


def codes_of(*sides: tuple[U64, U64]) -> tuple[list[I64], int]:
    """Dense numbers for equal keys, for each of several lists of key hashes; and how many there are."""
    low, high = (np.concatenate([side[lane] for side in sides]) for lane in (0, 1))
    order = np.lexsort((low, high))
    starts = np.zeros(len(order), np.bool_)
    if len(order):
        a, b = low[order], high[order]
        starts[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(starts)
    ends = np.cumsum([len(side[0]) for side in sides])[:-1]
    return np.split(codes, ends), int(starts.sum()) + 1 if len(order) else 0
