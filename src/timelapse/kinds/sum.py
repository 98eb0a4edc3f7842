"""Sum: amounts that are added up per key; a sum that returns to 0 is gone.

| operation | effect on (value; 0 when missing) |
|---|---|
| `x[k] += a`, `x[k] -= a`, `add(k, a)` | v -> v + a, v -> v - a |
| `x[k] = a`, `set(k, a)` | v -> a |
| `del x[k]`, `discard(k)` | v -> 0 |

Amounts are ints, or decimals of one scale, and are kept as whole numbers of their smallest unit. Delta and
composition: that of Counter, on these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

import timelapse.model.decimals as decimals
from timelapse.errors import DefinitionError, IntRange
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kinds.base import ABSENT, Short, StateOptions, StateSpec, Store
from timelapse.kinds.counter import Counter
from timelapse.kinds.effects import Journal, NetDelta
from timelapse.kinds.typevars import K, V
from timelapse.model.types import INT, DecimalType, ValueType, parse_key, parse_value

SCALE = "scale"
"""The option of a declaration that says how amounts are kept: the scale of decimals; None for ints."""


def amount_type(spec: StateSpec) -> ValueType:
    """The type of the amounts that are added up."""
    places = spec.option(SCALE)
    return INT if places is None else DecimalType.of(places)


def declared_amount(cls: type, annotation: Any) -> tuple[tuple[str, Any], ...]:
    """The option for amounts of a type. Raises DefinitionError for what is not added up exactly."""
    kind = parse_value(annotation)
    if isinstance(kind, DecimalType):
        return ((SCALE, kind.scale),)
    if kind == INT:
        return ()
    raise DefinitionError(
        f"{cls.__name__} cannot add up {kind.text}",
        hint="int, or Annotated[Decimal, tl.scale(2)]: sums of floats depend on their order",
    )


def units_of(spec: StateSpec, what: str) -> Callable[[Any], int]:
    """A function from an amount, of any size, to a whole number of the smallest unit. Raises as the type's check does."""
    places = spec.option(SCALE)
    if places is None:
        return lambda amount: decimals.unscaled(amount, 0, what) if type(amount) is not int else amount
    return lambda amount: decimals.unscaled(amount, places, what)


def amount_of(spec: StateSpec) -> Callable[[int], Any]:
    """A function from what is kept to the amount."""
    places = spec.option(SCALE)
    return (lambda n: n) if places is None else lambda n: decimals.of_int(n, places)


def amounts(spec: StateSpec, units: Any) -> Any:
    """A column of whole numbers of the smallest unit as the amounts that they stand for."""
    import numpy as np

    kind = amount_type(spec)
    return decimals.to_column(np.asarray(units), kind.arrow) if isinstance(kind, DecimalType) else units


class SumDelta(NetDelta):
    """Sums of whole numbers, of amounts that have been converted."""

    __slots__ = ("_units",)

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._units = units_of(spec, f"a value of {spec.name}")

    def _e_add(self, key: Any, n: Any = 1) -> None:
        super()._e_add(key, self._units(n))

    def _e_set(self, key: Any, n: Any = 0) -> None:
        super()._e_set(key, self._units(n))


class Sum(Counter[K], Generic[K, V]):
    """`tl.Sum[K, V]`: amounts that are added up, 0 where nothing was added. V is int or a decimal.

    Without a key (`total: tl.Sum[Money]`) it is one amount: `self.total += e.amount`.
    """

    has_value = True
    plain_reads = False
    one_way = ""
    shows_declared = True
    adds = "decimals"
    short = Short(
        "`x[k] += a`, `x[k] -= a`, `add(k, a)`, `x[k] = a` or `set(k, a)`, `del x[k]` or `discard(k)`",
        "`x[k]`, `get(k)`, `k in x` (not 0), `top(n)`, `items()`",
        "0",
        "v -> v + a, or v -> a",
        "always",
    )
    delta = SumDelta

    __slots__ = ("_amount", "_units")

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        self._amount = amount_of(spec)
        self._units = units_of(spec, f"a value of {spec.name}")
        self._default = self._amount(0)

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        key, value = cls._split(name, args)
        cls._check_options(options)
        if options.default is not ABSENT:
            raise DefinitionError("Sum takes no default", hint="leave it out: what is missing reads as 0")
        return StateSpec(
            name, cls, None if key is None else parse_key(key), INT, 0, line, options=declared_amount(cls, value)
        )  # fmt: skip

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        return [t for t in (spec.key, amount_type(spec)) if t is not None]

    @classmethod
    def shown_values(cls, spec: StateSpec, stored: Any) -> Any:
        return amounts(spec, stored)

    @classmethod
    def shown_stored(cls, spec: StateSpec, key: Any, stored: Any) -> Any:
        places = spec.option(SCALE)
        return stored if places is None else decimals.shown_units(stored, places)

    if TYPE_CHECKING:

        def __iadd__(self, n: Any) -> Sum[K, V]: ...

        def __isub__(self, n: Any) -> Sum[K, V]: ...

    def __getitem__(self, key: K) -> Any:
        return self._amount(self._get(self._check_key(key), 0))

    def __setitem__(self, key: K, value: Any) -> None:
        self._store(self._check_key(key), self._units(value))

    def get(self, key: K, *, at: int | None = None) -> Any:
        """The key's sum; with `at` as it was at that time (microseconds), after everything at it."""
        return self._amount(self._as_of(at)._get(self._check_key(key), 0))

    def set(self, key: K, value: Any, *, at: int | None = None) -> None:
        """`x[key] = value`; with `at` it takes effect at that time."""
        checked, units = self._check_key(key), self._check_value(self._units(value))
        if at is None or not self._later(at, "set", checked, self._amount(units)):
            self._store(checked, units)

    def add(self, key: K, n: Any, *, at: int | None = None) -> None:  # type: ignore[override]
        """Add an amount to the key's; with `at` it takes effect at that time."""
        checked, units = self._check_key(key), self._units(n)
        if at is not None and self._later(at, "add", checked, self._amount(self._check_value(units))):
            return
        self._store(checked, self._get(checked, 0) + units)

    def _store(self, key: Any, value: Any) -> None:
        if not INT64_MIN <= value <= INT64_MAX:
            raise IntRange(
                f"{self._spec.name}[{key!r}] would become {self._amount(value)}, outside int64",
                hint="sums are kept as int64, in units of their smallest digit; add up in a coarser one",
            )
        super()._store(key, value)

    def items(self) -> list[tuple[K, Any]]:
        """Every key with a sum that is not 0, in key order."""
        return [(key, self._amount(n)) for key, n in super().items()]

    def top(self, n: int) -> list[tuple[K, Any]]:
        """The n largest sums, largest first; ties in key order."""
        return [(key, self._amount(units)) for key, units in super().top(n)]

    def _read(self) -> Any:
        return self[()]  # type: ignore[index]

    def _write(self, value: Any) -> None:
        self[()] = value  # type: ignore[index]
