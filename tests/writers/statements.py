"""The writer behind `tests.writers.sources`: one random program, statement by statement."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

from tests.writers.expressions import Expressions
from tests.writers.phrases import FURTHER, KINDS


class Writer(Expressions):
    """Writes one program. Every choice comes from `rng`, so a seed gives one text."""

    def __init__(self, rng: random.Random, size: int, further: bool = False) -> None:
        kinds = [*KINDS, *FURTHER] if further else list(KINDS)
        super().__init__(rng, {f"s{i}": rng.choice(kinds) for i in range(rng.randint(2, 4))})
        self.size = size
        self.lines: list[str] = []
        self.events = [f"E{i}" for i in range(rng.randint(1, 3))]
        self.names = itertools.count()
        self.in_loop = False
        self.may_return: str | None = None

    # --- the program ----------------------------------------------------------------------------

    def program(self) -> str:
        rng, put = self.rng, self.lines.append
        self.lines += [
            "import contextlib", "from decimal import Decimal", "from typing import Annotated", "", "import timelapse as tl", "",
            "Money = Annotated[Decimal, tl.scale(2)]", "FEE = Decimal('0.25')", "", "", "def small(x):", "    return x % 7", "", "",
            "def both(a, b):", "    return (a % 3, b % 3) if a < b else (b % 3, a % 3)", "", "",
        ]  # fmt: skip
        for event in self.events:
            self.lines += [f"class {event}(tl.Event):", "    a: int", "    b: int", "    s: str", "    on: bool",
                           "    items: list[int]", "    m: Money", "", ""]  # fmt: skip
        self.lines += ["class Out(tl.Record):", "    a: int", "    b: int", "", ""]
        self._helpers()
        split = rng.randint(1, len(self.states))
        put("class Base(tl.Program):")
        put("    limit: int = 2")
        declared = [
            f"    {name}: {KINDS.get(kind) or FURTHER[kind].declared}" for name, kind in self.states.items()
        ]
        self.lines += [*declared[:split], ""]
        self._base_methods()
        put("class P(Base):")
        self.lines += [*declared[split:], ""]
        if rng.random() < 0.5:
            self.lines += ["    def grow(self, xs, e):", f"        n = k = {self._event_int()} % 4"]
            self.locals = ["n"]
            self._line(2, f"if {self._bool(1)}:")
            self._line(3, "super().grow(xs, e)")
            self.lines += ["        xs.append(2)", ""]
        for number in range(rng.randint(0, 3)):
            self._method(number)
        for number in range(rng.randint(1, 3)):
            listens = rng.sample(self.events, rng.randint(1, len(self.events)))
            put(f"    @tl.on({', '.join(listens)})")
            put(f"    def h{number}(self, e):")
            self._body(rng.randint(1, self.size), "")
            put("")
        return "\n".join(self.lines) + "\n"

    def _helpers(self) -> None:
        """Functions at the module's top: one changes its argument, one is given the program."""
        name, kind = self.rng.choice(list(self.states.items()))
        write = {"counter": f"{name}[k] += small(n)", "value": f"{name}[k] = small(n)", "optional": f"{name}[k] = small(n)",
                 "set": f"{name}.add(k)", "pairs": f"{name}.add((k, 1))", "total": f"{name} += small(n)",
                 "single": f"{name} = small(n)", "queue": f"{name}.append(k)", "listof": f"{name}.append(k, n)",
                 "mapof": f"{name}[k, 1] += small(n)", "pairs_of": f"{name}.add((k, 1), 'y')"
                 }.get(kind, f"{name}.add(k, small(n))")  # fmt: skip
        self.lines += [
            "def fill(xs, x):", "    if x > 2:", "        xs.append(x)", "    xs.append(1)", "", "",
            "def bump(program, k, n=1):", f"    program.{write}", "    return k + n", "", "",
        ]  # fmt: skip

    def _base_methods(self) -> None:
        name, kind = "s0", self.states["s0"]
        self.lines += [
            "    def grow(self, xs, e):", f"        xs.append({self._read(name, kind, '1')})", "",
            "    def threes(self, e):", "        for x in e.items:", "            yield x % 3", "", "",
        ]  # fmt: skip

    def _method(self, number: int) -> None:
        rng = self.rng
        name = f"m{number}"
        writes = rng.random() < 0.6
        if rng.random() < 0.3:
            # A helper at the top of the class that is a property: it has no event.
            self.lines += [
                "    @property",
                f"    def {name}(self):",
                f"        return {self._plain_read()}",
                "",
            ]
            self.methods.append(f"self.{name}")
            return
        self.lines.append(f"    def {name}(self, e, k, v=1):")
        before = self.may_write
        self.may_write = writes
        self._body(
            rng.randint(1, 3), self._int if rng.random() < 0.5 else (lambda depth: "k + v"), ["k", "v"]
        )
        self.may_write = before
        self.lines.append("")
        self.methods.append(f"self.{name}(e, {{k}}, {{v}})")

    def _plain_read(self) -> str:
        """A read where there is no event: what phrases compare with its amount is compared with a constant one."""
        name, kind = self.rng.choice(list(self.states.items()))
        return re.sub(r"\be\.m\b", "FEE", self._read(name, kind, "1"))

    def _body(self, count: int, result: str | Callable[[int], str], given: list[str] | None = None) -> None:
        self.locals = ["n", "k", *(given or [])]
        self.may_return = "return" if isinstance(result, str) else "value"
        self.lines.append(f"        n = {self._event_int()}")
        self.lines.append("        k = e.b % 4" if not given else "        k = k % 4")
        for _ in range(count):
            self._statement(2, 3)
        if not isinstance(result, str):
            self.lines.append(f"        return {result(1)}")

    # --- statements -----------------------------------------------------------------------------

    def _line(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def _block(self, indent: int, depth: int) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self._statement(indent, depth)

    def _statement(self, indent: int, depth: int) -> None:
        rng = self.rng
        makers: list[Callable[[int, int], None]] = [self._simple] * 8
        if depth > 0:
            makers += [self._if, self._if, self._if, self._for, self._while, self._try, self._match, self._idiom,
                       self._idiom, self._list, self._with, self._odd, self._odd]  # fmt: skip
        rng.choice(makers)(indent, depth - 1)

    def _simple(self, indent: int, depth: int) -> None:
        rng = self.rng
        choice = rng.randrange(16)
        if choice < 5 and self.may_write:
            self._write(indent)
        elif choice < 6:
            self._line(indent, f"{rng.choice(['n', 'k'])} = {self._small()}")
        elif choice == 6:
            self._line(indent, f"n {rng.choice(['+=', '-='])} {self._int(1)}")
        elif choice in (7, 8) and self.methods:
            call = self._call(2)
            self._line(indent, call if call.endswith(")") else f"n = {call}")
        elif choice == 9:
            self._line(indent, f"self.emit(Out(a={self._small(1)}, b={self._small(1)}))")
        elif choice == 10 and self.may_return:
            test = self._bool(1)
            self._line(indent, f"if {test}:")
            self._line(indent + 1, "return" if self.may_return == "return" else f"return {self._int(1)}")
        elif choice == 11 and rng.random() < 0.5:
            self._line(indent, f"if {self._bool(1)}:")
            self._line(indent + 1, rng.choice([
                'self.reject("no")', "self.reject(Out(a=1, b=k % 4))", 'self.reject("later")',
            ]))  # fmt: skip
        elif choice == 12 and self.in_loop:
            self._line(indent, f"if {self._bool(1)}:")
            self._line(indent + 1, rng.choice(["break", "continue"]))
        elif choice == 13:
            self._line(indent, f"n, k = k, {self._small(1)}")
        elif choice == 14:
            self._line(indent, f"assert n is not None, {self._int(0)}")
        elif choice == 15 and self.may_write:
            call = self._call(1) if self.methods else "n"
            self._line(indent, f"{self._bool(1)} {rng.choice(['and', 'or'])} {call}")
        elif self.may_write:
            self._write(indent)
        else:
            self._line(indent, f"n = {self._int(2)}")

    def _write(self, indent: int) -> None:
        rng = self.rng
        name, kind = rng.choice(list(self.states.items()))
        x, key = f"self.{name}", self._key()
        if kind in FURTHER:
            return self._line(indent, self._further(FURTHER[kind].writes, name, key, self._small(1)))
        match kind:
            case "counter":
                text = rng.choice([f"{x}[{key}] += {self._small(1)}", f"{x}[{key}] -= 1", f"{x}[{key}] = {self._small()}",
                                   f"del {x}[{key}]", f"{x}.add({key})", f"{x}.add({key}, n=2)",
                                   f"{x}[{key}] *= -1 if n < 3 else 0"])  # fmt: skip
            case "total" | "single":
                text = rng.choice(
                    [f"{x} += {self._small(1)}", f"{x} -= 1", f"{x} = {self._small()}", f"del {x}"]
                )
            case "set":
                text = rng.choice([f"{x}.add({key})", f"{x}.add({key})", f"{x}.discard({key})"])
            case "pairs":
                text = rng.choice([f"{x}.add({self._pair()})", f"{x}.discard({self._pair()})"])
            case "value":
                text = rng.choice([f"{x}[{key}] = {self._small()}", f"{x}[{key}] += 1", f"{x}.pop({key})",
                                   f"{x}.setdefault({key}, {self._small(1)})", f"del {x}[{key}]",
                                   f"{x}[{key}] = n = {self._small(1)}", f"{x}[e.a], {x}[e.b] = 1, {self._small(1)}"])  # fmt: skip
            case "optional":
                text = rng.choice([f"{x}[{key}] = {self._small()}", f"{x}[{key}] = None", f"del {x}[{key}]",
                                   f"{x}.setdefault({key}, {self._small(1)})"])  # fmt: skip
            case "first":
                text = f"{x}.add({key}, {self._small()})"
            case _:
                text = rng.choice([f"{x}.add({key}, {self._small()})", f"{x}.add({key}, {self._small(1)})",
                                   f"del {x}[{key}]"])  # fmt: skip
        return self._line(indent, text)

    def _idiom(self, indent: int, depth: int) -> None:
        """An idiom, or something that only looks like one."""
        rng = self.rng
        if not self.may_write:
            return self._simple(indent, depth)
        name, kind = rng.choice(list(self.states.items()))
        if kind in FURTHER:
            return self._write(indent)
        x, key, other = f"self.{name}", rng.choice(["e.a", "k", "e.b"]), rng.choice(["e.a", "k", "e.b"])
        v = rng.choice(["e.b", "small(n)", "small(k)", "e.a + 1", "2"])
        also = rng.choice(["", "", "k = 3", "n += 1"])
        extra = rng.choice(["", "", "", f" and {self._bool(1)}"])
        if kind in ("set", "pairs"):
            key, other = (self._pair(), self._pair()) if kind == "pairs" else (key, other)
            wanted = rng.choice([key, key, key, other])
            verb = rng.choice(["add", "add", "discard"])
            lines = rng.choice([
                [f"if {key} not in {x}{extra}:", f"    {also or 'pass'}", f"    {x}.{verb}({wanted})"],
                [f"if {key} not in {x}:", f"    {rng.choice([f'{x}.discard({other})', 'k = e.a'])}", f"    {x}.add({wanted})"],
                    [f"if {key} in {x}{extra}:", f"    {x}.{verb}({wanted})"],
                [f"if {key} in {x}:", "    return" if self.may_return == "return" else "    n += 0", f"{x}.{verb}({wanted})"],
                [f"if {key} not in {x}:", f"    {x}.{verb}({wanted})", f"    n = {self._int(1)}"],
            ])  # fmt: skip
        elif kind in ("value", "optional"):
            wanted = rng.choice([key, key, key, other])
            op = rng.choice([">", "<", ">", ">="]) if kind == "value" else "!="
            lines = rng.choice([
                [f"if {v} {op} {x}[{key}]{extra}:", f"    {x}[{wanted}] = {v}"],
                [f"if {x}[{key}] {op} {v}:", f"    {also or 'pass'}", f"    {x}[{wanted}] = {v}"],
                [f"if {key} not in {x}{extra}:", f"    {x}[{wanted}] = {v}"],
                [f"if {x}[{key}] is None:", f"    {x}[{wanted}] = {v}"],
                [f"{x}[{wanted}] = {rng.choice(['max', 'min'])}({x}[{key}], {v})"] if kind == "value" else ["n += 1"],
                [f"{x}[{wanted}] = {x}[{key}] + {v}"] if kind == "value" else ["n += 2"],
                [f"if {key} in {x}:", f"    {x}.pop({wanted})"],
            ])  # fmt: skip
        elif kind == "counter":
            wanted = rng.choice([key, key, other])
            lines = rng.choice([
                [f"{x}[{wanted}] = {x}[{key}] + {v}"], [f"{x}[{wanted}] = {v} + {x}[{key}]"],
                [f"{x}[{wanted}] = {x}[{key}] - {v}"], [f"{x}[{wanted}] = {v} - {x}[{key}]"],
                [f"if {key} in {x}:", f"    del {x}[{wanted}]"],
                [f"if {key} not in {x}:", f"    {x}[{wanted}] = 1"],
            ])  # fmt: skip
        elif kind in ("total", "single"):
            lines = rng.choice([
                [f"{x} = {x} + {v}"], [f"if {v} > {x}:", f"    {x} = {v}"], [f"{x} = max({x}, {v})"],
                [f"{x} = {v} - {x}"],
            ])  # fmt: skip
        else:
            lines = [f"if {key} not in {x}{extra}:", f"    {x}.add({key}, {v})"]
        for line in lines:
            self._line(indent, line)
        return None

    # --- compound statements ----------------------------------------------------------------------

    def _if(self, indent: int, depth: int) -> None:
        self._line(indent, f"if {self._bool()}:")
        self._block(indent + 1, depth)
        if self.rng.random() < 0.2:
            self._line(indent, f"elif {self._bool(1)}:")
            self._block(indent + 1, depth)
        if self.rng.random() < 0.4:
            self._line(indent, "else:")
            self._block(indent + 1, depth)

    def _loop(self, indent: int, depth: int, variable: str | None = None) -> None:
        before, self.in_loop = self.in_loop, True
        self._block(indent + 1, depth)
        self.in_loop = before
        if variable is not None:
            self.locals.remove(variable)
        if self.rng.random() < 0.2:
            self._line(indent, "else:")
            self._block(indent + 1, 0)

    def _for(self, indent: int, depth: int) -> None:
        variable = f"i{next(self.names)}"
        over = self.rng.choice([
            "e.items", "range(e.a % 3)", f"range({self._small(1)} % 3)", "sorted(e.items)", "enumerate(e.items)",
            "[e.a, e.b]",
        ])  # fmt: skip
        target = f"_, {variable}" if over.startswith("enumerate") else variable
        self._line(indent, f"for {target} in {over}:")
        self.locals.append(variable)
        self._loop(indent, depth, variable)

    def _while(self, indent: int, depth: int) -> None:
        variable = f"w{next(self.names)}"
        self._line(indent, f"{variable} = 0")
        test = f"{variable} < {self._small(1)} % 4"
        if self.rng.random() < 0.3:
            test = f"{test} and {self._bool(1)}"
        self._line(indent, f"while {test}:")
        self._line(indent + 1, f"{variable} += 1")
        self._loop(indent, depth)

    def _try(self, indent: int, depth: int) -> None:
        rng = self.rng
        self._line(indent, "try:")
        self._line(
            indent + 1, f"n = {rng.choice(['6', self._int(1)])} // {rng.choice(['e.a', 'n', self._int(1)])}"
        )
        self._block(indent + 1, min(depth, 1))
        if rng.random() < 0.8:
            self._line(indent, "except ZeroDivisionError as error:")
            self._line(indent + 1, "n = len(str(error)) % 5")
            self._block(indent + 1, 0)
            if rng.random() < 0.3:
                self._line(indent, "else:")
                self._block(indent + 1, 0)
        else:
            self._line(indent, "except (KeyError, ArithmeticError):")
            self._line(indent + 1, "n = 1")
        if rng.random() < 0.4:
            self._line(indent, "finally:")
            before, self.in_loop = self.in_loop, False
            kept, self.may_return = self.may_return, None
            self._simple(indent + 1, 0)
            self.in_loop, self.may_return = before, kept

    def _with(self, indent: int, depth: int) -> None:
        self._line(indent, "with contextlib.suppress(ZeroDivisionError):")
        self._line(indent + 1, f"n = {self._int(1)} // {self.rng.choice(['e.b', 'k'])}")
        if self.may_write and self.rng.random() < 0.6:
            self._write(indent + 1)

    def _match(self, indent: int, depth: int) -> None:
        self._line(indent, f"match {self._int(1)}:")
        self._line(indent + 1, f"case {self.rng.randint(0, 2)}:")
        self._block(indent + 2, min(depth, 1))
        if self.rng.random() < 0.5:
            self._line(indent + 1, f"case x if {self._bool(1)}:")
            self._line(indent + 2, "n = x")
        if self.rng.random() < 0.5:
            self._line(indent + 1, "case _:")
            self._block(indent + 2, 0)

    def _odd(self, indent: int, depth: int) -> None:
        """What hides a dependency: aliases, late binding, iterators, jumps through `finally`."""
        rng, name = self.rng, f"o{next(self.names)}"
        first, second = self._int(1), self._small(1)
        out = "return" if self.may_return == "return" else f"return {self._int(0)}"
        lines = rng.choice([
            [f"{name} = (x + n for x in e.items)", f"n = {second}", f"k = small(sum({name}))"],
            [f"{name} = lambda: n + {first}", f"n = {second}", f"k = small({name}())"],
            [f"{name} = iter(e.items)", f"if {self._bool(1)}:", f"    next({name}, 0)", f"n = next({name}, {second})"],
            [f"{name} = {{1: {first}}}", f"if {self._bool(1)}:", f"    {name}[1] = {second}", f"n = {name}.get(1, 0)"],
            [f"{name} = []", f"fill({name}, {first})", f"n = {name}[0] + len({name})"],
            [f"{name} = [1]", f"self.grow({name}, e)", f"k = small({name}[-1])"],
            [f"def {name}():", f"    return n + {rng.choice(['k', 'e.a'])}", f"n = {second}", f"k = small({name}())"],
            [f"{name} = 0", "while True:", f"    {name} += 1", f"    if {name} > 5 or {self._bool(1)}:", "        break"],
            [f"for {name} in self.threes(e):", f"    n = small(n + {name})"],
            [f"n, *{name} = [{first}, {second}, 1]", f"k = small({name}[0])"],
            ["try:", f"    if {self._bool(1)}:", f"        {out}", f"    n = {first}", "finally:", f"    k = {second}"],
            [f"{name} = n", f"{name} += {first}", f"n = small({name})"],
            [f"n = small(sum(map(small, [{first}, {second}])))"],
            [f"if 0 < {first} < {second}:", "    n = 1"],
        ] + ([[f"bump(self, {self._key()}, {first})"], [f"n = small(bump(self, {self._key()}, n=k))"]]
             if self.may_write else []))  # fmt: skip
        for line in lines:
            self._line(indent, line)

    def _list(self, indent: int, depth: int) -> None:
        name = f"xs{next(self.names)}"
        rng = self.rng
        other = f"ys{next(self.names)}"
        self._line(indent, f"{name} = [{self._int(1)}]")
        self._line(indent, f"{other} = {rng.choice([name, f'list({name})'])}")
        if rng.random() < 0.5:
            self._line(indent, f"if {self._bool(1)}:")
            indent += 1
        self._line(indent, rng.choice([f"{other}.append({self._int(1)})", f"{other}[0] = {self._int(1)}",
                                       f"{name} += [{self._int(1)}]"]))  # fmt: skip
        if rng.random() < 0.5:
            self._line(indent, f"n = sorted({name}, key=lambda x: -x)[0]")
        else:
            self._line(indent, f"n = small(sum({name}))")
