"""Distinct: about how many different members a key has, in bounded memory.

| operation | effect on the sketch (empty when missing) |
|---|---|
| `add(k, m)` | -> its union with that of m alone |
| `del x[k]` | -> empty |

Delta: (emptied or not, the sketch of what was added since). Composition: (c, a) then (c', a') is (c', a') if c' else
(c, union of a and a').

A sketch is the `size` smallest hashes of the members and the bound below which all are known (a theta sketch), as
`datasketches` serialises its compact, ordered form. The union of that library gives the same bytes whatever the order and
grouping of what was added, for they follow from the set of hashes alone; a test holds it to that. Its other sketches of
distinct counts (HLL, CPC) do not: their bytes and estimates depend on the order.

A. Dasgupta, K. Lang, L. Rhodes, J. Thaler, A Framework for Estimating Stream Expression Cardinalities (2016).
"""

from __future__ import annotations

import functools
from typing import Any

from timelapse.errors import DefinitionError
from timelapse.kinds.base import ABSENT, UNKEYED, Op, Short, StateOptions, StateSpec, Store
from timelapse.kinds.effects import Delta, Journal
from timelapse.kinds.sketch import MemberSketch
from timelapse.kinds.typevars import K, M
from timelapse.model.types import BYTES, ScalarType, TupleType, ValueType, parse_key

SIZE = 1024
LEAST, MOST = 32, 1 << 20
EMPTY = b""
_KNOWN = 256
"""Sketches whose hashes are kept at hand: most members of a large one change nothing."""
_DEVIATIONS = 2


def _named(kind: ValueType, value: Any) -> int | str:
    """A member as the library takes it: an int, or a str that no other member of its type has."""
    if isinstance(kind, TupleType):
        parts = [str(_named(t, v)) for t, v in zip(kind.items, value, strict=True)]
        return "".join(f"{len(part)}:{part}" for part in parts)
    assert isinstance(kind, ScalarType)
    if kind.name == "str":
        return f"s{value}"  # the library does not count an empty string
    return f"b{value.decode('latin-1')}" if kind.name == "bytes" else int(value)


def _exponent(size: int) -> int:
    return size.bit_length() - 1


@functools.lru_cache(_KNOWN)
def _content(stored: bytes) -> tuple[int, frozenset[int]]:
    """The bound of a sketch, and its hashes."""
    import datasketches as ds

    sketch = ds.compact_theta_sketch.deserialize(stored)
    return sketch.theta64, frozenset(sketch)


def with_member(size: int, kind: ValueType, stored: bytes, member: Any) -> bytes:
    """The sketch with a member more; the same object where that changes nothing."""
    import datasketches as ds

    one = ds.update_theta_sketch(5)
    one.update(_named(kind, member))
    if stored:
        bound, hashes = _content(stored)
        (found,) = one
        if found >= bound or found in hashes:
            return stored
    return _union(size, stored, one)


def _union(size: int, stored: bytes, other: Any) -> bytes:
    import datasketches as ds

    union = ds.theta_union(_exponent(size))
    if stored:
        union.update(ds.compact_theta_sketch.deserialize(stored))
    union.update(other)
    found: bytes = union.get_result(True).serialize()
    return found


def estimate(stored: bytes) -> float:
    """About how many members there are; exact up to `size` of them."""
    if not stored:
        return 0.0
    import datasketches as ds

    return float(ds.compact_theta_sketch.deserialize(stored).get_estimate())


class DistinctDelta(Delta):
    """What was added, perhaps after the sketch was emptied. Columns: reset, v."""

    form = "list"
    __slots__ = ("_check_member", "_kind", "_size", "_sketches")

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        assert spec.inner is not None
        self._kind: ValueType = spec.inner
        self._check_member = spec.inner.checker(f"a member of {spec.name}")
        self._size: int = spec.option("size")
        self._sketches: dict[Any, tuple[bool, bytes]] = {}

    def _e_sketch(self, key: Any, member: Any) -> None:
        checked = self._check_key(key)
        reset, stored = self._sketches.get(checked, (False, EMPTY))
        more = with_member(self._size, self._kind, stored, self._check_member(member))
        self._put(self._sketches, checked, (reset, more))

    def _e_del(self, key: Any) -> None:
        self._put(self._sketches, self._check_key(key), (True, EMPTY))

    def clear(self) -> None:
        self._sketches.clear()

    def columns(self) -> tuple[list[Any], dict[str, list[Any]]]:
        found = list(self._sketches.values())
        return list(self._sketches), {"reset": [r for r, _ in found], "v": [stored for _, stored in found]}


class Distinct(MemberSketch[K, M]):
    """`tl.Distinct[K, M]`: about how many different members were added for a key. `tl.Distinct[M]` has no key.

    Exact up to `tl.state(size=1024)` members, the default; beyond that the standard error is 1 / sqrt(size - 2), 3.1%,
    and a key takes at most 8 bytes * size. `bounds(k)` holds the true number 95 times of 100. M is int, str, bool, bytes,
    tl.Time or a tuple of those. Use `tl.SetOf` where the number has to be exact or members are taken out again.
    """

    columns = "`key`, `value` (the estimate)"
    ops = {
        "getitem": Op(reads=True),
        "get": Op(reads=True),
        "bounds": Op(reads=True),
        "contains": Op(reads=True),
        "add": Op(effect="sketch", value=1),
        "delitem": Op(effect="del"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k, m)`, `del x[k]`; `tl.state(size=1024)` hashes are kept",
        "`x[k]` about how many members, `bounds(k)`",
        "0.0",
        "the members' sketch, perhaps after `del`",
        "always",
    )
    delta = DistinctDelta
    breaks = {}

    __slots__ = ("_kind",)

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        assert spec.inner is not None
        self._kind: ValueType = spec.inner

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if options.default is not ABSENT:
            raise DefinitionError("Distinct takes no default", hint="a missing key reads as 0.0")
        cls._check_options(options)
        size = SIZE if options.size is None else options.size
        if type(size) is not int or not LEAST <= size <= MOST or size & (size - 1):
            raise DefinitionError(
                f"size= is a power of two, {LEAST} to {MOST:,}: the hashes that are kept of a key",
                hint="tl.state(size=4096) has a standard error of 1.6%",
            )
        key, member = cls._split(name, args)
        key_type = None if key is None else parse_key(key)
        return StateSpec(
            name, cls, key_type, BYTES, EMPTY, line, inner=parse_key(member), options=(("size", size),)
        )

    @classmethod
    def shown_values(cls, spec: StateSpec, stored: Any) -> Any:
        import pyarrow as pa

        return pa.array([estimate(v) for v in stored.to_pylist()], pa.float64())

    @classmethod
    def join(cls, spec: StateSpec, before: Any, more: Any) -> Any:
        import datasketches as ds

        return (
            _union(spec.option("size"), before, ds.compact_theta_sketch.deserialize(more)) if more else before
        )

    def __getitem__(self, key: K) -> float:
        """About how many members; 0.0 where there are none."""
        return estimate(self._get(self._check_key(key), EMPTY))

    def get(self, key: K = UNKEYED) -> float:  # type: ignore[assignment]
        """The same, also for a state without a key."""
        return self[key]

    def bounds(self, key: K = UNKEYED) -> tuple[float, float]:  # type: ignore[assignment]
        """Between which numbers the true one lies, 95 times of 100."""
        stored = self._get(self._check_key(key), EMPTY)
        if not stored:
            return 0.0, 0.0
        import datasketches as ds

        sketch = ds.compact_theta_sketch.deserialize(stored)
        return float(sketch.get_lower_bound(_DEVIATIONS)), float(sketch.get_upper_bound(_DEVIATIONS))

    def add(self, key: Any = ABSENT, member: Any = ABSENT, *, at: int | None = None) -> None:
        """Add a member: `add(k, m)`, or `add(m)` where the state has no key. With `at` it takes effect at that time."""
        if member is ABSENT and self._spec.key is None:
            key, member = UNKEYED, key
        checked, wanted = self._check_key(key), self._check_member(member)
        if at is None or not self._later(at, "add", checked, wanted):
            stored = self._get(checked, EMPTY)
            more = with_member(self._size, self._kind, stored, wanted)
            if more is not stored:
                self._put(checked, more)

    def items(self) -> list[tuple[K, float]]:
        """Every key with members, and about how many, in key order."""
        return sorted((k, estimate(stored)) for k, stored in self._items())
