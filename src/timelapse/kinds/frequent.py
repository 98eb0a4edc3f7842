"""Frequent: the most frequent members of a key, in bounded memory.

| operation | effect on the counts (none when missing) |
|---|---|
| `add(k, m, n)` | m counted: + n. Else, while there is room: m -> n. Else the member with the least count goes, of several the one that came first, and m -> that count + n |
| `del x[k]` | none |

Who goes depends on what came before, so the counts of two slices do not make those of both: this state runs by key or
slice after slice. No chance is in it. (The sketch of frequent items that `datasketches` has is
not used: stored and read again, its total can be too low.)

A. Metwally, D. Agrawal, A. El Abbadi, Efficient Computation of Frequent and Top-k Elements in Data Streams (2005).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from timelapse.errors import DefinitionError, IntRange, UsageError
from timelapse.ids import INT64_MAX
from timelapse.kinds.base import ABSENT, UNKEYED, Op, Short, StateOptions, StateSpec, Store
from timelapse.kinds.sketch import MemberSketch
from timelapse.kinds.typevars import K, M
from timelapse.model.types import BYTES, INT, ScalarType, ValueType, parse_key

SIZE = 64
MOST = 1 << 16
EMPTY = b""
_PYTHON: dict[str, Any] = {"int": int, "Time": int, "str": str, "bytes": bytes}
_encode = msgspec.msgpack.Encoder().encode


@functools.cache
def _decoder(name: str) -> Callable[[bytes], dict[Any, int]]:
    counts: Any = dict
    return msgspec.msgpack.Decoder(counts[_PYTHON[name], int]).decode


def total(kind: ValueType | None, stored: bytes) -> int:
    """The sum of everything that was added: exact, as counts only go from one member to another."""
    assert isinstance(kind, ScalarType)
    return sum(_decoder(kind.name)(stored).values()) if stored else 0


class Frequent(MemberSketch[K, M]):
    """`tl.Frequent[K, M]`: the most frequent members that were added for a key. `tl.Frequent[M]` has no key.

    `tl.state(size=64)` members are counted at most, the default. A count is at least the true number, and at most
    `total(k)` / size above it; whoever has more than that share of the total is counted. M is int, str, bytes or tl.Time.
    Use `tl.Counter`, which has `top(n)`, where every member may be kept.
    """

    columns = "`key`, `value` (the total)"
    ops = {
        "top": Op(reads=True),
        "count": Op(reads=True),
        "total": Op(reads=True),
        "contains": Op(reads=True),
        "add": Op(effect="count", value=1),
        "delitem": Op(effect="del"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k, m, n)`, `del x[k]`; `tl.state(size=64)` members are counted",
        "`top(k, n)`, `count(k, m)`, `total(k)`",
        "`[]`, 0",
        "which members are counted",
        "never",
    )
    effect_words = {"count": "count of frequent members"}
    breaks = {"count": "which members {} throws out depends on what it holds"}

    __slots__ = ("_decode",)

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        assert isinstance(spec.inner, ScalarType)
        self._decode = _decoder(spec.inner.name)

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if options.default is not ABSENT:
            raise DefinitionError("Frequent takes no default", hint="a member that is not counted reads as 0")
        cls._check_options(options)
        size = SIZE if options.size is None else options.size
        if type(size) is not int or not 1 <= size <= MOST:
            raise DefinitionError(
                f"size= is how many members of a key are counted, 1 to {MOST:,}", hint="tl.state(size=100)"
            )
        key, member = cls._split(name, args)
        key_type, kind = None if key is None else parse_key(key), parse_key(member)
        if not isinstance(kind, ScalarType) or kind.name == "bool":
            raise DefinitionError(
                f"Frequent cannot count {kind.text}",
                hint="int, str, bytes or tl.Time; join the parts of a tuple to a str",
            )
        return StateSpec(name, cls, key_type, BYTES, EMPTY, line, inner=kind, options=(("size", size),))

    @classmethod
    def shown_values(cls, spec: StateSpec, stored: Any) -> Any:
        import pyarrow as pa

        return pa.array([total(spec.inner, v) for v in stored.to_pylist()], pa.int64())

    def _counts(self, key: Any) -> dict[Any, int]:
        stored: bytes = self._get(self._check_key(key), EMPTY)
        return self._decode(stored) if stored else {}

    def add(self, key: Any = ABSENT, member: Any = ABSENT, n: int = 1, *, at: int | None = None) -> None:
        """Count a member n times more: `add(k, m, n)`, or `add(m, n)` where the state has no key. n is 1 or more.

        With `at` it takes effect at that time.
        """
        if self._spec.key is None and key is not UNKEYED:
            key, member, n = UNKEYED, key, n if member is ABSENT else member
        checked, wanted = self._check_key(key), self._check_member(member)
        INT.checker(f"what is added to {self._spec.name}")(n)
        if n < 1:
            raise UsageError(
                f"{n} was added to {self._spec.name}[{checked!r}]", code="TL895",
                hint="a sketch of frequent members only counts up; use tl.Counter to take away",
            )  # fmt: skip
        if at is not None and self._later(at, "add", checked, wanted, n):
            return
        stored: bytes = self._get(checked, EMPTY)
        counts = self._decode(stored) if stored else {}
        if wanted in counts:
            counts[wanted] += n
        elif len(counts) < self._size:
            counts[wanted] = n
        else:
            least = min(counts, key=counts.__getitem__)  # the first of several
            counts[wanted] = counts.pop(least) + n
        found = sum(counts.values())
        if found > INT64_MAX:
            raise IntRange(
                f"the total of {self._spec.name}[{checked!r}] would become {found}, outside int64",
                hint="stored integers are int64; add in a coarser unit",
            )
        self._put(checked, _encode(counts))

    def top(self, key: Any = ABSENT, n: Any = ABSENT) -> list[tuple[M, int]]:
        """The n most frequent members with their counts, largest first, ties in their order: `top(k, n)`, or `top(n)`
        where the state has no key."""
        if n is ABSENT and self._spec.key is None:
            key, n = UNKEYED, key
        return sorted(self._counts(key).items(), key=lambda row: (-row[1], row[0]))[:n]

    def count(self, key: Any = ABSENT, member: Any = ABSENT) -> int:
        """How often a member was added, at most; 0 where it is not counted: `count(k, m)`, or `count(m)`."""
        if member is ABSENT and self._spec.key is None:
            key, member = UNKEYED, key
        return self._counts(key).get(self._check_member(member), 0)

    def total(self, key: K = UNKEYED) -> int:  # type: ignore[assignment]
        """The sum of everything that was added for the key: exact."""
        return sum(self._counts(key).values())

    def items(self) -> list[tuple[K, int]]:
        """Every key with its total, in key order."""
        return sorted((k, total(self._spec.inner, stored)) for k, stored in self._items())
