"""The expressions of random programs: over the event, locals, states and methods that are there."""

from __future__ import annotations

import random

from tests.writers.phrases import FURTHER


class Expressions:
    """Writes expressions. Every choice comes from `rng`. `states` has each state's kind by its name."""

    def __init__(self, rng: random.Random, states: dict[str, str]) -> None:
        self.rng = rng
        self.states = states
        self.locals: list[str] = []
        self.methods: list[str] = []
        """Calls of the program's methods, with places for the arguments `{k}` and `{v}`."""
        self.may_write = True

    def _event_int(self) -> str:
        return self.rng.choice(["e.a", "e.b", "len(e.items)", "len(e.s)", "e.a + e.b", "small(e.ts)"])

    def _int(self, depth: int = 2) -> str:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.3:
            return rng.choice([*self.locals, "e.a", "e.b", "1", "2", "len(e.items)", "self.limit"])
        choice = rng.randrange(11)
        if choice < 4:
            name, kind = rng.choice(list(self.states.items()))
            return self._read(name, kind, self._key(depth - 1))
        if choice == 4:
            return f"({self._int(depth - 1)} {rng.choice(['+', '-'])} {self._int(depth - 1)})"
        if choice == 5:
            return f"small({self._int(depth - 1)} * {self._int(depth - 1)})"
        if choice == 6:
            return f"{rng.choice(['min', 'max'])}({self._int(depth - 1)}, {self._int(depth - 1)})"
        if choice == 7:
            return f"({self._int(depth - 1)} if {self._bool(depth - 1)} else {self._int(depth - 1)})"
        if choice == 8 and self.methods:
            return self._call(depth)
        if choice == 9:
            return rng.choice([
                f"sum(x % 3 for x in e.items if x < {self._int(0)})",
                f"sum([{self._int(0)} + x for x in e.items])",
                f"len([x for x in e.items if {self._bool(0)}])",
            ])  # fmt: skip
        if choice == 10 and self.may_write:
            taking = [n for n, kind in self.states.items() if kind in ("value", "optional")]
            if taking:
                name = rng.choice(taking)
                return rng.choice([f"(self.{name}.pop({self._key(0)}) or 0)",
                                   f"(self.{name}.setdefault({self._key(0)}, {self._small(0)}) or 0)"])  # fmt: skip
        return self._event_int()

    def _call(self, depth: int) -> str:
        method = self.rng.choice(self.methods)
        if "{k}" not in method:
            return method
        return method.format(k=self._int(min(depth - 1, 1)), v=self._int(min(depth - 1, 1)))

    def _small(self, depth: int = 2) -> str:
        return f"small({self._int(depth)})"

    def _key(self, depth: int = 1) -> str:
        if self.rng.random() < 0.6:
            return self.rng.choice(["e.a", "k", "e.b", "1"])
        return f"({self._int(depth)}) % 4"

    def _pair(self) -> str:
        return self.rng.choice(["both(e.a, e.b)", "both(e.b, e.a)", "(e.a % 3, 1)", "both(k, n)"])

    def _further(self, phrases: tuple[str, ...], name: str, key: str, v: str = "1") -> str:
        pair = self._pair() if key != "1" else "(0, 1)"
        return self.rng.choice(phrases).format(x=f"self.{name}", key=key, pair=pair, v=v)

    def _read(self, name: str, kind: str, key: str) -> str:
        if kind in FURTHER:
            return self._further(FURTHER[kind].reads, name, key)
        match kind:
            case "total" | "single":
                return f"self.{name}"
            case "set":
                return f"(1 if {key} in self.{name} else 0)"
            case "pairs":
                return f"(1 if {self._pair() if key != '1' else '(0, 1)'} in self.{name} else 0)"
            case "optional":
                return f"(self.{name}[{key}] or 0)"
            case "counter" if self.rng.random() < 0.1:
                return f"sum(c for _, c in self.{name}.top(2))"
            case "value" | "max" if self.rng.random() < 0.2:
                return f"self.{name}.get({key}, 3)"
        return f"self.{name}[{key}]"

    def _bool(self, depth: int = 2) -> str:
        rng = self.rng
        choice = rng.randrange(9)
        if depth <= 0 or choice < 2:
            return rng.choice(["e.on", "e.a == 1", "e.b > 1", "n > 2", "k == 2", "not e.on"])
        if choice < 4:
            return f"{self._int(depth - 1)} {rng.choice(['<', '>', '==', '>=', '!='])} {self._int(depth - 1)}"
        if choice < 6:
            keyed = [(n, kind) for n, kind in self.states.items() if kind not in ("total", "single", "queue")]
            if keyed:
                name, kind = rng.choice(keyed)
                key = self._pair() if kind == "pairs" else self._key(depth - 1)
                if kind in FURTHER:
                    key = self._further((FURTHER[kind].key,), name, key)
                return f"{key} {rng.choice(['in', 'not in'])} self.{name}"
        if choice == 6:
            return f"({self._bool(depth - 1)} {rng.choice(['and', 'or'])} {self._bool(depth - 1)})"
        if choice == 7:
            return f"not ({self._bool(depth - 1)})"
        return f"(n := {self._small(depth - 1)}) > 1"
