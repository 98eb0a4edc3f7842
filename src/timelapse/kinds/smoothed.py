"""Smoothed and Decayed: averages and counts in which old values weigh less.

| kind | operation | effect |
|---|---|---|
| Smoothed, `alpha=a` | `add(k, v)` | absent -> v; m -> m + a * (v - m) |
| Smoothed, `half_life=h` | `add(k, v)` at t | (s, w) -> (s * d + v, w * d + 1), d = 2 ** -((t - last) / h) |
| Decayed, `half_life=h` | `add(k, n)` at t | s -> s * d + n |
| all | `del x[k]` | absent |

Absent counts as (0, 0). A Smoothed by time reads as s / w; a Decayed as s * d at the time of the read. These are sums of
floats: their order is part of the result, so no slice can add them up without the state before it. They run by key
or slice after slice.

Exponential smoothing: R. G. Brown, Smoothing, Forecasting and Prediction of Discrete Time Series (1963).
"""

from __future__ import annotations

from typing import Any, Generic

from timelapse.errors import DefinitionError
from timelapse.kinds.base import ABSENT, UNKEYED, Op, Short, State, StateOptions, StateSpec
from timelapse.kinds.typevars import K
from timelapse.model.types import FLOAT, INT, TIME, OptionalType, TupleType, ValueType, parse_key

_BY_TIME = TupleType((FLOAT, FLOAT, INT), ("f0", "f1", "f2"))
_COUNT = TupleType((FLOAT, INT), ("f0", "f1"))
_READS = {
    "getitem": Op(reads=True),
    "get": Op(reads=True),
    "contains": Op(reads=True),
    "items": Op(reads=True, all_keys=True, key=None),
}


def _decay(since: int, half_life: int) -> float:
    """What a weight of 1 becomes after so many microseconds."""
    weight: float = 2.0 ** -(since / half_life)
    return weight


def _declared(kind: type[State], args: tuple[Any, ...], options: StateOptions) -> ValueType | None:
    """The key type. Raises DefinitionError for what `tl.state(...)` lacks or has too much."""
    name = kind.__name__
    if len(args) > 1:
        raise DefinitionError(f"{name} is declared as {name}[Key]", hint=f"tl.{name}[int], or tl.{name}")
    kind._check_options(options)
    alpha, half_life = options.alpha, options.half_life
    wanted = (
        "half_life=tl.HOUR" if "alpha" not in kind.allowed else "alpha=0.1) or tl.state(half_life=tl.HOUR"
    )
    if (alpha is None) == (half_life is None):
        raise DefinitionError(f"{name} needs to know how fast it forgets", hint=f"tl.state({wanted})")
    if alpha is not None and not (isinstance(alpha, int | float) and 0 < alpha <= 1):
        raise DefinitionError("alpha= is a weight, above 0 and at most 1", hint="tl.state(alpha=0.1)")
    if half_life is not None and (type(half_life) is not int or half_life < 1):
        raise DefinitionError("half_life= is a number of microseconds", hint="tl.state(half_life=tl.HOUR)")
    return parse_key(args[0]) if args else None


class _Float(State, Generic[K]):
    """What both share: floats are taken, ints become floats."""

    has_value = False
    plain_reads = False
    uses_now = True
    breaks = {"add": "adding float does not compose exactly (it would be re-associated)"}

    __slots__ = ()

    def _pair(self, key: Any, value: Any) -> tuple[Any, float]:
        """Key and value of `add(k, v)`, or of `add(v)` where the state has no key."""
        if value is ABSENT and self._spec.key is None:
            key, value = UNKEYED, key
        return self._check_key(key), FLOAT.checker(f"a value of {self._spec.name}")(value)

    def __contains__(self, key: K) -> bool:
        return self._get(self._check_key(key), ABSENT) is not ABSENT

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key(key))


class Smoothed(_Float[K]):
    """`tl.Smoothed[K] = tl.state(alpha=0.1)`: an exponentially smoothed average, by event; with
    `tl.state(half_life=tl.HOUR)` by time. Without values it reads as the declared default, or None.
    """

    allowed = frozenset({"alpha", "half_life"})
    columns = "`key`, `value`; by time also `at`, the time of the last write"
    ops = {**_READS, "add": Op(effect="add", value=1), "delitem": Op(effect="del")}
    short = Short(
        "`add(k, v)`; `tl.state(alpha=...)` by event or `tl.state(half_life=...)` by time",
        "`x[k]`",
        "the declared default, or None",
        "sums of floats",
        "never",
    )

    __slots__ = ("_alpha", "_half_life")

    def __init__(self, spec: StateSpec, store: Any) -> None:
        super().__init__(spec, store)
        self._alpha: float | None = spec.option("alpha")
        self._half_life: int = spec.option("half_life") or 0

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        key = _declared(cls, args, options)
        default = options.default
        if default is not ABSENT:
            default = OptionalType(FLOAT).checker(f"the default of {name}")(default)
        value: ValueType = FLOAT if options.alpha is not None else _BY_TIME
        return StateSpec(name, cls, key, value, default, line, options=tuple(options.given().items()))

    @classmethod
    def shown(cls, spec: StateSpec, key: Any, under: Any, stored: Any) -> dict[str, Any]:
        import pyarrow.compute as pc

        if spec.option("alpha") is not None:
            return super().shown(spec, key, under, stored)
        sums = stored.combine_chunks()
        found = {"value": pc.divide(sums.field(0), sums.field(1)), "at": sums.field(2).cast(TIME.arrow)}
        return found if key is None else {"key": key, **found}

    def add(self, key: Any = ABSENT, value: Any = ABSENT, *, at: int | None = None) -> None:
        """Take a value in: `add(k, v)`, or `add(v)` where the state has no key. With `at` it takes effect then."""
        checked, v = self._pair(key, value)
        if at is not None and self._later(at, "add", checked, v):
            return
        old = self._get(checked, ABSENT)
        if self._alpha is not None:
            self._put(checked, v if old is ABSENT else old + self._alpha * (v - old))
            return
        now = self._now()
        total, weight, last = (0.0, 0.0, now) if old is ABSENT else old
        d = _decay(now - last, self._half_life)
        self._put(checked, (total * d + v, weight * d + 1.0, now))

    def __getitem__(self, key: K) -> Any:
        return self.get(key)

    def get(self, key: K = UNKEYED, default: Any = ABSENT) -> Any:  # type: ignore[assignment]
        """The average; where there is none `default`, or the declared default. Without a key: `get()`, `get(default)`."""
        key, default = self._or_else(key, default)
        found = self._get(self._check_key(key), ABSENT)
        if found is ABSENT:
            return self._default if default is ABSENT else default
        return found if self._alpha is not None else found[0] / found[1]

    def items(self) -> list[tuple[K, float]]:
        """Every key with an average, in key order."""
        return [(k, self.get(k)) for k in sorted(k for k, _ in self._items())]


class Decayed(_Float[K]):
    """`tl.Decayed[K] = tl.state(half_life=tl.HOUR)`: a count that halves every `half_life`. Without values: 0.0."""

    allowed = frozenset({"half_life"})
    columns = "`key`, `value` as it was at the last write, `at`, the time of that"
    ops = {
        **_READS,
        "add": Op(effect="add", value=1),
        "delitem": Op(effect="del"),
        "top": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k, n)`; `tl.state(half_life=...)`",
        "`x[k]`: what is left now, `top(n)`",
        "0.0",
        "sums of floats",
        "never",
    )

    __slots__ = ("_half_life",)

    def __init__(self, spec: StateSpec, store: Any) -> None:
        super().__init__(spec, store)
        self._half_life: int = spec.option("half_life")

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if options.default is not ABSENT:
            raise DefinitionError("Decayed takes no default", hint="a missing key reads as 0.0")
        key = _declared(cls, args, options)
        return StateSpec(name, cls, key, _COUNT, ABSENT, line, options=tuple(options.given().items()))

    @classmethod
    def shown(cls, spec: StateSpec, key: Any, under: Any, stored: Any) -> dict[str, Any]:
        """The count as it was when it was last written (`at`)."""
        counts = stored.combine_chunks()
        found = {"value": counts.field(0), "at": counts.field(1).cast(TIME.arrow)}
        return found if key is None else {"key": key, **found}

    def add(self, key: Any = ABSENT, n: Any = ABSENT, *, at: int | None = None) -> None:
        """Add n: `add(k, n)`, or `add(n)` where the state has no key. With `at` it takes effect at that time."""
        checked, amount = self._pair(key, n)
        if at is not None and self._later(at, "add", checked, amount):
            return
        now = self._now()
        total, last = self._get(checked, (0.0, now))
        self._put(checked, (total * _decay(now - last, self._half_life) + amount, now))

    def __getitem__(self, key: K) -> float:
        return self.get(key)

    def get(self, key: K = UNKEYED) -> float:  # type: ignore[assignment]
        """What is left of the count at the time of the step."""
        found = self._get(self._check_key(key), ABSENT)
        return 0.0 if found is ABSENT else self._left(found)

    def _left(self, found: tuple[float, int]) -> float:
        return found[0] * _decay(self._now() - found[1], self._half_life)

    def items(self) -> list[tuple[K, float]]:
        """Every key to which something was added, with what is left, in key order."""
        return sorted((k, self._left(found)) for k, found in self._items())

    def top(self, n: int) -> list[tuple[K, float]]:
        """The n largest, largest first; ties in key order."""
        return sorted(self.items(), key=lambda item: (-item[1], item[0]))[:n]
