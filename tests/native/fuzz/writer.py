"""Random programs for the compiler: statements, helpers, handlers, states."""

from __future__ import annotations

import random

from tests.native.fuzz.expressions import Expressions
from tests.native.fuzz.vocabulary import ANNOTATION, COMMON, DEFAULT, EVENTS, NEEDS, PRELUDE, Helper, StateVar
from tests.writers.methods import by_method

_KEYS = (None, "int", "int", "int", "str", "bool", "bytes", "pair", "pair", "mixed", "triple", "quad")
_VALUES = ("int", "int", "float", "bool", "str", "bytes", "pair", "mixed", "point", "nested", "int?", "float?",
           "str?", "pair?")  # fmt: skip
_ORDERED = ("int", "int", "float", "str", "bytes", "bool")


class Writer(Expressions):
    """Writes one program. Every choice comes from `rng`, so a seed gives one text."""

    def __init__(self, rng: random.Random, size: int = 4) -> None:
        super().__init__(rng)
        self.size = size
        self.lines: list[str] = []
        self.result: str | None = None
        self.breakable = False

    def program(self) -> str:
        """The source of a module with a program P."""
        rng = self.rng
        self.lines = PRELUDE.splitlines()
        if self.on("helpers"):
            for _ in range(rng.randint(0, 2)):
                self._function(f"f{len(self.functions)}", [], "")
            if self.on("keywords", "defaults"):
                self.functions.append(
                    Helper("clip", "int", [("n", "int"), ("low", "int"), ("high", "int")], 2, True)
                )
        if self.on("closures", "helpers"):
            self.lines += ["def make(k):", "    def inner(n):", "        return n + k", "    return inner", "", "",
                           "shifted = make(3)", "", ""]  # fmt: skip
            self.functions.append(Helper("shifted", "int", [("n", "int")]))
        self.states = [self._state(f"s{i}") for i in range(rng.randint(1, 4))]
        split = rng.randint(0, len(self.states))
        self.params = {f"p{i}": rng.choice([t for t in self.types() if t not in ("point", "nested")])
                       for i in range(rng.randint(0, 3))}  # fmt: skip
        self.lines.append("class Base(tl.Program):")
        body = [f"    {n}: {ANNOTATION[t]} = {self._constant(t)}" for n, t in self.params.items()]
        self.lines += [*body, *(s.declaration for s in self.states[:split]), "    base: int = 1", ""]
        if self.on("super", "methods"):
            self.lines += ["    def more(self, n: int) -> int:", "        return n + self.base", ""]
        self.lines += ["", "class P(Base):", '    """Random."""', ""]
        self.lines += [*(s.declaration for s in self.states[split:]), ""]
        if self.on("super", "methods"):
            self.lines += ["    def more(self, n: int) -> int:", "        return super().more(n) - 2 * n", ""]
            self.functions.append(Helper("self.more", "int", [("n", "int")]))
        self.has_self = True
        if self.on("properties", "helpers"):
            self._property()
        if self.on("static", "helpers"):
            self.lines.append("    @staticmethod")
            self.has_self = False
            self._function("g0", [], "    ", call="self.g0")
            self.has_self = True
        plain = list(self.functions)
        if self.on("methods", "helpers"):
            for number in range(rng.randint(0, 2)):
                self.fields = COMMON
                self.has_event = True
                self._function(f"m{number}", ["self", "e"], "    ", call=f"self.m{number}")
                self.has_event = False
        methods = self.functions[len(plain) :]
        self.functions = plain + [h._replace(arguments=[("e", "event"), *h.arguments]) for h in methods]
        for number in range(rng.randint(1, 3)):
            events = rng.choice((["A"], ["A"], ["A", "B"], ["B"]))
            self._handler(f"h{number}", events)
        return "\n".join(self.lines) + "\n"

    # --- declarations -----------------------------------------------------------------------------

    def _allowed(self, kind: str | None) -> bool:
        return kind is None or NEEDS.get(kind) is None or self.on(NEEDS[kind])

    def _state(self, name: str) -> StateVar:
        rng = self.rng
        kind = rng.choice(["Counter", "Counter", "Set", "Value", "Value", "Max", "Min", "First", "Last"])
        key = rng.choice([k for k in _KEYS if self._allowed(k)])
        if kind == "Counter":
            return StateVar(name, kind, key, "int" if key is None else None)
        if kind == "Set":
            return StateVar(name, kind, key or "int", None)
        values = _VALUES if kind in ("Value", "First", "Last") else _ORDERED
        value = rng.choice([v for v in values if self._allowed(v)])
        default = "" if value.endswith("?") else rng.choice(DEFAULT[value])
        return StateVar(name, kind, key, value, default)

    def _constant(self, kind: str) -> str:
        """A value that needs no names: a parameter's or an argument's default."""
        rng = self.rng
        if kind.endswith("?"):
            return rng.choice(["None", self._constant(kind[:-1])])
        if kind in DEFAULT:
            return rng.choice(
                [*DEFAULT[kind], self._literal(kind)] if kind in ("int", "str", "bytes") else DEFAULT[kind]
            )
        return {"triple": '(1, "a", b"x")', "quad": '(1, 2, True, "a")'}[kind].replace("LIMIT", "3")

    def _function(self, name: str, given: list[str], indent: str, call: str = "") -> None:
        """A helper or method with arguments, early returns and a result."""
        rng = self.rng
        result = rng.choice([t for t in self.types() if t != "pair?"])
        kinds = [
            rng.choice([t for t in self.types() if t != "pair?"])
            for _ in range(rng.randint(0 if given else 1, 3))
        ]
        arguments = [(f"a{i}", kind) for i, kind in enumerate(kinds)]
        defaults = rng.randint(0, len(arguments)) if self.on("defaults") else 0
        by_name = bool(arguments) and self.on("keywords") and rng.random() < 0.3
        shown = []
        for place, (argument, kind) in enumerate(arguments):
            if by_name and place == len(arguments) - 1:
                shown.append("*")
            has = place >= len(arguments) - defaults
            shown.append(f"{argument}: {ANNOTATION[kind]}" + (f" = {self._constant(kind)}" if has else ""))
        self.lines.append(f"{indent}def {name}({', '.join([*given, *shown])}) -> {ANNOTATION[result]}:")
        before = self.locals
        self.locals = dict(arguments)
        self.result, self.writes = result, bool(given) and rng.random() < 0.5
        level = len(indent) // 4 + 1
        for _ in range(rng.randint(0, 2)):
            self._statement(level, 1)
        self._line(level, f"return {self.expr(result, 2)}")
        self.lines += ["", ""] if not indent else [""]
        self.locals, self.result, self.writes = before, None, False
        self.functions.append(Helper(call or name, result, arguments, defaults, by_name))

    def _property(self) -> None:
        kind = self.rng.choice([t for t in self.types() if t != "pair?"])
        self.lines += [
            "    @property",
            f"    def prop(self) -> {ANNOTATION[kind]}:",
            f"        return {self.expr(kind, 1)}",
            "",
        ]
        self.params = {**self.params, "prop": kind}

    def _handler(self, name: str, events: list[str]) -> None:
        self.fields = EVENTS["A"] if events == ["A"] else COMMON
        self.has_event, self.writes, self.result = True, True, ""
        self.locals = {}
        self.lines += [f"    @tl.on({', '.join(events)})", f"    def {name}(self, e):"]
        for _ in range(self.rng.randint(1, self.size)):
            self._statement(2, 2)
        if self.rng.random() < 0.7:
            self._emit(2)
        self.lines.append("")
        self.has_event, self.writes, self.result = False, False, None

    # --- statements -------------------------------------------------------------------------------

    def _line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def _block(self, level: int, depth: int) -> None:
        before = dict(self.locals)
        for _ in range(self.rng.randint(1, 2)):
            self._statement(level, depth)
        self.locals = before

    def _statement(self, level: int, depth: int) -> None:
        rng = self.rng
        makers = [lambda: self._assign(level)] * 3
        if self.writes:
            makers += [lambda: self._write(level)] * 5 + [lambda: self._emit(level)]
            if self.functions:
                makers.append(lambda: self._line(level, self.call(rng.choice(self.functions), 1)))
        if depth > 0:
            makers += [lambda: self._if(level, depth - 1)] * 3
            if self.loops < 2 and self.on("range"):
                makers += [lambda: self._loop(level, depth - 1)] * 2
            if self.on("match"):
                makers.append(lambda: self._match(level, depth - 1))
            if self.on("try"):
                makers.append(lambda: self._try(level))
        if self.result is not None and self.on("return"):
            makers.append(lambda: self._leave(level))
        if self.breakable and self.on("break"):
            makers.append(lambda: self._guarded(level, rng.choice(["break", "continue"])))
        if self.has_self and (self.has_event or self.writes) and self.on("reject"):
            makers.append(lambda: self._reject(level))
        if self.on("raise"):
            makers.append(lambda: self._raise(level))
        if self.on("assert"):
            makers.append(
                lambda: self._line(level, f"assert {self.expr('int', 0)} != 77, {self.expr('int', 0)}")
            )
        rng.choice(makers)()

    def _guarded(self, level: int, text: str) -> None:
        self._line(level, f"if {self.expr('bool', 1)}:")
        self._line(level + 1, text)

    def _leave(self, level: int) -> None:
        self._line(level, f"if {self.expr('bool', 1)}:")
        if self.writes and self.rng.random() < 0.4:
            self._write(level + 1)
        self._line(level + 1, f"return {self.expr(self.result, 1)}" if self.result else "return")

    def _raise(self, level: int) -> None:
        rare = "e.i == 9" if self.has_event else "LIMIT > 3"
        self._line(level, f"if {rare} and {self.expr('bool', 1)}:")
        self._line(level + 1, f"raise ValueError({self.expr('int', 0)})")

    def _reject(self, level: int) -> None:
        reason = self.rng.choice(
            ['"no"', '""', '"é"'] + (["e.s"] if self.has_event and self.on("strings") else [])
        )
        if self.has_event and self.on("reject_record") and self.rng.random() < 0.4:
            reason = self._record()
        self._line(
            level, f"if {self.expr('int', 0)} {self.rng.choice(['==', '>'])} {self.rng.choice('1234')}:"
        )
        self._line(level + 1, f"self.reject({reason})")

    def _assign(self, level: int) -> None:
        rng = self.rng
        kind = rng.choice(self.types())
        known = self.among(self.locals, kind)
        if kind in ("int", "float") and known and self.on("augmented") and rng.random() < 0.5:
            signs = ["+", "-"] + (["*"] if not self.loops and self.on("mul") else [])
            self._line(level, f"{rng.choice(known)} {rng.choice(signs)}= {self.expr(kind, 1)}")
            return
        if kind == "pair" and self.on("unpack"):
            first, second = (rng.choice(self.among(self.locals, "int") or [self.name("n")]) for _ in range(2))
            both = rng.choice([self.expr("pair", 1), f"{self.expr('int', 1)}, {self.expr('int', 1)}"])
            self._line(level, f"{first}, {second} = {both}")
            self.locals |= {first: "int", second: "int"}
            return
        if kind == "nested" and self.on("unpack"):
            names = [self.name("n") for _ in range(3)]
            self._line(level, f"({names[0]}, {names[1]}), {names[2]} = {self.expr('nested', 1)}")
            self.locals |= dict(zip(names, ("int", "int", "float"), strict=True))
            return
        name = rng.choice(known) if known and rng.random() < 0.5 else self.name("v")
        if self.on("several_targets") and rng.random() < 0.3:
            other = self.name("v")
            self._line(level, f"{name} = {other} = {self.expr(kind, 2)}")
            self.locals[other] = kind
        else:
            self._line(level, f"{name} = {self.expr(kind, 2)}")
        self.locals[name] = kind
        if self.on("retype") and kind == "int" and self.on("floats"):
            self._line(level, f"{name} = {self.expr('float', 1)}")
            self.locals[name] = "float"

    def _write(self, level: int) -> None:
        rng = self.rng
        state = rng.choice(self.states)
        x = f"self.{state.name}"
        value = "int" if state.kind == "Counter" else state.value
        key = "" if state.key is None else self.key(state)
        at = f"{x}[{key}]" if key else x
        one = self.expr(value, 1) if value else ""
        if value and state.kind in ("Max", "Min", "First") and value.endswith("?"):
            one = self.expr(value.removesuffix("?"), 1)
        texts = []
        if state.kind == "Counter":
            texts = [f"{at} += {one}", f"{at} += 1", f"{at} -= {one}", f"{at} = {one}"]
            if key:
                texts += [f"{x}.add({key})", f"{x}.add({key}, {one})"]
                if self.on("keywords"):
                    texts.append(f"{x}.add({key}, n={one})")
        elif state.kind == "Set":
            texts = [f"{x}.add({key})"] * 2 + [f"{x}.discard({key})"]
        elif state.kind == "Value":
            texts = [f"{at} = {one}"] * 3
            if value in ("int", "float"):
                texts += [f"{at} += {one}", f"{at} -= {one}"]
            if key and self.on("pop"):
                texts += [f"{x}.pop({key})", f"{x}.setdefault({key}, {one})"]
        else:
            texts = [f"{x}.add({key}, {one})" if key else f"{x}.add({one})"] * 3
        if self.on("delete") and state.kind not in ("Set", "First", "Last"):
            texts.append(f"del {at}")
        self._line(level, rng.choice(texts))

    def _record(self) -> str:
        rng, x = self.rng, self.expr
        if self.on("list_out") and "items" in self.fields and rng.random() < 0.2:
            return "Rows(items=e.items)"
        if self.on("record_optionals", "optionals") and rng.random() < 0.5:
            fields = {"n": x("int", 1), "o": x("int?", 1), "s": x("str?", 1), "x": x("float?", 1)}
            return f"Note({', '.join(f'{n}={v}' for n, v in rng.sample(list(fields.items()), 4))})"
        fields = {"n": x("int", 2), "x": x(rng.choice(["float", "int"]), 1), "on": x("bool", 1), "s": x("str", 1),
                  "raw": x("bytes", 1), "at": x("int", 0)}  # fmt: skip
        split = rng.randint(0, len(fields))
        parts = list(fields.values())[:split] + [f"{n}={v}" for n, v in list(fields.items())[split:]]
        return f"Out({', '.join(parts)})"

    def _emit(self, level: int) -> None:
        if not (self.has_self and self.has_event):
            self._assign(level)
            return
        if self.on("emit_local"):
            name = self.name("r")
            self._line(level, f"{name} = {self._record()}")
            self._line(level, f"self.emit({name})")
        else:
            self._line(level, f"self.emit({self._record()})")

    # --- compound statements ----------------------------------------------------------------------

    def _if(self, level: int, depth: int) -> None:
        rng = self.rng
        found = [n for n, k in self.locals.items() if k == "int?"]
        if found and rng.random() < 0.4:
            name = rng.choice(found)
            self._line(level, f"if {name} is not None:")
            before = dict(self.locals)
            self.locals[name] = "int"
            self._line(level + 1, f"{self.name('v')} = {name} + {self.expr('int', 1)}")
            self.locals = before
            self._block(level + 1, depth)
        else:
            self._line(level, f"if {self.expr('bool', 2)}:")
            self._block(level + 1, depth)
        if rng.random() < 0.2:
            self._line(level, f"elif {self.expr('bool', 1)}:")
            self._block(level + 1, depth)
        if rng.random() < 0.4:
            self._line(level, "else:")
            self._block(level + 1, depth)

    def _loop(self, level: int, depth: int) -> None:
        rng, before = self.rng, dict(self.locals)
        name = self.name("i")
        heads: list[tuple[str, dict[str, str]]] = [
            (f"for {name} in range({self.expr('int', 0)} & 3):", {name: "int"}),
            (f"for {name} in range({rng.choice('0123')}, {self.expr('int', 0)} % 5):", {name: "int"}),
            (
                f"for {name} in range({self.expr('int', 0)} & 7, {rng.choice('012')}, -{rng.choice('123')}):",
                {name: "int"},
            ),
        ]
        if self.on("for_tuple"):
            heads.append((f"for {name} in ({self.expr('int', 1)}, {self.expr('int', 0)}, 2):", {name: "int"}))
        if "items" in self.fields and self.has_event and self.on("for_list"):
            heads += [
                (f"for {name} in e.items:", {name: "int"}),
                (f"for {name} in e.items[1:]:", {name: "int"}),
            ]
            if self.on("strings"):
                heads.append((f"for {name} in e.words:", {name: "str"}))
            if self.on("floats"):
                heads.append((f"for {name} in e.xs:", {name: "float"}))
            if self.on("enumerate"):
                heads.append(
                    (f"for {name}, {name}_v in enumerate(e.items):", {name: "int", f"{name}_v": "int"})
                )
            if self.on("zip", "floats"):
                heads.append(
                    (f"for {name}, {name}_v in zip(e.items, e.xs):", {name: "int", f"{name}_v": "float"})
                )
        counts = self.on("while") and rng.random() < 0.4
        if counts:
            self._line(level, f"{name} = 0")
            self._line(level, f"while {name} < {rng.choice('234')} and {self.expr('bool', 1)}:")
            self._line(level + 1, f"{name} += 1")
            made = {name: "int"}
        else:
            head, made = rng.choice(heads)
            self._line(level, head)
        # In the body nothing assigns the variable that a loop counts with: every loop ends.
        self.locals |= {} if counts or ("int" in made.values() and self.on("augmented")) else made
        for variable, kind in made.items():
            self._line(level + 1, f"{variable}_c = {variable}")
            self.locals[f"{variable}_c"] = kind
        was, self.breakable = self.breakable, True
        self.loops += 1
        self._block(level + 1, depth)
        self.loops -= 1
        self.breakable = was
        self.locals = before
        if self.on("loop_else") and rng.random() < 0.4:
            self._line(level, "else:")
            self._block(level + 1, 0)

    def _match(self, level: int, depth: int) -> None:
        self._line(level, f"match {self.expr('int', 1)}:")
        self._line(level + 1, f"case {self.rng.randint(0, 2)}:")
        self._block(level + 2, depth)
        self._line(level + 1, "case _:")
        self._block(level + 2, 0)

    def _try(self, level: int) -> None:
        name = self.name("v")
        self._line(level, "try:")
        self._line(level + 1, f"{name} = {self.expr('int', 1)} // {self.expr('int', 0)}")
        self._line(level, "except ZeroDivisionError:")
        self._line(level + 1, f"{name} = 0")
        self.locals[name] = "int"


def random_handlers(seed: int, size: int = 4) -> str:
    """The source of a program of random handlers; the same for the same arguments."""
    return by_method(Writer(random.Random(seed), size).program())
