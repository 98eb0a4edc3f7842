"""Random expressions, well typed by construction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from tests.native.fuzz.vocabulary import FEATURES, NEEDS, PARTS, Helper, StateVar

Maker = Callable[[], str]

_EDGES = ("2**53", "2**53 + 1", "-(2**53)", "2**62", "BIG", "2**63 - 1", "-(2**63)", "2**31", "-2**31")
_FLOATS = ("0.0", "-0.0", "0.5", "-1.5", "3.0", "0.1", "1e16", "2.0**53", "1e308", "5e-324")
_STRINGS = ('""', '"a"', '"b"', '"é"', '"a\\0b"', '"\\U0001f600"', '"zz"', '"a@b.c"')
_WORD_SETS = ("WORDS", '("a", "zz")', '{"", "b"}')
_PREFIXES = ('"a"', '("a", "z")', '"é"', '""')
_BYTES = ('b""', 'b"x"', 'b"\\xff\\0"', 'b"ab"')


class Expressions:
    """Writes expressions over what is in scope."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.features = {name for name, chance in FEATURES.items() if rng.random() < chance}
        self.locals: dict[str, str] = {}
        self.fields: dict[str, str] = {}
        self.params: dict[str, str] = {}
        self.states: list[StateVar] = []
        self.functions: list[Helper] = []
        self.has_self = False
        self.has_event = False
        self.writes = False
        self.loops = 0
        self.names = 0

    def on(self, *features: str) -> bool:
        return self.features.issuperset(features)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def types(self) -> list[str]:
        """Types that this program uses for locals, arguments and results."""
        return ["int", "bool", *(t for t, need in NEEDS.items() if self.on(need))]

    def among(self, found: dict[str, str], kind: str) -> list[str]:
        return [n for n, k in found.items() if k == kind]

    def expr(self, kind: str, depth: int = 2) -> str:
        """An expression of this type."""
        leaves = self._leaves(kind)
        if leaves and (depth <= 0 or self.rng.random() < 0.35):
            return self.rng.choice(leaves)
        makers = list(self._shared(kind, depth - 1))
        makers += {
            "int": self._ints, "float": self._floats, "bool": self._bools, "str": self._strings, "bytes": self._bytes,
        }.get(kind, lambda _: [])(depth - 1)  # fmt: skip
        if kind in PARTS:
            makers += [lambda: self._tuple(kind, depth - 1)] * 3
        if kind.endswith("?"):
            makers += [lambda: self.expr(kind[:-1], depth - 1), lambda: "None"]
        if not makers or depth < -3:
            return self._literal(kind)
        return self.rng.choice(makers)()

    # --- leaves and what all types share ----------------------------------------------------------

    def _leaves(self, kind: str) -> list[str]:
        found = self.among(self.locals, kind) * 2
        if self.has_event:
            found += [f"e.{n}" for n in self.among(self.fields, kind)] * 2
            if kind == "int" and self.on("now"):
                found += ["e.ts", "e.seq"]
        if self.has_self:
            found += [f"self.{n}" for n in self.among(self.params, kind)]
            plain = [s for s in self.states if s.key is None and s.value == kind]
            found += [
                f"self.{s.name}" for s in plain if s.kind in ("Counter", "Value") or self.on("odd_reads")
            ]
            found += [f"self.{s.name}.get()" for s in plain if s.kind not in ("Counter", "Value")]
            if kind == "int" and self.on("now"):
                found.append("self.now")
        if kind in ("int", "bool", "float", "str", "bytes"):
            found += [self._literal(kind) for _ in range(2)]
        if kind.endswith("?"):
            found.append("None")
        return found

    def _literal(self, kind: str) -> str:
        rng = self.rng
        if kind.endswith("?"):
            return "None"
        if kind in PARTS:
            return self._tuple(kind, -5)
        if kind == "int":
            if self.on("edges") and rng.random() < 0.1:
                return rng.choice(_EDGES)
            return rng.choice(["0", "1", "2", "3", "-1", "5", "LIMIT"])
        if kind == "float":
            return rng.choice(_FLOATS)
        if kind == "bool":
            return rng.choice(["True", "False"])
        return rng.choice(_STRINGS if kind == "str" else _BYTES)

    def _shared(self, kind: str, depth: int) -> Iterable[Maker]:
        rng = self.rng
        if self.on("choice"):
            yield (
                lambda: (
                    f"({self.expr(kind, depth)} if {self.expr('bool', depth)} else {self.expr(kind, depth)})"
                )
            )
        if self.on("short") and kind in ("int", "float", "str", "bytes", "bool"):
            yield lambda: f"({self.expr(kind, depth)} {rng.choice(['and', 'or'])} {self.expr(kind, depth)})"
        if self.on("optionals", "short") and f"{kind}?" in ("int?", "float?", "str?"):
            yield lambda: f"({self.expr(f'{kind}?', depth)} or {self.expr(kind, depth)})"
        if self.on("optionals") and f"{kind}?" in ("int?", "float?", "str?"):
            for name in self.among(self.locals, f"{kind}?"):
                yield lambda name=name: f"({name} if {name} is not None else {self.expr(kind, 0)})"  # type: ignore[misc]
            if self.on("unsafe"):
                yield lambda: self.expr(f"{kind}?", 0)
        if self.on("tuples") and kind in ("int", "bool", "str"):
            whole = rng.choice(
                [t for t, parts in PARTS.items() if kind in parts and self.on(NEEDS[t])] or [""]
            )
            if whole:
                places = [i for i, part in enumerate(PARTS[whole]) if part == kind]
                yield (
                    lambda: (
                        f"{self.expr(whole, depth)}[{rng.choice(places) - rng.choice([0, len(PARTS[whole])])}]"
                    )
                )
        if self.on("points") and kind in ("int", "float"):
            yield lambda: f"{self.expr('point', depth)}.{'n' if kind == 'int' else 'x'}"
        if self.on("walrus") and self.loops == 0:
            yield lambda: self._walrus(kind, depth)
        for helper in self.functions:
            if helper.result == kind and self.on("helpers"):
                yield lambda h=helper: self.call(h, depth)  # type: ignore[misc]
        if self.has_self:
            yield from self._reads(kind, depth)

    def _walrus(self, kind: str, depth: int) -> str:
        # The name is not used later: it may be in a part that is skipped.
        return f"({self.name('w')} := {self.expr(kind, depth)})"

    def call(self, helper: Helper, depth: int) -> str:
        """A call with some arguments by name and some left out."""
        rng = self.rng
        if helper.arguments and helper.arguments[0][1] == "event" and not self.has_event:
            return self.expr("int", 0)
        given = []
        named = False
        for place, (name, kind) in enumerate(helper.arguments):
            if kind == "event":
                given.append("e")
                continue
            if place >= len(helper.arguments) - helper.defaults and rng.random() < 0.4:
                named = True
                continue
            named = named or (helper.by_name and place == len(helper.arguments) - 1)
            named = named or (self.on("keywords") and rng.random() < 0.3)
            value = self.expr(kind, min(depth, 1))
            given.append(f"{name}={value}" if named else value)
        return f"{helper.text}({', '.join(given)})"

    def _reads(self, kind: str, depth: int) -> Iterable[Maker]:
        for state in self.states:
            if state.kind == "Set":
                if kind == "bool":
                    yield lambda s=state: f"({self.key(s)} in self.{s.name})"  # type: ignore[misc]
                continue
            value = "int" if state.kind == "Counter" else state.value
            if state.key is None:
                continue
            if value == kind:
                yield lambda s=state: f"self.{s.name}[{self.key(s)}]"  # type: ignore[misc]
                if state.kind != "Counter" and self.on("get"):
                    yield lambda s=state: self._get(s, kind)  # type: ignore[misc]
                if state.kind == "Value" and self.on("pop") and self.writes:
                    yield lambda s=state: self._pop(s, kind)  # type: ignore[misc]
            if kind == "bool":
                yield lambda s=state: f"({self.key(s)} {self.rng.choice(['in', 'not in'])} self.{s.name})"  # type: ignore[misc]

    def _get(self, state: StateVar, kind: str) -> str:
        default = f", {self.expr(kind, 0)}" if self.rng.random() < 0.6 else ""
        return f"self.{state.name}.get({self.key(state)}{default})"

    def _pop(self, state: StateVar, kind: str) -> str:
        if self.rng.random() < 0.5:
            return f"self.{state.name}.pop({self.key(state)})"
        return f"self.{state.name}.setdefault({self.key(state)}, {self.expr(kind.removesuffix('?'), 0)})"

    def key(self, state: StateVar) -> str:
        """A key of a state: mostly one of few."""
        kind = state.key
        assert kind is not None
        if kind == "int" and self.rng.random() < 0.5:
            leaves = [t for t in self._leaves("int") if t not in ("e.ts", "e.seq", "self.now")]
            return self.rng.choice(leaves)
        return self.expr(kind, 0 if self.rng.random() < 0.6 else 1)

    # --- numbers ----------------------------------------------------------------------------------

    def _ints(self, depth: int) -> list[Maker]:
        rng, x = self.rng, self.expr
        a: Maker = lambda: x("int", depth)  # noqa: E731
        small: Maker = lambda: rng.choice(["2", "3", "-1", "5", "-7", "10"])  # noqa: E731
        nonzero: Maker = lambda: a() if self.on("unsafe") else f"({a()} or {small()})"  # noqa: E731
        makers = [lambda: f"({a()} {rng.choice('+-')} {a()})"] * 3 + [lambda: f"-{a()}"]

        def add(feature: str, *made: Maker) -> None:
            if self.on(feature):
                makers.extend(made)

        if self.loops == 0:
            add("mul", lambda: f"({a()} * {a()})", lambda: f"({a()} * {small()})")
            add("power", lambda: f"({a()}) ** {rng.choice('0123')}")
            add("shift", lambda: f"({a()} << ({a()} & {rng.choice('37')}))")
        add("floordiv", lambda: f"({a()} // {small()})", lambda: f"({a()} % {small()})",
            lambda: f"({a()} {rng.choice(['//', '%'])} {nonzero()})")  # fmt: skip
        add("bits", lambda: f"({a()} {rng.choice('&|^')} {a()})", lambda: f"~{a()}")
        add("shift", lambda: f"({a()} >> ({a()} & 7))")
        add("minmax", lambda: f"{rng.choice(['min', 'max'])}({a()}, {a()})")
        if self.on("minmax"):
            add("three_args", lambda: f"{rng.choice(['min', 'max'])}({a()}, {a()}, {a()})")
        add("abs", lambda: f"abs({a()})")
        add("cast", lambda: f"int({x('bool', depth)})", lambda: f"int({a()})")
        add("bool_number", lambda: f"({a()} + {x('bool', 0)})", lambda: f"({x('bool', 0)} * {small()})")
        add("divmod", lambda: f"divmod({a()}, {small()})[{rng.choice('01')}]")
        if self.on("floats"):
            add("float_int", lambda: f"int({x('float', depth)})")
            add("math", lambda: f"math.{rng.choice(['floor', 'ceil', 'trunc'])}({x('float', 0)})")
        add("round", lambda: f"round({a()})")
        if self.has_event and "raw" in self.fields:
            field = rng.choice(("s", "raw", "items", "t", "words"))
            add("length", lambda: f"len(e.{field})")
            if self.on("lists"):
                add(
                    "list_index",
                    lambda: f"(e.items[{rng.choice(['0', '-1', '1'])}] if len(e.items) > 1 else {a()})",
                )
                add(
                    "list_sums",
                    lambda: "sum(e.items)",
                    lambda: f"({rng.choice(['min', 'max'])}(e.items) if e.items else 0)",
                )
                add("generators", lambda: f"sum(v * 2 for v in e.items if v > {x('int', 0)})",
                    lambda: f"sum([v + {x('int', 0)} for v in e.items])",
                    lambda: f"len([v for v in e.items if v != {x('int', 0)}])")  # fmt: skip
        if self.has_self and self.on("top"):
            names = [s.name for s in self.states if s.kind == "Counter" and s.key is not None]
            makers += [lambda n=n: f"sum(c for _, c in self.{n}.top(2))" for n in names]  # type: ignore[misc]
        return makers

    def _floats(self, depth: int) -> list[Maker]:
        rng, x = self.rng, self.expr
        a: Maker = lambda: x("float", depth)  # noqa: E731
        small: Maker = lambda: rng.choice(["2.0", "0.5", "-3.0", "7"])  # noqa: E731
        makers = [
            lambda: f"({a()} {rng.choice('+-*')} {a()})", lambda: f"({a()} {rng.choice('+-*')} {x('int', 0)})",
            lambda: f"({x('int', 0)} {rng.choice('+-*')} {a()})", lambda: f"-{a()}", lambda: f"float({x('int', depth)})",
        ]  # fmt: skip

        def add(feature: str, *made: Maker) -> None:
            if self.on(feature):
                makers.extend(made)

        add("truediv", lambda: f"({a()} / {small()})", lambda: f"({x('int', depth)} / {small()})",
            lambda: f"({a()} / ({x('int', 0)} or 3))", lambda: f"({a()} / ({a()} or 1.0))")  # fmt: skip
        add("float_floor", lambda: f"({a()} {rng.choice(['//', '%'])} {small()})")
        add("float_power", lambda: f"({a()}) ** 2")
        add("minmax", lambda: f"{rng.choice(['min', 'max'])}({a()}, {a()})")
        add("abs", lambda: f"abs({a()})")
        add("math", lambda: f"math.sqrt(abs({a()}))", lambda: f"math.fabs({a()})")
        add("round", lambda: f"round({a()}, 1)")
        if self.has_event and "xs" in self.fields and self.on("lists"):
            add("list_index", lambda: f"(e.xs[0] if e.xs else {a()})")
            add("list_sums", lambda: "sum(e.xs, 0.0)", lambda: f"(max(e.xs) if e.xs else {a()})")
        return makers

    # --- truth --------------------------------------------------------------------------------------

    def _bools(self, depth: int) -> list[Maker]:
        rng, x = self.rng, self.expr
        signs = ["<", "<=", ">", ">=", "==", "!="]
        sign: Maker = lambda: rng.choice(signs)  # noqa: E731
        same: Maker = lambda: rng.choice(["==", "!="])  # noqa: E731
        makers: list[Maker] = [lambda: f"({x('int', depth)} {sign()} {x('int', depth)})"] * 4
        makers += [lambda: f"(not {x('bool', depth)})"]
        makers += [lambda: f"({x('bool', depth)} {rng.choice(['and', 'or'])} {x('bool', depth)})"] * 2

        def add(feature: str, *made: Maker) -> None:
            if self.on(feature):
                makers.extend(made)

        add("chain", lambda: f"({x('int', depth)} {sign()} {x('int', 0)} {sign()} {x('int', 0)})",
            lambda: f"({rng.choice('012')} <= {x('int', depth)} < {rng.choice('3456')})")  # fmt: skip
        add("cast", lambda: f"bool({x(rng.choice(['int', 'bool']), depth)})")
        add(
            "constant_set",
            lambda: (
                f"({x('int', depth)} {rng.choice(['in', 'not in'])} {rng.choice(['(1, 2, 3)', 'NUMBERS', '{0, -1}', '(LIMIT, 1)'])})"
            ),
        )
        add("floats", lambda: f"({x('float', depth)} {sign()} {x('float', depth)})",
            lambda: f"({x('float', 0)} {sign()} {x('int', 0)})", lambda: f"(not {x('float', 0)})")  # fmt: skip
        if self.on("floats"):
            add("math", lambda: f"math.isnan({x('float', 0)})", lambda: f"math.isinf({x('float', 0)})")
        add("strings", lambda: f"({x('str', 0)} {same()} {x('str', 0)})", lambda: f"(not {x('str', 0)})")
        add("bytes", lambda: f"({x('bytes', 0)} {same()} {x('bytes', 0)})")
        if self.on("strings"):
            add("string_order", lambda: f"({x('str', 0)} {sign()} {x('str', 0)})")
            add("constant_set", lambda: f"({x('str', 0)} in {rng.choice(_WORD_SETS)})")
        if self.has_event:
            field = rng.choice(["s", "t"] if "t" in self.fields else ["s"])
            add("contains", lambda: f"({rng.choice(_STRINGS)} {rng.choice(['in', 'not in'])} e.{field})")
            add(
                "prefix",
                lambda: f"e.{field}.{rng.choice(['startswith', 'endswith'])}({rng.choice(_PREFIXES)})",
            )
            add(
                "text_methods",
                lambda: f"e.{field}.{rng.choice(['isdigit', 'isalpha', 'isascii', 'isupper'])}()",
            )
            if "items" in self.fields and self.on("lists"):
                add("list_in", lambda: f"({x('int', 0)} in e.items)", lambda: f"({x('str', 0)} in e.words)")
                add("generators", lambda: f"{rng.choice(['any', 'all'])}(v > {x('int', 0)} for v in e.items)")
        for kind in ("pair", "mixed", "triple", "nested", "point"):
            if self.on(NEEDS[kind]):
                makers.append(lambda kind=kind: f"({x(kind, 0)} {same()} {x(kind, 0)})")  # type: ignore[misc]
        if self.on("tuples", "tuple_order"):
            makers.append(lambda: f"({x('pair', 0)} {sign()} {x('pair', 0)})")
        if self.on("optionals"):
            for kind in ("int?", "str?", "float?"):
                makers += [
                    lambda kind=kind: f"({x(kind, 0)} {rng.choice(['is', 'is not', '=='])} None)",  # type: ignore[misc]
                    lambda kind=kind: f"({x(kind, 0)} {same()} {x(kind.removesuffix('?'), 0)})",  # type: ignore[misc]
                    lambda kind=kind: f"bool({x(kind, 0)})",  # type: ignore[misc]
                ]  # fmt: skip
        return makers

    # --- text and tuples ------------------------------------------------------------------------------

    def _strings(self, depth: int) -> list[Maker]:
        rng, x = self.rng, self.expr
        makers: list[Maker] = [lambda: self._literal("str")]
        if self.has_event and self.on("text_slices"):
            makers += [lambda: "e.s[:1]", lambda: "e.s[-2:]"]
        if self.has_event and self.on("text_methods"):
            makers += [lambda: f"e.s.{rng.choice(['lower', 'upper', 'strip'])}()"]
        if self.on("format"):
            makers += [lambda: f'f"{{{x("int", 0)}}}"']
        if self.on("concat"):
            makers += [lambda: f"({x('str', 0)} + {x('str', 0)})"]
        if self.has_event and "words" in self.fields and self.on("lists", "list_index"):
            makers += [lambda: f"(e.words[0] if e.words else {x('str', 0)})"]
        return makers

    def _bytes(self, depth: int) -> list[Maker]:
        return [lambda: self._literal("bytes")]

    def _tuple(self, kind: str, depth: int) -> str:
        parts = [self.expr(p, depth) for p in PARTS[kind]]
        if kind == "pair" and depth > -5 and self.rng.random() < 0.4:
            return f"pair({', '.join(parts)})"
        if kind == "point":
            if self.on("keywords") and self.rng.random() < 0.3:
                return f"Point(x={parts[1]}, n={parts[0]})"
            return f"Point({', '.join(parts)})"
        return f"({', '.join(parts)})"
