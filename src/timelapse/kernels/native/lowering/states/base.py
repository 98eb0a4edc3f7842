"""What the compiled forms of all kinds share: which operations there are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.asked import Known
from timelapse.kernels.native.lowering.states.coding import Coding, certain
from timelapse.kernels.native.lowering.states.keys import Keys
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.lowering.steady import Steps
from timelapse.kernels.native.lowering.values import NONE, Value
from timelapse.kernels.native.refused import ReadsAll, Refused
from timelapse.kinds.base import StateSpec
from timelapse.model.types import ValueType

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.states.grouped import Members

_PLAIN: Mapping[str, tuple[str, ...]] = {"set": ("value",), "discard": ()}
"""Methods that are `x[k] = v` and `del x[k]`, of kinds that have them and say nothing else."""


class Pass(Known, Protocol):
    """What the operations ask of the pass, also of its other states."""

    def hidden(self, spec: StateSpec) -> StateCode: ...
    def members_of(self, spec: StateSpec) -> StateCode: ...
    def heads_of(self, spec: StateSpec) -> StateCode: ...


class StateCode:
    """Writes the operations of one state."""

    parameters: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Methods, with the names of their parameters after the key."""
    compiled: ClassVar[str] = "yes"
    """What of it compiles, for docs/kinds.md."""
    ranks: bool = False
    """Whether `top(n)` is compiled where `items()` is."""
    lists: bool = False
    """Whether `items()` is compiled in handlers of ticks: `listing`, `listed`."""
    steps: Steps | None = None
    """What the pass adds to it so far, of kinds that are told how much that is (steady.py)."""
    under: Members | None = None
    """What stands under its keys, of kinds that count and list that."""

    def __init__(self, rows: Rows, own: Pass) -> None:
        self.rows, self._out, self._pass = rows, rows.out, own
        self.spec, self.mode, self.layout, self.views = rows.spec, rows.mode, rows.layout, rows.views
        self.keys = Keys(rows.spec, rows.out, own)
        self.coding = Coding(rows.spec, rows.out, own)

    @property
    def attribute(self) -> bool:
        """Whether it is used as a plain attribute."""
        return self.spec.key is None and self.spec.kind.attribute_style

    # --- operations: subclasses say which there are -----------------------------------------------

    def contains(self, key: Value) -> Value:
        """`k in x`."""
        raise Refused(f"`in` of {self.spec.name}")

    def get(self, key: Value | None) -> Value:
        """`x[k]`, or `x` without a key."""
        raise Refused(f"a value of {self.spec.name}")

    def set(self, key: Value | None, value: Value) -> None:
        """`x[k] = v`."""
        raise Refused(f"an assignment to {self.spec.name}")

    def delete(self, key: Value | None) -> None:
        """`del x[k]`."""
        raise Refused(f"`del` of {self.spec.name}")

    def change(
        self, key: Value | None, op: ast.operator, amount: Callable[[], Value], *, writes: bool = False
    ) -> None:
        """`x[k] += n`. `amount` writes n's code; `writes`: which may write states.

        Python reads the old value before it finds n.
        """
        raise Refused(f"{type(op).__name__} of {self.spec.name}")

    def method(
        self, name: str, args: Sequence[Value], line: int, keywords: Mapping[str, Value] | None = None
    ) -> Value:
        """A call of one of the state's methods."""
        if self.mode == "delta":
            if not args:
                raise Refused(f"an effect on {self.spec.name} without a key", line)
            # A state without a key is written with the key () in front.
            key = None if self.spec.key is None else args[0]
            self._effect(name, key, list(args[1:]))
            return NONE
        plain = _PLAIN.get(name) if name in self.spec.kind.ops else None
        names = self.parameters.get(name, plain)
        if names is None:
            if name in ("items", "top"):
                raise ReadsAll(f"{self.spec.name}.{name}(), a read of every key", line)
            raise Refused(f"{self.spec.name}.{name}()", line)
        order = (*(["key"] if self.spec.key is not None else []), *names)
        given = dict(zip(order, args))
        if len(args) > len(order) or set(keywords or ()) - set(order) or set(keywords or ()) & set(given):
            raise Refused(f"the arguments of {self.spec.name}.{name}()", line)
        given |= keywords or {}
        key = given.pop("key", None)
        if name in self.parameters:
            return self._method(name, key, given)
        if name == "set":
            self.set(key, one(given.get("value"), f"{self.spec.name}.set()"))
        else:
            self.delete(key)
        return NONE

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        raise Refused(f"{self.spec.name}.{name}()")

    @property
    def listed_key(self) -> ValueType | None:
        """The type of the keys that `items()` gives."""
        return self.spec.key

    @property
    def listed_words(self) -> int:
        """How many words it lists with each key."""
        return self.layout.size

    def listing(self, first: str) -> str:
        """Code that lists every key with its value from a place on, and gives how many (memory/listing.py)."""
        layout = self.layout
        given = f"N{layout.present}, N{layout.width}, N{layout.place}, N{layout.size}"
        return f"list_present(listed, {first}, {self.rows.table}, {given})"

    def listed(self, key: list[str], value: list[str]) -> Value:
        """What `items()` gives, from the words of a key and its value."""
        assert self.listed_key is not None
        assert self.layout.stored is not None
        pair = self.coding.value(key, self.listed_key), self.coding.value(value, self.layout.stored)
        return Value("tuple", items=pair)

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        raise Refused(f"{self.spec.name}.{effect}()")

    # --- what operations of kinds have in common --------------------------------------------------

    def key(self, key: Value | None) -> Key:
        """The words of a key."""
        return self.keys.of(key)

    def is_there(self, key: Value) -> Value:
        """Whether a key is there, for kinds whose `in` asks for that."""
        words = self.key(key)
        if not self.rows.known():
            return self._out.temp("bool", "False")
        return self._out.temp("bool", self.rows.has(self.rows.find(words)))

    def remove(self, key: Value | None) -> None:
        """Make a key absent if it is there."""
        words = self.key(key)
        if self.mode != "ignored":
            row = self.rows.find(words)
            with self._out.when(self.rows.has(row)):
                self._goes(key, row)
                self.drop(row)

    def _comes(self, key: Value | None, row: str) -> None:
        """Before a row is written: what views see of it."""
        self.rows.stamp(row)

    def _goes(self, key: Value | None, row: str) -> None:
        """Before a key that is there is taken out. Views see that it is not there."""

    def drop(self, row: str) -> None:
        """Make a row's key absent."""
        self.rows.drop(row)

    def _certain(self, value: Value) -> Value:
        return certain(self._out, value)


def one(value: Value | None, what: str) -> Value:
    """An argument that must be there."""
    if value is None:
        raise Refused(f"the arguments of {what}")
    return value
