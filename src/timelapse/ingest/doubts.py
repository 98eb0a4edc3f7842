"""Times that had to be decided: without a zone, of an hour that clocks showed twice or never, finer than a microsecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import IngestError, Place
from timelapse.ingest.convert import is_text
from timelapse.ingest.texts import holds_only, may_have_seven_digits
from timelapse.ingest.times import A_NUMBER, ISO_TIME, PER_UNIT, ZONED_TIME, Times, is_finer, may_be_finer

if TYPE_CHECKING:
    from timelapse.segments.types import EventType

Doubt = Literal["zone", "twice", "never", "fraction"]
"""Why a time is not certain: it has no zone and none was said (such times are not read); clocks showed it twice (the first is taken), or
never (they were put forward); it has digits below a microsecond, which are cut off."""
Doubts = dict[Doubt, npt.NDArray[np.int64]]
"""The rows of each doubt."""


def doubts_of(column: pa.Array, times: Times) -> Doubts:
    """What had to be decided to read a column of times: which rows, by why. Rows that cannot be read are of no account."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    found: Doubts = {}
    if pa.types.is_date(kind):
        if not times.told:
            _add(found, "zone", column.is_valid())
        elif times.tz != "UTC":
            _add_of_clocks(found, column.cast(pa.timestamp("ms")).cast(pa.timestamp("us")), times.tz)
        return found
    if pa.types.is_integer(kind):
        if times.unit == "ns":
            _add(found, "fraction", _below_a_thousand(column))
        return found
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        _add_finer(found, column, _may_be_finer(column, times), times)
        return found
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            _add(found, "fraction", _below_a_thousand(column.cast(pa.int64())))
        if kind.tz is None:
            if not times.told:
                _add(found, "zone", column.is_valid())
            elif times.tz != "UTC":
                _add_of_clocks(found, column.cast(pa.timestamp("us"), safe=False), times.tz)
        return found
    if not is_text(kind) or not len(column):
        return found
    column = column.cast(pa.string())
    if times.time_format is None and (
        may_have_seven_digits(column)
        if times.unit is None
        else times.unit == "ns" or not holds_only(column, b"-0123456789", 30)
    ):
        _add_finer(found, column, pc.match_substring_regex(column, may_be_finer(times)), times)
    if times.told and times.tz == "UTC":
        return found
    if (
        holds_only(column, b"0123456789", 30)
        or pc.all(pc.match_substring_regex(column, r"^[-+]?[0-9.]*$")).as_py() is not False
    ):
        return found  # numbers
    if (
        times.time_format is None
        and pc.all(pc.match_substring_regex(column, ZONED_TIME)).as_py() is not False
    ):
        return found
    if times.time_format is None and pc.all(pc.match_substring_regex(column, ISO_TIME)).as_py() is not False:
        if not times.told:
            _add(found, "zone", pc.not_equal(column, ""))
            return found
        try:
            _add_of_clocks(found, column.cast(pa.timestamp("us")), times.tz)
            return found
        except pa.ArrowInvalid:
            pass
    coded = column.dictionary_encode()
    known = [_doubt(text, times) for text in coded.dictionary.to_pylist()]
    each = pa.array(known, pa.string()).take(coded.indices)
    for why in sorted({one for one in known if one}):
        _add(found, why, pc.equal(each, why))
    return found


def doubts_of_values(values: Sequence[Any], times: Times) -> Doubts:
    """The same of values of JSON and of Python."""
    kinds = set(map(type, values)) - {type(None)}
    texts = [v if type(v) is str else None for v in values]
    found = doubts_of(pa.array(texts, pa.string()), times) if str in kinds else {}
    if kinds - {str, int} or (int in kinds and times.unit == "ns"):
        others = [type(v) is not str and is_finer(v, times) for v in values]
        finer = np.union1d(found.get("fraction", np.zeros(0, np.int64)), np.flatnonzero(others))
        if len(finer):
            found["fraction"] = finer
    return found


def refuse_without_zone(
    kind: EventType, doubts: Mapping[str, Doubts], path: str, *, numbered: bool = True
) -> None:
    """Raise IngestError (TL416) where times have no zone and none was said: no zone is guessed."""
    for name, own in doubts.items():
        rows = own.get("zone")
        if rows is not None:
            raise without_zone(kind, name, path, int(rows.min()) if numbered else None)


def without_zone(kind: EventType, name: str, path: str, row: int | None = None) -> IngestError:
    """The error for times without a zone; `row`: the first of them, where rows have numbers."""
    return IngestError(
        f"{kind.name}.{name}: times have no zone, and none was said",
        place=Place(path, row if row is not None and row >= 0 else None), code="TL416",
        hint='say which: tz="Europe/Berlin" (--tz Europe/Berlin), in log.toml under the source; "UTC" where they are UTC',
    )  # fmt: skip


def _add(found: Doubts, why: Doubt, rows: pa.Array) -> None:
    places = np.flatnonzero(np.asarray(pc.fill_null(rows, False)))
    if len(places):
        found[why] = places


def _below_a_thousand(column: pa.Array) -> pa.Array:
    return pa.array(np.asarray(pc.fill_null(column, 0)) % 1_000 != 0)


def _may_be_finer(column: pa.Array, times: Times) -> pa.Array:
    """Which numbers may have digits below a microsecond: of fractions of seconds, those that are no whole number of microseconds."""
    if not pa.types.is_floating(column.type) or times.unit not in ("s", "ms"):
        return column.is_valid()
    values = np.asarray(pc.fill_null(column.cast(pa.float64()), 0))
    with np.errstate(invalid="ignore", over="ignore"):
        return pa.array(np.rint(values * PER_UNIT[times.unit]) / PER_UNIT[times.unit] != values)


def _add_finer(found: Doubts, column: pa.Array, candidates: pa.Array, times: Times) -> None:
    """Add the times among candidates that have digits below a microsecond."""
    places = np.flatnonzero(np.asarray(pc.fill_null(candidates, False)))
    if not len(places):
        return
    coded = column.take(pa.array(places)).dictionary_encode()
    finer = np.asarray([is_finer(v, times) for v in coded.dictionary.to_pylist()], np.bool_)
    places = places[finer[np.asarray(coded.indices)]]
    if len(places):
        found["fraction"] = places


def _add_of_clocks(found: Doubts, naive: pa.Array, tz: str) -> None:
    """Add times of day that clocks in a zone showed twice, and those that they never showed."""
    first = pc.assume_timezone(naive, tz, ambiguous="earliest", nonexistent="earliest").cast(pa.int64())
    last = pc.assume_timezone(naive, tz, ambiguous="latest", nonexistent="latest").cast(pa.int64())
    apart = pc.subtract(last, first)
    # of a time that never was, these are the last instant before the gap and the first one after it
    _add(found, "twice", pc.greater(apart, 1_000))
    _add(found, "never", pc.and_(pc.greater(apart, 0), pc.less_equal(apart, 1_000)))


def _doubt(text: str | None, times: Times) -> Doubt | None:
    """What had to be decided to read a text; nothing where it is empty, a number, or no time."""
    text = (text or "").strip(" \t")
    if not text or (times.time_format is None and A_NUMBER.match(text)):
        return None
    try:
        naive = times.read(text)
    except ValueError:
        return None
    if naive.tzinfo is not None:
        return None
    if not times.told:
        return "zone"
    first, second = (naive.replace(tzinfo=times.zone, fold=n).utcoffset() for n in (0, 1))
    if first is None or second is None or first == second:
        return None
    return "twice" if first > second else "never"
