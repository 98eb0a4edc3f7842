"""Max and Min: the largest (smallest) value added so far, per key.

| operation | absent -> | present v -> |
|---|---|---|
| `Max.add(k, c)` | c | c if c > v, else v |
| `Min.add(k, c)` | c | c if c < v, else v |
| `del x[k]`, `discard(k)` | absent | absent |

Ties keep the earlier value (it shows with -0.0 and 0.0). The identity is *absent*, never the
default. NaN has no order and is refused. Delta and composition: `timelapse.kinds.effects`.
"""

from __future__ import annotations

from typing import Any

from timelapse.errors import DefinitionError, NotANumber, TypeMismatch
from timelapse.kinds.base import ABSENT, UNKEYED, Op, Short, StateOptions, StateSpec
from timelapse.kinds.typevars import K, V
from timelapse.kinds.value import _READS, ValueLike
from timelapse.model.types import OptionalType, ScalarType


def _ops(effect: str) -> dict[str, Op]:
    return {
        **_READS, "add": Op(effect=effect, value=1), "delitem": Op(effect="del"), "discard": Op(effect="del"),
    }  # fmt: skip


def _short(name: str) -> Short:
    writes, effects = "`add(k, v)`, `del x[k]` or `discard(k)`", f"v -> {name}(v, c), -> absent"
    return Short(writes, "as `Value`", "as `Value`", effects, "always")


class Extremum(ValueLike[K, V]):
    """What Max and Min share."""

    window_form = "best"
    shows_declared = True
    never_none = True
    in_place = "extremes"
    breaks = {}

    __slots__ = ()

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        spec = super().declare(name, args, options, line)
        inner = spec.value.inner if isinstance(spec.value, OptionalType) else spec.value
        if not isinstance(inner, ScalarType):
            text = "" if spec.value is None else spec.value.text
            raise DefinitionError(f"{cls.__name__} cannot order {text}", hint="use int, float, str or bytes")
        return spec

    def add(self, key: Any = ABSENT, value: Any = ABSENT, *, at: int | None = None) -> None:
        """Offer a value for the key: `add(k, v)`, or `add(v)` where the state has no key.

        With `at` it takes effect at that time.
        """
        checked, offered = self._checked(key, value)
        if offered is None:
            raise TypeMismatch(f"None was added to {self._spec.name}", hint="None has no order; skip it")
        if offered != offered:
            raise NotANumber(
                f"NaN was added to {self._spec.name}[{checked!r}]",
                hint=f"{type(self).__name__} has no place for NaN; test with math.isnan first",
            )
        if at is not None and self._later(at, "add", checked, offered):
            return
        found = self._get(checked, ABSENT)
        if found is ABSENT or self._beats(offered, found):
            self._put(checked, offered)

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key(key))

    def discard(self, key: K = UNKEYED, *, at: int | None = None) -> None:  # type: ignore[assignment]
        """`del x[key]`; with `at` it takes effect at that time."""
        checked = self._check_key(key)
        if at is None or not self._later(at, "discard", checked):
            self._drop(checked)

    def _delete(self) -> None:
        self._drop(UNKEYED)

    @staticmethod
    def _beats(new: Any, old: Any) -> bool:
        raise TypeError("abstract")


class Max(Extremum[K, V]):
    """`tl.Max[K, V]`: the largest value added for the key."""

    ops = _ops("top")
    short = _short("max")

    __slots__ = ()

    @staticmethod
    def _beats(new: Any, old: Any) -> bool:
        return bool(new > old)


class Min(Extremum[K, V]):
    """`tl.Min[K, V]`: the smallest value added for the key."""

    ops = _ops("bottom")
    short = _short("min")

    __slots__ = ()

    @staticmethod
    def _beats(new: Any, old: Any) -> bool:
        return bool(new < old)
