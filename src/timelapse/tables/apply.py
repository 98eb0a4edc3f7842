"""Applying a slice's effects to the state at its start, all keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kinds.base import StateSpec
from timelapse.kinds.effects import ADD, DEL, DOWN, KEEP, SET, UP
from timelapse.model import decimals
from timelapse.model.types import INT, TIME, DecimalType
from timelapse.tables.loops import loops
from timelapse.tables.rowhash import (
    ZERO,
    HashSum,
    both_lanes,
    differ,
    hash_order,
    one_array,
    seed_of,
    sum_of,
)
from timelapse.tables.table import (
    effects_of,
    form_of,
    hashes_of,
    key_names,
    locate,
    make_effects,
    state_table,
    to_python,
    value_type,
)

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Change:
    """What a slice did to a state, in hashes that add up over slices.

    `moved` sums (key, presence, value) over the keys whose presence or value changed: two passes
    over one slice agree on a state exactly when they agree on this. `content` is the difference
    it makes to the hash of the whole state: summed over all slices it is the final state's hash.
    """

    moved: HashSum
    content: HashSum

    def __add__(self, other: Change) -> Change:
        """The change of both, where they are of different keys."""
        return Change(self.moved + other.moved, self.content + other.content)


NO_CHANGE = Change(ZERO, ZERO)


def empty(spec: StateSpec) -> pa.Table:
    """The state before the first event."""
    return state_table(spec, ())


def apply(spec: StateSpec, start: pa.Table, effects: pa.Table) -> tuple[pa.Table, Change]:
    """The state after `effects`, and the change. Tables as in tables/table.py."""
    place, clash = locate(spec, start, effects)
    hit = place >= 0
    old_values = _old_values(spec, start, place, hit)
    form = form_of(effects)
    if form == "const":
        present = _bools(effects, "present")
        values = one_array(effects.column("v")) if value_type(spec) is not None else None
    elif form == "count":
        present, values = _count(effects, hit, old_values)
    elif form == "list":
        present, values = _list(spec, effects, old_values)
    else:
        present, values = _func(spec, effects, hit, old_values)
    keys = [one_array(effects.column(name)) for name in key_names(spec)]
    change, moved = change_of(spec, keys, hit, old_values, present, values)
    if not moved.any():
        return start, change
    names = ["h", *key_names(spec)]
    columns = [one_array(effects.column("h")), *keys]
    if values is not None:
        names.append("v")
        columns.append(values)
    return _replaced(start, dict(zip(names, columns, strict=True)), place, present, clash=clash), change


def net(spec: StateSpec, start: pa.Table, effects: pa.Table) -> tuple[pa.Table, Change]:
    """Those const effects that leave a key as it was not at the start, and the change."""
    place, _ = locate(spec, start, effects)
    hit = place >= 0
    values = one_array(effects.column("v")) if value_type(spec) is not None else None
    keys = [one_array(effects.column(name)) for name in key_names(spec)]
    old = _old_values(spec, start, place, hit)
    change, moved = change_of(spec, keys, hit, old, _bools(effects, "present"), values)
    return (effects if moved.all() else effects.filter(pa.array(moved)).combine_chunks()), change


def _replaced(
    start: pa.Table, fresh: dict[str, pa.Array], place: npt.NDArray[np.int64], present: Bools, *, clash: bool
) -> pa.Table:
    """The start state with rows for keys that are present afterwards in place of those that `place` names."""
    have, want = hashes_of(start), np.asarray(fresh["h"])
    if clash:  # of keys with one hash the order is that of the rows; anything does that is always the same
        kept = np.ones(len(have), np.bool_)
        kept[place[place >= 0]] = False
        index = np.concatenate([np.flatnonzero(kept), np.flatnonzero(present) + len(have)])
        index = index[hash_order(np.concatenate([have, want])[index])]
    else:
        index = loops().merged(have, want, place, present)
    columns = [
        _gathered(one_array(start.column(f.name)), fresh[f.name].cast(f.type), index) for f in start.schema
    ]
    return pa.table(columns, schema=start.schema)


def _gathered(old: pa.Array, new: pa.Array, index: npt.NDArray[np.int64]) -> pa.Array:
    kind = old.type
    if pa.types.is_integer(kind) and kind.bit_width == 64 and not new.null_count and not old.null_count:
        words = loops().gather(np.asarray(old).view(np.int64), np.asarray(new).view(np.int64), index)
        return pa.array(words.view(kind.to_pandas_dtype()))
    return pa.concat_arrays([old, new]).take(pa.array(index))


def change_of(
    spec: StateSpec, keys: list[pa.Array], old_present: Bools, old_values: pa.Array | None,
    present: Bools, values: pa.Array | None,
) -> tuple[Change, Bools]:  # fmt: skip
    """The change from old to new, and which rows changed. Values under absent rows are ignored."""
    moved = old_present != present
    if values is not None and old_values is not None:
        both = old_present & present
        if both.any():
            moved |= both & differ(values, old_values)
        values = _null_where(values, ~present)
    if not moved.any():
        return NO_CHANGE, moved
    # Only rows that changed are hashed: a slice touches many keys that end where they began.
    now, was, kept = present, old_present, values
    if not moved.all():
        index = pa.array(np.flatnonzero(moved))
        now, was = present[moved], old_present[moved]
        keys = [column.take(index) for column in keys]
        kept = None if values is None else values.take(index)
        old_values = None if old_values is None else old_values.take(index)
    seed = seed_of(f"state:{spec.name}")
    own = both_lanes(keys, len(now), seed)
    after = both_lanes([pa.array(now), *([] if kept is None else [kept])], len(now), seed, own)
    # What was there before is hashed for the rows that were: in a first slice there are none.
    kept = None if old_values is None else old_values.filter(pa.array(was))
    own = own[0][was], own[1][was]
    here = np.ones(len(own[0]), np.bool_)
    before = both_lanes([pa.array(here), *([] if kept is None else [kept])], len(here), seed, own)
    added, gone, removed = sum_of(after, now), sum_of(after, ~now), sum_of(before, here)
    content = HashSum(
        (added.low - removed.low) % 2**64, (added.high - removed.high) % 2**64, added.rows - removed.rows
    )
    return Change(added + gone, content), moved


def changes_table(
    spec: StateSpec, before: dict[Any, Any], after: dict[Any, Any], absent: Any
) -> tuple[pa.Table, Change]:
    """What happened to the keys of `before` (key -> value at the start, or `absent`) as const effects.

    `after` is the state at the end. Keys that did not change in the end are left out.
    """
    keys = list(before)
    now = [after.get(k, absent) for k in keys]
    table = make_effects(
        spec, "const", keys,
        {
            "present": [v is not absent for v in now],
            "v": [None if v is absent else v for v in now],
            "a_present": [v is not absent for v in before.values()],
            "a_value": [None if v is absent else v for v in before.values()],
        },
    )  # fmt: skip
    has_value = value_type(spec) is not None
    columns = [one_array(table.column(n)) for n in key_names(spec)]
    change, moved = change_of(
        spec, columns,
        _bools(table, "a_present"), one_array(table.column("a_value")) if has_value else None,
        _bools(table, "present"), one_array(table.column("v")) if has_value else None,
    )  # fmt: skip
    wanted = ["h", *key_names(spec), "present", *(["v"] if has_value else [])]
    return table.select(wanted).filter(pa.array(moved)), change


def changes_of_empty(
    spec: StateSpec, keys: Sequence[pa.Array], rows: int, values: Sequence[Any]
) -> tuple[pa.Table, Change]:
    """The same where the state was empty before, and nothing has to be compared. `keys`: their parts as columns."""
    table = effects_of(spec, "const", keys, rows, {"present": np.ones(rows, np.bool_), "v": values})
    columns = [one_array(table.column(n)) for n in key_names(spec)]
    v = None if value_type(spec) is None else one_array(table.column("v"))
    return table, change_of(spec, columns, np.zeros(rows, np.bool_), None, np.ones(rows, np.bool_), v)[0]


def _bools(table: pa.Table, name: str) -> Bools:
    return np.asarray(one_array(table.column(name)), dtype=np.bool_)


def _old_values(
    spec: StateSpec, start: pa.Table, place: npt.NDArray[np.int64], hit: Bools
) -> pa.Array | None:
    """The values at the start for each effect's key; null where the key is absent."""
    if value_type(spec) is None:
        return None
    return one_array(start.column("v")).take(pa.array(place, mask=~hit))


def _null_where(values: pa.Array, mask: Bools) -> pa.Array:
    if not mask.any():
        return values
    index = pa.array(np.arange(len(values)), mask=mask)
    return values.take(index)


def _count(effects: pa.Table, hit: Bools, old: pa.Array | None) -> tuple[Bools, pa.Array]:
    n = np.asarray(one_array(effects.column("n")), dtype=np.int64)
    was = np.where(hit, np.asarray(pc.fill_null(old, 0)), 0).astype(np.int64)
    with np.errstate(over="ignore"):
        total = np.where(_bools(effects, "reset"), n, was + n)
    return total != 0, pa.array(total)


def _list(spec: StateSpec, effects: pa.Table, old: pa.Array | None) -> tuple[Bools, pa.Array]:
    """The list form: what was there, unless it was reset, joined with what the slice made of nothing."""
    assert spec.value is not None
    more = to_python(effects.column("v"), spec.value)
    was = to_python(old, spec.value) if old is not None else [None] * len(more)
    found = [
        new if reset or not before else spec.kind.join(spec, before, new)
        for reset, before, new in zip(_bools(effects, "reset"), was, more, strict=True)
    ]
    return np.array([bool(v) for v in found], np.bool_), pa.array(found, spec.value.arrow)


def _func(spec: StateSpec, effects: pa.Table, hit: Bools, old: pa.Array | None) -> tuple[Bools, pa.Array]:
    """The func form: a table of candidate values and, per row, which of them is the result."""
    rows = effects.num_rows
    op = np.asarray(one_array(effects.column("p_op")), dtype=np.int8)
    a_value = one_array(effects.column("a_value"))
    p_value = one_array(effects.column("p_value"))
    index = np.arange(rows, dtype=np.int64)
    use_old = hit & (op == KEEP)
    use_p = hit & (op == SET)
    use_sum = hit & (op == ADD)
    for step in (UP, DOWN):
        here = hit & (op == step)
        if here.any():
            wins = _beats(spec, p_value, old, step) & here
            use_p |= wins
            use_old |= here & ~wins
    pool = [old, a_value, p_value]
    choice = np.where(use_old, index, np.where(use_p, index + 2 * rows, index + rows))
    if use_sum.any():
        was, more = _ints(spec, old), _ints(spec, p_value)
        with np.errstate(over="ignore"):
            pool.append(_column(was + more, p_value.type))
        choice = np.where(use_sum, index + 3 * rows, choice)
    present = np.where(hit, op != DEL, _bools(effects, "a_present"))
    return present, pa.concat_arrays(pool).take(pa.array(choice))


def _ints(spec: StateSpec, values: pa.Array) -> npt.NDArray[np.int64]:
    """Values that are added up, as whole numbers; what stands for a null does not matter."""
    if isinstance(spec.value, DecimalType):
        return decimals.to_words(values)
    if spec.value not in (INT, TIME):
        raise TypeError(f"{spec.name} does not hold integers")
    return np.asarray(pc.fill_null(values.cast(pa.int64()), 0)).astype(np.int64)


def _column(words: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    return decimals.to_column(words, kind) if decimals.is_column(kind) else pa.array(words).cast(kind)


def _beats(spec: StateSpec, new: pa.Array, old: pa.Array, step: int) -> Bools:
    """Whether the new value is strictly better. Ties and NaN keep the old one; None never occurs."""
    compare = pc.greater if step == UP else pc.less
    kind = new.type
    if pa.types.is_struct(kind):
        assert spec.value is not None
        pairs = zip(to_python(new, spec.value), to_python(old, spec.value), strict=True)
        better = [a is not None and b is not None and (a > b if step == UP else a < b) for a, b in pairs]
        return np.array(better, np.bool_)
    if pa.types.is_boolean(kind):
        new, old = new.cast(pa.int8()), old.cast(pa.int8())
    return np.asarray(pc.fill_null(compare(new, old), False), dtype=np.bool_)
