"""The compiled form of the state kinds' operations: Counter and Set, exact, as deltas, or ignored."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Protocol

from timelapse.kernels.native.expressions import arithmetic
from timelapse.kernels.native.values import NONE, Refused, Value
from timelapse.kinds.base import StateSpec
from timelapse.kinds.counter import Counter
from timelapse.kinds.set import Set
from timelapse.model.types import ScalarType
from timelapse.tables.table import key_types

_KIND_OF = {"int": "int", "Time": "int", "bool": "bool", "str": "str", "bytes": "bytes"}


class Writer(Protocol):
    """What the operations need of the code generator."""

    def line(self, text: str) -> None: ...
    def temp(self, kind: str, code: str) -> Value: ...
    def exit_if(self, condition: str) -> None: ...
    def name(self, stem: str) -> str: ...


class StateCode:
    """Generates the operations of one state. `mode`: exact, delta or ignored."""

    def __init__(self, spec: StateSpec, mode: str, out: Writer, index: int) -> None:
        if spec.kind not in (Counter, Set):
            raise Refused(f"the state kind {spec.kind.__name__} ({spec.name})")
        self.spec, self.mode, self._out, self._index = spec, mode, out, index
        self.counter = spec.kind is Counter
        types = key_types(spec)
        self._parts = [_KIND_OF.get(t.name, "") if isinstance(t, ScalarType) else "" for t in types]
        if not all(self._parts):
            raise Refused(f"the key of {spec.name}")
        self.width = max(1, len(types))
        if self.width > 3:
            raise Refused(f"a key of {self.width} parts ({spec.name})")
        self.claims = 0

    # --- keys and rows ----------------------------------------------------------------------------

    def _key(self, key: Value | None) -> str:
        if self.spec.key is None:
            if key is not None:
                raise Refused(f"{self.spec.name} has no key")
            return "0"
        if key is None:
            raise Refused(f"{self.spec.name} used without a key")
        parts = [key] if isinstance(self.spec.key, ScalarType) else list(key.items)
        if isinstance(self.spec.key, ScalarType) == (key.kind == "tuple"):
            raise Refused(f"a key of {self.spec.name} of another shape")
        if [p.kind for p in parts] != self._parts:
            raise Refused(f"a key of {self.spec.name} of another type")
        return ", ".join(f"np.int64({p.code})" for p in parts)

    def _find(self, key: str) -> str:
        row = self._out.name("r")
        i = self._index
        self._out.line(f"{row} = find{self.width}(t{i}, m{i}, {key})")
        return row

    def _claim(self, key: str) -> str:
        self.claims += 1
        row = self._out.name("r")
        i = self._index
        self._out.line(f"{row} = claim{self.width}(t{i}, m{i}, counts, {i}, {key})")
        return row

    @property
    def _place(self) -> int:
        return 1 + self.width

    def _put(self, row: str, value: str, present: str) -> None:
        self._out.line(f"put(t{self._index}, {row}, {self._place}, {value}, {present})")

    # --- reads ------------------------------------------------------------------------------------

    def contains(self, key: Value) -> Value:
        self._readable()
        row = self._find(self._key(key))
        if self.counter:
            return self._out.temp("bool", f"t{self._index}[{row}, {self._place}] != 0")
        return self._out.temp("bool", f"(t{self._index}[{row}, 0] & 2) != 0")

    def get(self, key: Value | None) -> Value:
        if not self.counter:
            raise Refused(f"{self.spec.name} has no value")
        self._readable()
        row = self._find(self._key(key))
        return self._out.temp("int", f"t{self._index}[{row}, {self._place}]")

    def _readable(self) -> None:
        if self.mode != "exact":
            raise Refused(f"a read of {self.spec.name}, which this pass does not know")

    # --- writes -----------------------------------------------------------------------------------

    def set(self, key: Value | None, value: Value) -> None:
        """`x[k] = n`, `del x[k]` (n = 0)."""
        if not self.counter:
            raise Refused(f"{self.spec.name} takes no values")
        if value.kind != "int":
            raise Refused(f"{self.spec.name} is given {value.kind}")
        words = self._key(key)
        if self.mode == "ignored":
            return
        self._put(self._claim(words), value.code, "True" if self.mode == "delta" else f"{value.code} != 0")

    def change(
        self, key: Value | None, op: ast.operator, amount: Callable[[], Value], *, writes: bool = False
    ) -> None:
        """`x[k] += n` and `-=`. `amount` generates n's code; `writes`: which may write states.

        Python reads the old value before it finds n. Where n writes nothing the row is looked up once.
        """
        if not self.counter or not isinstance(op, ast.Add | ast.Sub):
            raise Refused(f"{type(op).__name__} of {self.spec.name}")
        words = self._key(key)
        if self.mode == "delta":
            raise Refused(f"a read of {self.spec.name}, which this pass does not know")
        if self.mode == "ignored":
            self._number(amount())
            return
        row = self._find(words) if writes else self._claim(words)
        old = self._out.temp("int", f"t{self._index}[{row}, {self._place}]")
        total = arithmetic(self._out, op, old, self._number(amount()))
        if writes:
            row = self._claim(words)
        self._put(row, total.code, f"{total.code} != 0")

    def _number(self, value: Value) -> Value:
        if value.kind != "int":
            raise Refused(f"{self.spec.name} counts {value.kind}")
        return value

    def method(self, name: str, args: list[Value], line: int) -> Value:
        """A call of one of the state's methods, as a statement."""
        keyed = self.spec.key is not None
        key = args[0] if keyed and args else None
        rest = args[1:] if keyed else args
        delta = self.mode == "delta"
        if self.counter:
            if name == "add" and not delta and keyed and len(rest) <= 1:
                self.change(key, ast.Add(), lambda: rest[0] if rest else Value("int", "1", const=1))
                return NONE
            if name == "_e_add" and delta:
                # A key-less delta is written with the key () in front.
                n = self._number(args[1] if len(args) > 1 else Value("int", "1", const=1))
                row = self._claim(self._delta_key(args))
                place = f"t{self._index}[{row}, {self._place}]"
                self._put(row, f"{place} + {n.code}", f"t{self._index}[{row}, 0] & 2 != 0")
                return NONE
            if name == "_e_set" and delta:
                n = self._number(args[1] if len(args) > 1 else Value("int", "0", const=0))
                self._put(self._claim(self._delta_key(args)), n.code, "True")
                return NONE
        elif len(args) == 1:
            wanted = {"_e_set": True, "_e_del": False} if delta else {"add": True, "discard": False}
            if name in wanted:
                words = self._key(args[0])
                if self.mode != "ignored":
                    self._out.line(f"mark(t{self._index}, {self._claim(words)}, {wanted[name]})")
                return NONE
        raise Refused(f"{self.spec.name}.{name}()", line)

    def _delta_key(self, args: list[Value]) -> str:
        if not args:
            raise Refused(f"an effect on {self.spec.name} without a key")
        return self._key(args[0]) if self.spec.key is not None else "0"
