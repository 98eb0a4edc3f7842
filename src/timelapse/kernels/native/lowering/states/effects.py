"""The *func* form of deltas, compiled: what an absent key becomes, and one step for a present one.

The rules are those of `timelapse.kinds.effects.FuncDelta`, written out for each effect. A row's live words are
the value for an absent key, the step's number, the step's value.
"""

from __future__ import annotations

from timelapse.kernels.native.lowering.expressions import fitting
from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import StateCode
from timelapse.kernels.native.lowering.states.coding import literal, ordered
from timelapse.kernels.native.lowering.values import Value
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.effects import ADD, DEL, DOWN, KEEP, SET, UP
from timelapse.model.types import INT, TIME, DecimalType, ValueType


class FuncCode(StateCode):
    """A delta of a kind with one value under a key: written by `_e_<effect>`."""

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        name = effect.removeprefix("_e_")
        words = self.key(key)
        kind = self.layout.stored
        assert kind is not None
        if name == "del" and not args:
            row = self._row(words)
            flags = self.rows.flags(row)
            self._out.assign(flags, f"{flags} & ~{self.layout.present} | {self.layout.touched}")
            self._assign(row, 0, ["0"] * self.layout.size)
            self._step(row, DEL, ["0"] * self.layout.size)
            return
        if len(args) != 1:
            raise Refused(f"{self.spec.name}.{effect}()")
        value = args[0]
        if name == "add":
            if isinstance(kind, DecimalType):
                value = fitting(self._out, self._certain(value), kind.scale, self.spec.name)
            elif kind not in (INT, TIME) or value.kind != "int":
                raise Refused(f"{self.spec.name} adds {value.kind}")
            self._add(self._row(words), value.code, kind)
        elif name in ("set", "first"):
            # Fixed first: the words are used more than once.
            given = [self._out.temp("int", w).code for w in self.coding.words(value, kind)]
            row = self._row(words)
            if name == "set":
                self._become(row, given)
                self._step(row, SET, given)
            else:
                self._first(row, given)
        else:
            self._order(name, words, self._certain(value), kind)

    def _row(self, words: Key) -> str:
        row = self.rows.claim(words)
        self.rows.save(row)
        return row

    @property
    def _op(self) -> int:
        return self.layout.place + self.layout.size

    def _assign(self, row: str, at: int, words: list[str]) -> None:
        for offset, word in enumerate(words):
            self._out.assign(self.rows.word(row, self.layout.place + at + offset), word)

    def _become(self, row: str, words: list[str]) -> None:
        """The absent key becomes present with a value."""
        self._out.assign(self.rows.flags(row), f"{self.layout.present | self.layout.touched}", "|=")
        self._assign(row, 0, words)

    def _step(self, row: str, op: int, words: list[str]) -> None:
        self._out.assign(self.rows.word(row, self._op), f"{op}")
        self._assign(row, self.layout.size + 1, words)

    def _first(self, row: str, given: list[str]) -> None:
        with self._out.when(self.rows.lacks(row)):
            self._become(row, given)
        with self._out.when(f"{self.rows.word(row, self._op)} == {DEL}"):
            self._step(row, SET, given)

    def _add(self, row: str, n: str, kind: ValueType) -> None:
        """Modulo 2^64, as tables keep them."""
        place, out = self.layout.place, self._out
        default = literal(self.coding.constant(self.coding.default, kind)[0])
        a, op, p = (
            self.rows.word(row, place),
            self.rows.word(row, self._op),
            self.rows.word(row, self._op + 1),
        )
        with out.when(self.rows.lacks(row)):
            out.assign(a, default)
        self._become(row, [f"{a} + {n}"])
        with out.when(f"{op} == {DEL}"):
            self._step(row, SET, [f"{default} + {n}"])
        with out.otherwise(f"{op} == {KEEP}"):
            self._step(row, ADD, [n])
        with out.otherwise():
            out.assign(p, n, "+=")

    def _order(self, name: str, words: Key, value: Value, kind: ValueType) -> None:
        """up, down (of `if c > x[k]: x[k] = c`), up_always, down_always (of max, min), top, bottom (of Max, Min)."""
        direction = {"up": (">", UP), "top": (">", UP), "down": ("<", DOWN), "bottom": ("<", DOWN)}
        stem = name.removesuffix("_always")
        if stem not in direction:
            raise Refused(f"{self.spec.name}._e_{name}()")
        ordered(self.spec.name, kind)
        sign, step = direction[stem]
        out, place = self._out, self.layout.place
        word = out.temp("int", self.coding.words(value, kind)[0]).code
        c = self.coding.value([word], kind).code
        row = self._row(words)
        flags, op = self.rows.flags(row), self.rows.word(row, self._op)
        top = stem in ("top", "bottom")
        always = name.endswith("_always")
        default = "" if top else literal(self.coding.constant(self.coding.default, kind)[0])
        base = "" if top else self.coding.value([default], kind).code

        def concrete(at: int, present: str, become: tuple[str, str, str]) -> None:
            """The effect on a known input; `become` says that an absent key is present now."""
            old = self.coding.value([self.rows.word(row, at)], kind).code
            with out.when(present), out.when(f"{c} {sign} {old}"):
                out.assign(self.rows.word(row, at), word)
            with out.otherwise("True" if top else f"{c} {sign} {base}"):
                out.assign(self.rows.word(row, at), word)
                out.assign(*become)
            if always:
                with out.otherwise():
                    out.assign(self.rows.word(row, at), default)
                    out.assign(*become)

        out.assign(flags, f"{self.layout.touched}", "|=")
        concrete(place, self.rows.has(row), (flags, f"{self.layout.present}", "|="))
        at = self._op + 1
        with out.when(f"{op} == {SET} or {op} == {DEL}"):
            concrete(at, f"{op} == {SET}", (op, f"{SET}", "="))
        # NaN beats nothing.
        with out.otherwise(f"{c} == {c}"):
            old = self.coding.value([self.rows.word(row, at)], kind).code
            with out.when(f"{op} == {KEEP} or {c} {sign} {old}"):
                out.assign(self.rows.word(row, at), word)
            out.assign(op, f"{step}")
