"""Deltas: what a slice does to each key of a state whose value at the slice's start is not known.

An effect is a function from (presence, value) to (presence, value). Those that compose into one
step are kept in four forms:

- *const*: present with a value, or absent, whatever was there (Set, and every exact pass);
- *count*: v -> v + n, or v -> n after a reset (Counter);
- *list*: values appended, or members sketched, perhaps after a reset (kinds that join what two slices did);
- *func*: what an absent key becomes (a concrete result, as absence is a known input), and one
  symbolic step for a present one: KEEP, SET c, DEL, ADD n, UP c, DOWN c (Value and its like).

A delta object stands in for the state in a pass. It is written through `_e_<effect>` and never
read. Integers may leave int64 on the way: they are kept modulo 2^64, which is exact for every log
whose replay does not end in IntRange, and the final pass, which checks each write, finds that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import timelapse.model.decimals as decimals
from timelapse.errors import TypeMismatch
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.types import Check, DecimalType

Form = Literal["const", "count", "func", "list"]

KEEP, SET, DEL, ADD, UP, DOWN = range(6)
"""The steps of the *func* form, as stored (int8)."""


Journal = list[tuple[Any, Any, Any]]
"""Oldest first: (a dict, a key, what stood there or ABSENT), or (what is no dict, a key, what it noted): that takes it back itself."""


def undo(journal: Journal) -> None:
    """Take back everything in the journal, newest first, and empty it."""
    for table, key, old in reversed(journal):
        if not isinstance(table, dict):
            table.take_back(key, old)
        elif old is ABSENT:
            table.pop(key, None)
        else:
            table[key] = old
    journal.clear()


class Delta:
    """Base of the delta objects. `journal` is None where the pass can not reject an event."""

    form: ClassVar[Form]
    __slots__ = ("_check_key", "_check_value", "_default", "_journal", "spec", "told")

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        self.spec = spec
        self._journal = journal
        self.told: Callable[[Any, Any], None] | None = None
        """Called with (stored key, what a row of the state's log says), where such rows are kept."""
        self._default = None if spec.default is ABSENT else spec.default
        no_check: Check = lambda value: value  # noqa: E731
        self._check_key: Check = (lambda key: ()) if spec.key is None else spec.kind.key_check(spec)
        self._check_value: Check = (
            no_check if spec.value is None else spec.value.checker(f"a value of {spec.name}")
        )

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if self._journal is not None:
            self._journal.append((table, key, table.get(key, ABSENT)))
        table[key] = value

    def clear(self) -> None:
        """Forget everything: a new slice begins."""
        raise TypeError("abstract")

    def columns(self) -> tuple[list[Any], dict[str, list[Any]]]:
        """The keys written, and the form's columns by name."""
        raise TypeError("abstract")


class PresenceDelta(Delta):
    """Last write wins on presence. Columns: present."""

    form = "const"
    __slots__ = ("_last",)

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._last: dict[Any, bool] = {}

    def _e_set(self, key: Any) -> None:
        checked = self._check_key(key)
        self._put(self._last, checked, True)
        if self.told is not None:
            self.told(checked, True)

    def _e_del(self, key: Any) -> None:
        checked = self._check_key(key)
        self._put(self._last, checked, False)
        if self.told is not None:
            self.told(checked, ABSENT)

    def clear(self) -> None:
        self._last.clear()

    def columns(self) -> tuple[list[Any], dict[str, list[Any]]]:
        return list(self._last), {"present": list(self._last.values())}


class NetDelta(Delta):
    """Sums, and values after a reset. Columns: reset, n."""

    form = "count"
    __slots__ = ("_after", "_sums")

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._sums: dict[Any, int] = {}
        self._after: dict[Any, int] = {}
        """Keys that were set in this slice, with their value now; they are not in _sums' reach."""

    def _e_add(self, key: Any, n: Any = 1) -> None:
        checked = self._check_key(key)
        if not isinstance(n, int):
            raise TypeMismatch(f"{self.spec.name} adds {type(n).__name__}")
        table = self._after if checked in self._after else self._sums
        if self._journal is None:
            table[checked] = table.get(checked, 0) + n
        else:
            self._put(table, checked, table.get(checked, 0) + n)
        if self.told is not None and n:
            self.told(checked, int(n))

    def _e_set(self, key: Any, n: Any = 0) -> None:
        checked = self._check_key(key)
        self._put(self._after, checked, self._check_value(n))

    def clear(self) -> None:
        self._sums.clear()
        self._after.clear()

    def columns(self) -> tuple[list[Any], dict[str, list[Any]]]:
        sums = {k: n for k, n in self._sums.items() if k not in self._after} if self._after else self._sums
        keys = [*sums, *self._after]
        return keys, {
            "reset": [False] * len(sums) + [True] * len(self._after),
            "n": [*sums.values(), *self._after.values()],
        }


class FuncDelta(Delta):
    """Functions of (presence, value). Columns: a_present, a_value, p_op, p_value."""

    form = "func"
    __slots__ = ("_plus", "_steps")

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._plus: Callable[[Any, Any], Any] = operator.add
        if isinstance(spec.value, DecimalType):
            self._plus = decimals.plus
        self._steps: dict[Any, tuple[Any, int, Any]] = {}

    def clear(self) -> None:
        self._steps.clear()

    def columns(self) -> tuple[list[Any], dict[str, list[Any]]]:
        steps = list(self._steps.values())
        return list(self._steps), {
            "a_present": [a is not ABSENT for a, _, _ in steps],
            "a_value": [None if a is ABSENT else a for a, _, _ in steps],
            "p_op": [op for _, op, _ in steps],
            "p_value": [p for _, _, p in steps],
        }

    def _then(self, key: Any, effect: str, value: Any) -> None:
        absent, op, operand = self._steps.get(key, (ABSENT, KEEP, None))
        absent = self._concrete(absent, effect, value)
        if op in (SET, DEL):
            result = self._concrete(operand if op == SET else ABSENT, effect, value)
            op, operand = (DEL, None) if result is ABSENT else (SET, result)
        else:
            op, operand = self._symbolic(op, operand, effect, value)
        self._put(self._steps, key, (absent, op, operand))
        if self.told is not None:  # only set and del: see analysis/views.py
            self.told(key, ABSENT if effect == "del" else value)

    def _concrete(self, x: Any, effect: str, c: Any) -> Any:
        """The effect on a known input: a value, or ABSENT."""
        if effect == "set":
            return c
        if effect == "del":
            return ABSENT
        if effect == "first":
            return c if x is ABSENT else x
        if effect in ("top", "bottom") and x is ABSENT:
            return c
        base = self._default if x is ABSENT else x
        if effect == "add":
            return self._plus(base, c)
        if effect in ("up", "up_always", "top"):
            if c > base:
                return c
        elif c < base:
            return c
        return base if effect.endswith("_always") else x

    def _symbolic(self, op: int, operand: Any, effect: str, c: Any) -> tuple[int, Any]:
        """The effect after KEEP, ADD, UP or DOWN of a present but unknown value."""
        if effect == "set":
            return SET, c
        if effect == "del":
            return DEL, None
        if effect == "first":
            return op, operand
        step = ADD if effect == "add" else UP if effect in ("up", "up_always", "top") else DOWN
        if c != c:  # NaN beats nothing
            return op, operand
        if op == KEEP:
            return step, c
        if op != step:
            raise TypeMismatch(f"{self.spec.name}: {effect} does not compose with what came before")
        if step == ADD:
            return ADD, self._plus(operand, c)
        if step == UP:
            return UP, c if c > operand else operand
        return DOWN, c if c < operand else operand

    def _write(self, effect: str, key: Any, value: Any) -> None:
        self._then(self._check_key(key), effect, self._check_value(value))

    def _e_set(self, key: Any, value: Any) -> None:
        self._write("set", key, value)

    def _e_del(self, key: Any) -> None:
        self._then(self._check_key(key), "del", None)

    def _e_first(self, key: Any, value: Any) -> None:
        self._write("first", key, value)

    def _e_add(self, key: Any, n: Any) -> None:
        if isinstance(self.spec.value, DecimalType):
            places = self.spec.value.scale
            n = decimals.of_int(decimals.unscaled(n, places, f"a value of {self.spec.name}"), places)
        elif not isinstance(n, int):
            raise TypeMismatch(f"{self.spec.name} adds {type(n).__name__}")
        self._then(self._check_key(key), "add", n)

    def _e_up(self, key: Any, value: Any) -> None:
        self._write("up", key, value)

    def _e_up_always(self, key: Any, value: Any) -> None:
        self._write("up_always", key, value)

    def _e_down(self, key: Any, value: Any) -> None:
        self._write("down", key, value)

    def _e_down_always(self, key: Any, value: Any) -> None:
        self._write("down_always", key, value)

    def _e_top(self, key: Any, value: Any) -> None:
        self._write("top", key, value)

    def _e_bottom(self, key: Any, value: Any) -> None:
        self._write("bottom", key, value)
