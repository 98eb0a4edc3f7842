"""MapOf: fields with values, per key.

| operation | (key, field) absent -> | present v -> |
|---|---|---|
| `x[k, f] = c` | c | c |
| `setdefault((k, f), c)` | c | v |
| `del x[k, f]`, `pop((k, f))` | absent | absent |
| `x[k, f] += n` (int) | default + n | v + n |
| `clear(k)` | absent | absent, for every field of k |

Delta and composition are those of Value, per (key, field). `clear(k)` depends on which fields there are: with it,
a state does not scan.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic

from timelapse.kinds.base import ABSENT, Op, Short, StateOptions, StateSpec, needs_default
from timelapse.kinds.grouped import Grouped
from timelapse.kinds.typevars import F, K, V
from timelapse.kinds.value import Value


class MapOf(Grouped, Generic[K, F, V]):
    """`tl.MapOf[K, F, V]`: a map from fields to values per key, read and written as `x[k, f]`.

    A missing field reads as None where V is optional, else as the default that must be declared. `x[k, f]`
    costs one look-up. `fields(k)` gives the pairs (field, value) of a key, in the order of the fields. It, `count(k)` and
    `clear(k)` use an index of everything: a slice that uses them takes over the whole state.
    """

    log_form = "present"
    window_form = "latest"
    under_column = "field"
    columns = "`key`, `field`, `value`: one row per field"
    signs: ClassVar = {
        "getitem": "x[k, f]", "setitem": "x[k, f] = v", "delitem": "del x[k, f]", "contains": "(k, f) in x",
        "iadd": "x[k, f] += n", "isub": "x[k, f] -= n",
    }  # fmt: skip
    unlogged = frozenset({"first"})
    shape = "MapOf[Key, Field, Value]"
    ops = {
        **{n: op for n, op in Value.ops.items() if n != "items"},
        "fields": Op(reads=True),
        "count": Op(reads=True),
        "clear": Op(effect="clear"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    pairs = frozenset(Value.ops) - {"items"}
    given_pairs = pairs
    short = Short(
        "`x[k, f] = v` and all of `Value`, `clear(k)`",
        "`x[k, f]`, `fields(k)`: pairs in order, `count(k)`",
        "as `Value`",
        "as `Value`, for each field",
        "unless a whole key is cleared",
    )

    __slots__ = ()

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        spec = super().declare(name, args, options, line)
        needs_default(spec)
        return spec

    @classmethod
    def composes(cls, spec: StateSpec, effects: frozenset[str]) -> str | None:
        if "clear" in effects:
            return f"what `{spec.name}.clear(k)` removes depends on the fields of the key"
        return Value.composes(spec, effects)

    def __getitem__(self, at: tuple[K, F]) -> V:
        value: V = self._get(self._check_key(at), self._default)
        return value

    def get(self, key: tuple[K, F], default: Any = ABSENT) -> Any:
        """The value of a field; where it is missing `default`, or the declared default."""
        return self._get(self._check_key(key), self._default if default is ABSENT else default)

    def __contains__(self, at: tuple[K, F]) -> bool:
        return self._get(self._check_key(at), ABSENT) is not ABSENT

    def __setitem__(self, at: tuple[K, F], value: V) -> None:
        self._put(self._check_key(at), self._check_value(value))

    def __delitem__(self, at: tuple[K, F]) -> None:
        self._drop(self._check_key(at))

    def set(self, key: tuple[K, F], value: V, *, at: int | None = None) -> None:
        """`x[k, f] = value` with the pair (k, f); with `at` it takes effect at that time."""
        checked, stored = self._check_key(key), self._check_value(value)
        if at is None or not self._later(at, "set", key, stored):
            self._put(checked, stored)

    def discard(self, key: tuple[K, F], *, at: int | None = None) -> None:
        """`del x[k, f]` with the pair (k, f); with `at` it takes effect at that time."""
        checked = self._check_key(key)
        if at is None or not self._later(at, "discard", key):
            self._drop(checked)

    def pop(self, key: tuple[K, F]) -> V:
        """Remove a field; gives what it held, or the default."""
        checked = self._check_key(key)
        value: V = self._get(checked, self._default)
        self._drop(checked)
        return value

    def setdefault(self, key: tuple[K, F], value: V) -> V:
        """Write the value if the field is missing; gives what the field then holds."""
        checked, stored = self._check_key(key), self._check_value(value)
        found: V = self._get(checked, ABSENT)
        if found is not ABSENT:
            return found
        self._put(checked, stored)
        return stored  # type: ignore[no-any-return]

    def fields(self, key: K) -> tuple[tuple[F, V], ...]:
        """The fields of a key with their values, in the order of the fields."""
        found = sorted(self._under(key).items(), key=lambda item: item[0])
        return tuple([(f, self._get(stored, None)) for f, stored in found])

    def count(self, key: K) -> int:
        """How many fields the key has."""
        return self._number(key)

    def clear(self, key: K) -> None:
        """Remove every field of the key."""
        self._clear(key)

    def items(self) -> list[tuple[tuple[K, F], V]]:
        """Every key with every field and its value, in order of both."""
        found = [(self._key_and_member(stored), value) for stored, value in self._items()]
        return sorted(found, key=lambda item: item[0])
