"""Value: the last value written, per key.

| operation | absent -> | present v -> |
|---|---|---|
| `x[k] = c`, `set(k, c)` | c | c |
| `setdefault(k, c)` | c | v |
| `del x[k]`, `discard(k)`, `pop(k)` | absent | absent |
| `x[k] += n` (int, decimal) | default + n | v + n |
| idiom `if c > x[k]: x[k] = c` | c if c > default, else absent | c if c > v, else v |

Delta and composition: `timelapse.kinds.effects`, one function of (presence, value) per key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from timelapse.kinds.base import ABSENT, UNKEYED, Op, Short, State, StateOptions, StateSpec, needs_default
from timelapse.kinds.typevars import K, V
from timelapse.model.types import INT, TIME, DecimalType

_READS = {
    "getitem": Op(reads=True),
    "get": Op(reads=True),
    "contains": Op(reads=True),
    "items": Op(reads=True, all_keys=True, key=None),
}


class ValueLike(State, Generic[K, V]):
    """What kinds with one value under a key share: reads."""

    __slots__ = ()

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        spec = super().declare(name, args, options, line)
        needs_default(spec)
        return spec

    def __getitem__(self, key: K) -> V:
        value: V = self._get(self._check_key(key), self._default)
        return value

    def get(self, key: K = UNKEYED, default: Any = ABSENT, *, at: int | None = None) -> Any:  # type: ignore[assignment]
        """The value; where the key is missing `default`, or the declared default. Without a key: `get()`, `get(default)`.

        With `at` as it was at that time (microseconds), after everything at it.
        """
        key, default = self._or_else(key, default)
        missing = self._default if default is ABSENT else default
        return self._as_of(at)._get(self._check_key(key), missing)

    def __contains__(self, key: K) -> bool:
        return self._get(self._check_key(key), ABSENT) is not ABSENT

    def _checked(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Key and value of `add(k, v)`, or of `add(v)` where the state has no key."""
        if value is ABSENT and self._spec.key is None:
            key, value = UNKEYED, key
        return self._check_key(key), self._check_value(value)

    def items(self) -> list[tuple[K, V]]:
        """Every present key with its value, in key order."""
        return sorted(self._items(), key=lambda item: item[0])


class Value(ValueLike[K, V]):
    """`tl.Value[K, V]`: a value per key. `tl.Value[V]`: one value, used as a plain attribute.

    A missing key reads as None where V is optional, else as the default that must be declared:
    `tl.state(default=0)`.
    """

    attribute_style = True
    one_way = "set"
    rewritten = frozenset({"add", "up", "up_always", "down", "down_always", "first"})
    shows_declared = True
    log_form = "present"
    window_form = "latest"
    unlogged = frozenset({"first"})
    ops = {
        **_READS,
        "setitem": Op(effect="set", value=1),
        "delitem": Op(effect="del"),
        "set": Op(effect="set", value=1),
        "discard": Op(effect="del"),
        "pop": Op(effect="del", reads=True),
        "setdefault": Op(effect="first", reads=True, value=1),
        "iadd": Op(effect="add", value=1),
        "isub": Op(effect="add", value=1),
    }
    short = Short(
        "`x[k] = v` or `set(k, v)`, `x[k] += n`, `setdefault(k, v)`, `pop(k)`, `del x[k]` or `discard(k)`",
        "`x[k]`, `get(k, default)`, `k in x`, `items()`",
        "None where V is optional, else the default, which must be declared: `tl.state(default=0)`",
        "-> c, -> absent, v -> v + n, v -> max(v, c), v -> min(v, c), the first write",
        "unless sums, maxima and minima are mixed on one state, or floats are added",
    )

    __slots__ = ()

    @classmethod
    def composes(cls, spec: StateSpec, effects: frozenset[str]) -> str | None:
        folding = sorted(effects & {"add", "up", "up_always", "down", "down_always"})
        if "add" in folding and spec.value not in (INT, TIME) and not isinstance(spec.value, DecimalType):
            text = spec.value.text if spec.value is not None else ""
            return f"adding {text} does not compose exactly (it would be re-associated)"
        families = {name.removesuffix("_always") for name in folding}
        if len(families) > 1:
            return f"{' and '.join(sorted(families))} on one state do not compose into one step"
        return None

    if TYPE_CHECKING:

        def __iadd__(self, n: Any) -> Value[K, V]: ...

        def __isub__(self, n: Any) -> Value[K, V]: ...

    def __setitem__(self, key: K, value: V) -> None:
        self._put(self._check_key(key), self._check_value(value))

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key(key))

    def set(self, key: K, value: V, *, at: int | None = None) -> None:
        """`x[key] = value`; with `at` it takes effect at that time."""
        checked, stored = self._check_key(key), self._check_value(value)
        if at is None or not self._later(at, "set", checked, stored):
            self._put(checked, stored)

    def discard(self, key: K, *, at: int | None = None) -> None:
        """`del x[key]`; with `at` it takes effect at that time."""
        checked = self._check_key(key)
        if at is None or not self._later(at, "discard", checked):
            self._drop(checked)

    def pop(self, key: K) -> V:
        """Remove the key; gives what it held, or the default."""
        checked = self._check_key(key)
        value: V = self._get(checked, self._default)
        self._drop(checked)
        return value

    def setdefault(self, key: K, value: V) -> V:
        """Write the value if the key is missing; gives what the key then holds."""
        checked = self._check_key(key)
        stored = self._check_value(value)
        found: V = self._get(checked, ABSENT)
        if found is ABSENT:
            self._put(checked, stored)
            return stored  # type: ignore[no-any-return]
        return found

    def _read(self) -> V:
        value: V = self._get(UNKEYED, self._default)
        return value

    def _write(self, value: V) -> None:
        self._put(UNKEYED, self._check_value(value))

    def _delete(self) -> None:
        self._drop(UNKEYED)
