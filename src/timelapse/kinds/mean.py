"""Mean: the mean of integers, or of decimals of one scale, kept exactly as their sum and their number.

| operation | effect on (sum, number) |
|---|---|
| `add(k, v)` | sum + v, number + 1 |
| `remove(k, v)` | sum - v, number - 1 |
| `del x[k]` | 0, 0 |

Delta: that of Counter, on the sum and on the number. Composition: likewise.
"""

from __future__ import annotations

from typing import Any, Generic

import timelapse.model.decimals as decimals
from timelapse.errors import DefinitionError, IntRange
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kinds.base import ABSENT, Op, Short, StateOptions, StateSpec, Store
from timelapse.kinds.effects import Journal, NetDelta
from timelapse.kinds.grouped import Grouped, Under, joined
from timelapse.kinds.sum import SCALE, amount_of, amount_type, amounts, declared_amount, units_of
from timelapse.kinds.typevars import K, V
from timelapse.model.types import FLOAT, INT, Check, OptionalType, TupleType, ValueType, parse_key

SUM, NUMBER = 0, 1


def _outside(name: str, key: Any, part: int, total: int) -> IntRange:
    return IntRange(
        f"the {'sum' if part == SUM else 'number'} of {name}[{key!r}] would become {total}, outside int64",
        hint="stored integers are int64; add in a coarser unit",
    )


def _units(spec: StateSpec) -> Check:
    """Checks a value and gives the whole number that is added."""
    what = f"a value of {spec.name}"
    if spec.option(SCALE) is None:
        return INT.checker(what)
    check, units = amount_type(spec).checker(what), units_of(spec, what)
    return lambda value: units(check(value))


class MeanDelta(NetDelta):
    """Two counts per key."""

    __slots__ = ("_check_int",)

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._check_int: Check = _units(spec)

    def _e_more(self, key: Any, value: Any) -> None:
        super()._e_add((key, SUM), self._check_int(value))
        super()._e_add((key, NUMBER), 1)

    def _e_less(self, key: Any, value: Any) -> None:
        super()._e_add((key, SUM), -self._check_int(value))
        super()._e_add((key, NUMBER), -1)

    def _e_del(self, key: Any) -> None:
        super()._e_set((key, SUM), 0)
        super()._e_set((key, NUMBER), 0)


class Mean(Grouped, Generic[K, V]):
    """`tl.Mean[K]`: the mean of the integers added for a key; `tl.Mean[K, V]`: of decimals V.

    `x[k]` is sum / number, the float nearest to the exact quotient. Without values it is the declared default, or None.
    Sum and number are int64; `sum(k)` and `count(k)` read them.
    """

    has_value = False
    shape = "Mean[Key] or Mean[Key, Value]"
    log_form = "net"
    window_form = "net"
    parts = (SUM, NUMBER)
    columns = "`key`, `value` (the mean), `sum`, `count`"
    unlogged = frozenset({"del"})
    ops = {
        "getitem": Op(reads=True),
        "get": Op(reads=True),
        "sum": Op(reads=True),
        "count": Op(reads=True),
        "contains": Op(reads=True),
        "add": Op(effect="more", value=1),
        "remove": Op(effect="less", value=1),
        "delitem": Op(effect="del"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k, v)`, `remove(k, v)`, `del x[k]`",
        "`x[k]`: the float nearest to sum / number, `sum(k)`, `count(k)`",
        "the declared default, or None",
        "sum and number as a `Counter`",
        "always",
    )
    delta = MeanDelta
    breaks = {}

    __slots__ = ("_amount", "_unit")

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        self._amount = amount_of(spec)
        self._unit = 10 ** (spec.option(SCALE) or 0)
        self._check_value = _units(spec)

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if len(args) not in (1, 2):
            raise DefinitionError(f"it is declared as {cls.shape}", hint=f"for example {name}: tl.Mean[int]")
        cls._check_options(options)
        default = options.default
        if default is not ABSENT:
            default = OptionalType(FLOAT).checker(f"the default of {name}")(default)
        outer = parse_key(args[0])
        amount = declared_amount(cls, args[1]) if len(args) == 2 else ()
        return StateSpec(name, cls, joined(outer, INT), INT, default, line, outer, INT, amount)

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        assert spec.outer is not None
        return [spec.outer] if spec.option(SCALE) is None else [spec.outer, amount_type(spec)]

    @classmethod
    def shown(cls, spec: StateSpec, key: Any, under: Any, stored: Any) -> dict[str, Any]:
        """One row per key with values: their mean, sum and number."""
        import pyarrow as pa

        key = key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key
        part = under.to_pylist()
        rows: list[list[int]] = []  # the row of the key, sum, number
        before: Any = None
        keys = key.to_pylist()
        for i, (which, n) in enumerate(zip(part, stored.to_pylist(), strict=True)):
            if not rows or keys[i] != before:
                before = keys[i]
                rows.append([i, 0, 0])
            rows[-1][1 if which == SUM else 2] = n
        rows = [row for row in rows if row[2]]
        unit = 10 ** (spec.option(SCALE) or 0)
        assert {SUM, NUMBER} >= set(part)
        return {
            "key": key.take(pa.array([i for i, _, _ in rows], pa.int64())),
            "value": pa.array([total / (number * unit) for _, total, number in rows], pa.float64()),
            "sum": amounts(spec, pa.array([total for _, total, _ in rows], pa.int64())),
            "count": pa.array([number for _, _, number in rows], pa.int64()),
        }

    @classmethod
    def beyond(cls, spec: StateSpec, key: Any, total: int) -> IntRange:
        *outer, part = key
        return _outside(
            spec.name, tuple(outer) if isinstance(spec.outer, TupleType) else outer[0], part, total
        )

    def __getitem__(self, key: K) -> Any:
        return self.get(key)

    def get(self, key: K, default: Any = ABSENT) -> Any:
        """The mean; where there is none `default`, or the declared default."""
        number = self.count(key)
        if number:
            return self._get(self._check_key((key, SUM)), 0) / (number * self._unit)
        return self._default if default is ABSENT else default

    def sum(self, key: K) -> Any:
        """The sum of the values, of their type."""
        return self._amount(self._get(self._check_key((key, SUM)), 0))

    def count(self, key: K) -> int:
        """How many values there are."""
        return self._get(self._check_key((key, NUMBER)), 0)  # type: ignore[no-any-return]

    def __contains__(self, key: K) -> bool:
        return self.count(key) != 0

    def add(self, key: K, value: Any, *, at: int | None = None) -> None:
        """Add a value; with `at` it takes effect at that time."""
        checked = self._check_value(value)
        if at is None or not self._dated(at, "add", key, checked):
            self._change(key, checked, 1)

    def remove(self, key: K, value: Any, *, at: int | None = None) -> None:
        """Take a value out that was added before; with `at` it takes effect at that time."""
        checked = self._check_value(value)
        if at is None or not self._dated(at, "remove", key, checked):
            self._change(key, -checked, -1)

    def _dated(self, at: int, method: str, key: K, value: int) -> bool:
        self._check_key((key, SUM))
        return self._later(at, method, key, self._amount(value))

    @classmethod
    def shown_stored(cls, spec: StateSpec, key: Any, stored: Any) -> Any:
        places = spec.option(SCALE)
        alone = isinstance(key, Under) or key[-1] != SUM
        return stored if places is None or alone else decimals.shown_units(stored, places)

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key((key, SUM)))
        self._drop(self._check_key((key, NUMBER)))

    def _change(self, key: K, value: int, number: int) -> None:
        for part, n in ((SUM, value), (NUMBER, number)):
            stored = self._check_key((key, part))
            total = self._get(stored, 0) + n
            if not INT64_MIN <= total <= INT64_MAX:
                raise _outside(self._spec.name, key, part, total)
            if total == 0:
                self._drop(stored)
            else:
                self._put(stored, total)

    def items(self) -> list[tuple[K, float]]:
        """Every key with values, and their mean, in key order."""
        keys = {self._key_and_member(stored)[0] for stored, _ in self._items()}
        return [(k, self.get(k)) for k in sorted(keys) if k in self]
