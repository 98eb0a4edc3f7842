"""Recent: number, sum, mean, least and largest of the last n values added, per key: a window by number of values.

| operation | effect on the last n values (none when missing) |
|---|---|
| `add(k, v)` | v is the newest; of more than n the oldest goes |
| `del x[k]` | -> none |

Delta: (cleared or not, the last n values added since). Composition: (c, a) then (c', a') is (c', a') if c' else
(c, the last n of a + a'). So a slice knows what it adds without the values before it, and floats too are added up in one order:
each read goes over the values that are kept, oldest first.

An integer, or a decimal in its smallest unit, must be so small that n of it are an int64: sums are int64 then. NaN has no order and
is refused. Of equal values `least` and `largest` give the oldest (it shows with -0.0 and 0.0).
"""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Any, Generic

import timelapse.model.decimals as decimals
from timelapse.errors import DefinitionError, IntRange, NotANumber
from timelapse.ids import INT64_MAX
from timelapse.kinds.base import ABSENT, UNKEYED, Op, Short, State, StateOptions, StateSpec, Store
from timelapse.kinds.effects import Journal
from timelapse.kinds.listof import ListDelta, item_type, newest
from timelapse.kinds.typevars import K, V
from timelapse.model.types import FLOAT, INT, Check, DecimalType, ListType, ValueType, parse_key, parse_value


def limit_of(spec: StateSpec) -> int:
    """The largest integer, or number of smallest units, of which the kept number is an int64."""
    return INT64_MAX // int(spec.option("last"))


def places_of(spec: StateSpec) -> int | None:
    """The scale of its decimals; None: its values are none."""
    kind = item_type(spec)
    return kind.scale if isinstance(kind, DecimalType) else None


def _checked(spec: StateSpec) -> Check:
    """Checks a value and gives it as it is stored."""
    what = f"a value of {spec.name}"
    check, places, limit = item_type(spec).checker(what), places_of(spec), limit_of(spec)

    def number(value: Any) -> Any:
        stored = check(value)
        units = stored if places is None else decimals.unscaled(stored, places, what)
        if not -limit <= units <= limit:
            raise IntRange(
                f"{what} is {stored}, and {spec.option('last')} of that are no int64",
                hint="stored integers are int64, sums of what is kept too; add in a coarser unit, or keep fewer: tl.state(last=...)",
            )
        return stored

    def real(value: Any) -> Any:
        stored = check(value)
        if stored != stored:
            raise NotANumber(
                f"NaN was added to {spec.name}",
                hint="Recent has no place for NaN; test with math.isnan first",
            )
        return stored

    return real if item_type(spec) == FLOAT else number


class RecentDelta(ListDelta):
    """Values added, perhaps after the key was deleted. Columns: reset, v."""

    __slots__ = ()

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._check_item = _checked(spec)


class Recent(State, Generic[K, V]):
    """`tl.Recent[K] = tl.state(last=10)`: number, sum, mean, least and largest of the last 10 integers added for a key;
    `tl.Recent[K, V]`: of V, which is int, float or a decimal. `tl.Recent` has no key.

    `mean(k)` is sum / number, the float nearest to the exact quotient (of floats their sum, oldest first, by their number).
    """

    has_value = False
    plain_reads = False
    allowed = frozenset({"last"})
    columns = "`key`, `count`, `sum`, `mean`, `least`, `largest`"
    effect_words = {"append": "the last values"}
    ops = {
        "count": Op(reads=True),
        "sum": Op(reads=True),
        "mean": Op(reads=True),
        "least": Op(reads=True),
        "largest": Op(reads=True),
        "contains": Op(reads=True),
        "add": Op(effect="append", value=1),
        "delitem": Op(effect="del"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k, v)`, `del x[k]`; `tl.state(last=n)` values are kept",
        "`count(k)`, `sum(k)`, `mean(k)`, `least(k)`, `largest(k)`",
        "0, a sum of 0, else None or the `default` that is given",
        "the last values, perhaps after `del`",
        "always",
    )
    delta = RecentDelta
    breaks = {}

    __slots__ = ("_check_item", "_keep", "_places", "_zero")

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        self._check_item = _checked(spec)
        self._keep: int = spec.option("last")
        self._places = places_of(spec)
        self._zero = _zero(spec)

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if len(args) > 2:
            raise DefinitionError(
                "Recent is declared as Recent[Key] or Recent[Key, Value]", hint="tl.Recent[int]"
            )
        cls._check_options(options)
        if options.default is not ABSENT:
            raise DefinitionError(
                "Recent takes no default",
                hint=f"say at a read what is given without values: {name}.mean(k, 0.0)",
            )
        if type(options.last) is not int or options.last < 1:
            raise DefinitionError(
                "Recent needs to know how many values it keeps, 1 or more", hint=f"{name}: tl.Recent[int] = tl.state(last=10)"
            )  # fmt: skip
        value = parse_value(args[1]) if len(args) == 2 else INT
        if value not in (INT, FLOAT) and not isinstance(value, DecimalType):
            raise DefinitionError(
                f"Recent cannot add up {value.text}", hint="int, float, or Annotated[Decimal, tl.scale(2)]"
            )
        key = parse_key(args[0]) if args else None
        return StateSpec(
            name, cls, key, ListType(value), ABSENT, line, options=tuple(options.given().items())
        )

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        item = item_type(spec)
        return [t for t in (spec.key, None if item == INT else item) if t is not None]

    @classmethod
    def join(cls, spec: StateSpec, before: Any, more: Any) -> Any:
        return newest((*before, *more), spec.option("last"))

    @classmethod
    def most_kept(cls, spec: StateSpec) -> int | None:
        return spec.option("last")  # type: ignore[no-any-return]

    @classmethod
    def shown(cls, spec: StateSpec, key: Any, under: Any, stored: Any) -> dict[str, Any]:
        import pyarrow as pa

        kept = [tuple(values) for values in stored.to_pylist()]
        zero, places, kind = _zero(spec), places_of(spec), item_type(spec).arrow
        columns = {
            "key": key,
            "count": pa.array([len(values) for values in kept], pa.int64()),
            "sum": pa.array([_sum(values, zero) for values in kept], kind),
            "mean": pa.array([_mean(values, zero, places) for values in kept], pa.float64()),
            "least": pa.array([min(values) for values in kept], kind),
            "largest": pa.array([max(values) for values in kept], kind),
        }
        return {name: column for name, column in columns.items() if column is not None}

    def _values(self, key: Any) -> tuple[Any, ...]:
        values: tuple[Any, ...] = self._get(self._check_key(key), ())
        return values

    def _asked(self, key: Any, default: Any) -> tuple[tuple[Any, ...], Any]:
        """The values, and what is given where there are none: `mean(k, 0.0)`, or `mean(0.0)` where the state has no key."""
        key, default = self._or_else(key, default)
        return self._values(key), None if default is ABSENT else default

    def count(self, key: K = UNKEYED) -> int:  # type: ignore[assignment]
        """How many values there are: n at most."""
        return len(self._values(key))

    def sum(self, key: K = UNKEYED) -> Any:  # type: ignore[assignment]
        """The sum of the values, of their type; 0 without values."""
        return _sum(self._values(key), self._zero)

    def mean(self, key: K = UNKEYED, default: Any = ABSENT) -> Any:  # type: ignore[assignment]
        """The mean of the values; without values `default`, or None."""
        values, missing = self._asked(key, default)
        return _mean(values, self._zero, self._places) if values else missing

    def least(self, key: K = UNKEYED, default: Any = ABSENT) -> Any:  # type: ignore[assignment]
        """The least of the values; without values `default`, or None."""
        values, missing = self._asked(key, default)
        return min(values) if values else missing

    def largest(self, key: K = UNKEYED, default: Any = ABSENT) -> Any:  # type: ignore[assignment]
        """The largest of the values; without values `default`, or None."""
        values, missing = self._asked(key, default)
        return max(values) if values else missing

    def __contains__(self, key: K) -> bool:
        return bool(self._values(key))

    def add(self, key: Any = ABSENT, value: Any = ABSENT, *, at: int | None = None) -> None:
        """Add a value: `add(k, v)`, or `add(v)` where the state has no key. With `at` it takes effect then."""
        if value is ABSENT and self._spec.key is None:
            key, value = UNKEYED, key
        checked, item = self._check_key(key), self._check_item(value)
        if at is None or not self._later(at, "add", checked, item):
            self._put(checked, newest((*self._get(checked, ()), item), self._keep))

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key(key))

    def items(self) -> list[tuple[K, float]]:
        """Every key with values, and their mean, in key order."""
        return [
            (key, _mean(values, self._zero, self._places))
            for key, values in sorted(self._items(), key=lambda item: item[0])
        ]


def _zero(spec: StateSpec) -> Any:
    """The sum of no values."""
    places = places_of(spec)
    if places is not None:
        return decimals.of_int(0, places)
    return 0.0 if item_type(spec) == FLOAT else 0


def _sum(values: tuple[Any, ...], zero: Any) -> Any:
    """One after the other, as compiled code does it: Python's own sum of floats keeps what rounding loses from 3.12 on."""
    total, plus = zero, decimals.plus if isinstance(zero, Decimal) else operator.add
    for value in values:
        total = plus(total, value)
    return total


def _mean(values: tuple[Any, ...], zero: Any, places: int | None) -> float:
    total, number = _sum(values, zero), len(values)
    if places is not None:
        total, number = decimals.unscaled(total, places, "a sum"), number * 10**places
    mean: float = total / number
    return mean
