"""Quantiles: medians and other quantiles of the values of a key, with a bounded relative error.

| operation | effect on (key, bucket of v) |
|---|---|
| `add(k, v)` | its count + 1 |
| `remove(k, v)` | its count - 1 |
| `del x[k]` | every bucket of k -> 0 |

Delta: that of Counter, per bucket. Composition: likewise. `del x[k]` depends on which buckets there are: with it, a state
does not scan.

A bucket holds the floats that begin with the same bits: sign, exponent, and as much of the fraction as the error asks
for. That is exact, the same on every machine, and in the order of the values. Counts per bucket do not depend on the
order of what was added, and can be taken away again; sketches that sample (KLL, REQ) depend on it and on chance, t-digest on
the order.

The idea of buckets whose width is relative to the value is that of HdrHistogram (G. Tene) and of C. Masson, J. E. Rim,
H. K. Lee, DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees (2019).
"""

from __future__ import annotations

import math
import struct
from typing import Any, Generic

from timelapse.errors import DefinitionError, IntRange, NotANumber, UsageError
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kinds.base import ABSENT, Op, Short, StateOptions, StateSpec, Store
from timelapse.kinds.effects import Journal, NetDelta
from timelapse.kinds.grouped import Grouped, joined
from timelapse.kinds.typevars import K
from timelapse.model.types import FLOAT, INT, OptionalType, ValueType, parse_key

ERROR = 0.01
_FRACTION = 52
"""Bits of a float's fraction."""
_FINEST = 20
_INFINITE = 2047


def bits_of(error: float) -> int:
    """How many bits of the fraction a bucket's floats have in common, so that its middle is off by `error` at most."""
    return max(0, math.ceil(-math.log2(2 * error)))


def bucket_of(value: float, bits: int) -> int:
    """The bucket of a value: 0 and above for values from 0 on, below 0 for those below. NaN has none."""
    (word,) = struct.unpack("<q", struct.pack("<d", abs(value)))
    place: int = word >> (_FRACTION - bits)
    return -1 - place if value < 0 else place


def middle_of(bucket: int, bits: int) -> float:
    """The middle of a bucket's values."""
    place = bucket if bucket >= 0 else -1 - bucket
    shift = _FRACTION - bits
    if place == 0:
        return 0.0
    if place >> bits == _INFINITE:
        return math.inf if bucket >= 0 else -math.inf
    low, high = place << shift, ((place + 1) << shift) - 1
    ends = struct.unpack("<2d", struct.pack("<2q", low, high))
    middle: float = ends[0] + (ends[1] - ends[0]) / 2
    return middle if bucket >= 0 else -middle


class QuantilesDelta(NetDelta):
    """A count per bucket."""

    __slots__ = ("_bits",)

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._bits = bits_of(spec.option("error"))

    def _e_more(self, key: Any, value: Any) -> None:
        super()._e_add((key, bucket_of(number(self.spec, key, value), self._bits)), 1)

    def _e_less(self, key: Any, value: Any) -> None:
        super()._e_add((key, bucket_of(number(self.spec, key, value), self._bits)), -1)


def number(spec: StateSpec, key: Any, value: Any) -> float:
    """A value as a float. Raises TypeMismatch, NotANumber."""
    found: float = FLOAT.checker(f"a value of {spec.name}")(value)
    if found != found:
        raise NotANumber(
            f"NaN was added to {spec.name}[{key!r}]",
            hint="Quantiles has no place for NaN; test with math.isnan first",
        )
    return found


class Quantiles(Grouped, Generic[K]):
    """`tl.Quantiles[K]`: quantiles of the values that were added for a key.

    `quantile(k, 0.5)` is the median, off by at most `tl.state(error=0.01)` of it, the default (by more below 2.3e-308). A key takes a row for each bucket that has values: at 1% 64 for every doubling of the value.
    """

    has_value = False
    columns = "`key`, `value` (the middle of a bucket), `count`: one row per bucket"
    shape = "Quantiles[Key]"
    log_form = "net"
    unlogged = frozenset({"clear"})
    allowed = frozenset({"error"})
    ops = {
        "quantile": Op(reads=True),
        "count": Op(reads=True),
        "contains": Op(reads=True),
        "add": Op(effect="more", value=1),
        "remove": Op(effect="less", value=1),
        "delitem": Op(effect="clear"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k, v)`, `remove(k, v)`, `del x[k]`; `tl.state(error=0.01)`",
        "`quantile(k, q)`, `count(k)`",
        "the declared default, or None",
        "counts per bucket of values",
        "unless `del x[k]` is used",
    )
    delta = QuantilesDelta
    breaks = {"clear": "what `del {}[k]` removes depends on the values of the key"}

    __slots__ = ("_bits",)

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        self._bits = bits_of(spec.option("error"))

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if len(args) != 1:
            raise DefinitionError(
                f"it is declared as {cls.shape}", hint=f"for example {name}: tl.Quantiles[int]"
            )
        cls._check_options(options)
        error = ERROR if options.error is None else options.error
        if type(error) is not float or not 0.5**_FINEST <= error <= 0.5:
            raise DefinitionError(
                "error= is the largest relative error, from 1e-6 to 0.5", hint="tl.state(error=0.01)"
            )
        default = options.default
        if default is not ABSENT:
            default = OptionalType(FLOAT).checker(f"the default of {name}")(default)
        outer = parse_key(args[0])
        return StateSpec(
            name, cls, joined(outer, INT), INT, default, line, outer, INT, options=(("error", error),)
        )

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        assert spec.outer is not None
        return [spec.outer]

    @classmethod
    def shown(cls, spec: StateSpec, key: Any, under: Any, stored: Any) -> dict[str, Any]:
        import pyarrow as pa

        bits = bits_of(spec.option("error"))
        middles = [middle_of(n, bits) for n in under.to_pylist()]
        return {"key": key, "value": pa.array(middles, pa.float64()), "count": stored}

    def quantile(self, key: K, q: float) -> Any:
        """The value below which the share q of the values lies, 0 the least and 1 the greatest: that at place
        floor(q * (n - 1)) of the n values in order, up to the error. Without values the declared default, or None."""
        if not isinstance(q, int | float) or not 0 <= q <= 1:
            raise UsageError(
                f"{self._spec.name} was asked for the quantile {q!r}", hint="a share from 0 to 1: 0.5 is the median",
                code="TL896",
            )  # fmt: skip
        counts = [(bucket, self._get(stored, 0)) for bucket, stored in sorted(self._under(key).items())]
        values = sum(n for _, n in counts)
        if values <= 0:
            return self._default
        place = int(q * (values - 1))
        for bucket, n in counts:
            place -= n
            if place < 0:
                return middle_of(bucket, self._bits)
        return middle_of(counts[-1][0], self._bits)

    def count(self, key: K) -> int:
        """How many values there are."""
        return sum(self._get(stored, 0) for stored in self._under(key).values())

    def __contains__(self, key: K) -> bool:
        return bool(self._under(key))

    def add(self, key: K, value: float, *, at: int | None = None) -> None:
        """Add a value; with `at` it takes effect at that time."""
        checked = number(self._spec, key, value)
        if at is None or not self._dated(at, "add", key, checked):
            self._change(key, checked, 1)

    def remove(self, key: K, value: float, *, at: int | None = None) -> None:
        """Take a value out that was added before; with `at` it takes effect at that time."""
        checked = number(self._spec, key, value)
        if at is None or not self._dated(at, "remove", key, checked):
            self._change(key, checked, -1)

    def _dated(self, at: int, method: str, key: K, value: float) -> bool:
        self._check_key((key, 0))
        return self._later(at, method, key, value)

    def _change(self, key: K, value: float, n: int) -> None:
        stored = self._check_key((key, bucket_of(value, self._bits)))
        found = self._get(stored, 0) + n
        if not INT64_MIN <= found <= INT64_MAX:
            raise IntRange(
                f"a count of {self._spec.name}[{key!r}] would become {found}, outside int64",
                hint="stored integers are int64",
            )
        if found == 0:
            self._drop(stored)
        else:
            self._put(stored, found)

    def __delitem__(self, key: K) -> None:
        self._clear(key)

    def items(self) -> list[tuple[K, int]]:
        """Every key with values, and how many, in key order."""
        keys = {self._key_and_member(stored)[0] for stored, _ in self._items()}
        return [(k, self.count(k)) for k in sorted(keys)]
