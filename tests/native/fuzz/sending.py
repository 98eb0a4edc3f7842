"""Random programs whose handlers send, and go over what stands under keys of SetOfs and MapOfs."""

from __future__ import annotations

import random

from tests.native.fuzz.vocabulary import COMMON
from tests.native.fuzz.writer import Writer

_FIELDS = {**COMMON, "j": "int", "on": "bool", "raw": "bytes", "at": "int", "os": "str?", "ox": "float?"}
_TYPES = {"int": "int", "str": "str", "float": "float", "bool": "bool", "bytes": "bytes", "int?": "int | None",
          "str?": "str | None", "float?": "float | None"}  # fmt: skip
_SETS = (("int", "int"), ("int", "int"), ("int", "str"), ("str", "int"), ("pair", "int"), ("int", "mixed"),
         ("bool", "bytes"), ("int", "pair"), ("int", "bool"))  # fmt: skip
_MAPS = (("int", "int", "int"), ("int", "int", "int"), ("int", "str", "float"), ("str", "pair", "int?"), ("pair", "int", "str"),
         ("int", "mixed", "str?"), ("bool", "bytes", "bool"))  # fmt: skip
_DEFAULTS = {"int": "2", "float": "0.5", "str": '"ab"', "bool": "True"}
_SHOWN = {"int": "int", "str": "str", "pair": "tuple[int, int]", "mixed": "tuple[str, bool]", "bool": "bool",
          "bytes": "bytes"}  # fmt: skip


def _declared(name: str, fields: dict[str, str]) -> list[str]:
    shown = [f"    {n}: {'tl.Time' if n == 'at' else _TYPES[k]}" for n, k in fields.items()]
    return [f"class {name}(tl.Event):", *shown, "", ""]


class Sender(Writer):
    """Writes programs in which events of D and E derive from others, and sets by key are read whole."""

    def __init__(self, rng: random.Random, size: int = 4) -> None:
        super().__init__(rng, size)
        self.features -= {"emit_local", "list_out", "top", "recursion", "try", "walrus"}
        self.sets = [(f"z{n}", *rng.choice(_SETS)) for n in range(rng.randint(0, 2))]
        self.maps = [(f"y{n}", *rng.choice(_MAPS)) for n in range(rng.randint(0, 2))]

    def program(self) -> str:
        text = super().program()
        rng = self.rng
        made = "\n".join([*_declared("D", _FIELDS), *_declared("E", COMMON)])
        text = text.replace("class Out(tl.Record):", f"{made}class Out(tl.Record):")
        loop = rng.choice(["", "", "", ", loop=40", ", loop=9", ", loop=3"])
        states = [f"    {n}: tl.SetOf[{_SHOWN[k]}, {_SHOWN[m]}]" for n, k, m in self.sets]
        states += [
            f"    {n}: tl.MapOf[{_SHOWN[k]}, {_SHOWN[f]}, {_TYPES[v]}]"
            + (f" = tl.state(default={_DEFAULTS[v]})" if v in _DEFAULTS else "")
            for n, k, f, v in self.maps
        ]
        return text.replace(
            'class P(Base):\n    """Random."""\n',
            f'class P(Base{loop}):\n    """Random."""\n' + "\n".join(["", *states, ""]),
        )

    def _handler(self, name: str, events: list[str]) -> None:
        rng = self.rng
        chosen = rng.choice(
            (["A"], ["A"], ["A", "B"], ["B"], ["D"], ["D"], ["E"], ["D", "E"], ["B", "D"], ["A", "D"])
        )
        super()._handler(name, chosen)

    def _statement(self, level: int, depth: int) -> None:
        rng = self.rng
        if self.has_event and self.has_self and self.result is not None:
            if rng.random() < 0.25:
                self._send(level)
                return
            if self.sets and self.writes and rng.random() < 0.25:
                self._put(level)
                return
            if self.maps and self.writes and rng.random() < 0.25:
                self._write_field(level)
                return
            if self.maps and depth > 0 and self.loops < 2 and rng.random() < 0.3:
                self._go_over_fields(level, depth - 1)
                return
            if self.sets and depth > 0 and self.loops < 2 and rng.random() < 0.3:
                self._go_over(level, depth - 1)
                return
        super()._statement(level, depth)

    def _send(self, level: int) -> None:
        rng, x = self.rng, self.expr
        event, fields = rng.choice([("D", _FIELDS), ("D", _FIELDS), ("E", COMMON)])
        ends = rng.random() < 0.93
        values = {n: x(k, 1) for n, k in fields.items()}
        values["i"] = "min(e.i, 3) - 1" if ends else x("int", 1)
        split = rng.randint(0, 2)
        given = list(values.items())
        if rng.random() < 0.3:
            rest = given[split:]
            rng.shuffle(rest)
            given = given[:split] + rest
        parts = [v for _, v in given[:split]] + [f"{n}={v}" for n, v in given[split:]]
        test = "e.i > 0" if ends else "e.i == 4"
        more = f" and {x('bool', 1)}" if rng.random() < 0.5 else ""
        self._line(level, f"if {test}{more}:")
        self._line(level + 1, f"self.send({event}({', '.join(parts)}))")

    def _part(self, kind: str) -> str:
        if kind == "int":
            return self.rng.choice([f"({self.expr('int', 1)}) % 4", "e.i", "2"])
        return self.expr(kind, 1)

    def _put(self, level: int) -> None:
        name, key, member = self.rng.choice(self.sets)
        if self.rng.random() < 0.2:
            made = self.name("v")
            self._line(level, f"{made} = self.{name}.count({self._part(key)})")
            self.locals[made] = "int"
        what = self.rng.choice(["add", "add", "add", "add", "discard", "discard", "del"])
        if what == "del":
            self._line(level, f"del self.{name}[{self._part(key)}]")
            return
        self._line(level, f"self.{name}.{what}({self._part(key)}, {self._part(member)})")

    def _write_field(self, level: int) -> None:
        """Something is done to a MapOf."""
        rng = self.rng
        name, key, field, value = rng.choice(self.maps)
        k, f, v = self._part(key), self._part(field), self.expr(value, 1)
        forms = [
            f"self.{name}[{k}, {f}] = {v}", f"self.{name}.set(({k}, {f}), {v})", f"self.{name}.setdefault(({k}, {f}), {v})",
            f"del self.{name}[{k}, {f}]", f"self.{name}.pop(({k}, {f}))", f"self.{name}.clear({k})",
        ]  # fmt: skip
        if value == "int":
            forms += [f"self.{name}[{k}, {f}] += {v}"] * 3
        if rng.random() < 0.3:
            made = self.name("v")
            self._line(level, f"{made} = self.{name}.count({k})")
            self.locals[made] = "int"
        self._line(level, rng.choice(forms))

    def _go_over_fields(self, level: int, depth: int) -> None:
        rng, before = self.rng, dict(self.locals)
        name, key, field, value = rng.choice(self.maps)
        over = f"self.{name}.fields({self._part(key)})"
        f, v = self.name("m"), self.name("m")
        if rng.random() < 0.2:
            made = self.name("v")
            self._line(level, f"{made} = any({f} == {self._part(field)} for {f}, {v} in {over})")
            self.locals[made] = "bool"
            return
        self._line(level, f"for {f}, {v} in {f'reversed({over})' if rng.random() < 0.2 else over}:")
        self.locals |= {f: field, v: value}
        was, self.breakable = self.breakable, True
        self.loops += 1
        if self.writes and rng.random() < 0.6:
            self._write_field(level + 1)
        if self.writes and rng.random() < 0.6:
            self._emit(level + 1)
        self._block(level + 1, depth)
        self.loops -= 1
        self.breakable, self.locals = was, before

    def _go_over(self, level: int, depth: int) -> None:
        rng, before = self.rng, dict(self.locals)
        name, key, member = rng.choice(self.sets)
        over = f"self.{name}[{self._part(key)}]"
        m = self.name("m")
        form = rng.randrange(6)
        if form == 0 and member == "int":
            found = rng.choice(
                [f"sum({m} & 7 for {m} in {over})", f"max(({m} for {m} in {over}), default=-3)"]
            )
            made = self.name("v")
            self._line(level, f"{made} = {found}")
            self.locals[made] = "int"
            return
        if form == 1:
            made = self.name("v")
            self._line(level, f"{made} = any({m} == {self._part(member)} for {m} in {over})")
            self.locals[made] = "bool"
            return
        if form == 2:
            self._line(level, f"for {m}_n, {m} in enumerate({over}):")
            self.locals[f"{m}_n"] = "int"
        else:
            self._line(level, f"for {m} in {f'reversed({over})' if form == 3 else over}:")
        self.locals[m] = member
        was, self.breakable = self.breakable, True
        self.loops += 1
        if self.writes and rng.random() < 0.6:
            what = rng.choice(["add", "add", "discard"])
            at = f"{m} % 4" if key == "int" and member == "int" else self._part(key)
            put = m if rng.random() < 0.5 else self._part(member)
            self._line(level + 1, f"self.{name}.{what}({at}, {put})")
        if self.writes and rng.random() < 0.5:
            self._emit(level + 1)
        self._block(level + 1, depth)
        self.loops -= 1
        self.breakable, self.locals = was, before


def random_senders(seed: int, size: int = 4) -> str:
    """The source of a program of random handlers that send; the same for the same arguments."""
    return Sender(random.Random(seed), size).program()
