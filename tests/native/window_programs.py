"""Random programs with windows that compile, and logs whose events lie on the windows' edges."""

from __future__ import annotations

import random
from typing import Any

from tests.writers.methods import by_method
from timelapse.model.events import Event
from timelapse.program.program import spec_of

_KINDS = (
    "counter",
    "pair",
    "text",
    "mean",
    "set",
    "setof",
    "plain",
    "value",
    "flag",
    "map",
    "least",
    "most",
    "newest",
)
_DECLARED = {
    "counter": "tl.Counter[int]", "pair": "tl.Counter[tuple[int, int]]", "text": "tl.Counter[str]",
    "mean": "tl.Mean[int]", "set": "tl.Set[int]", "setof": "tl.SetOf[int, int]", "plain": "tl.Value[int, int]",
    "value": "tl.Value[int, int]", "flag": "tl.Value[int, tuple[int, float] | None]", "map": "tl.MapOf[int, int, int]",
    "least": "tl.Min[int, int | None]", "most": "tl.Max[int, float]",
    "newest": "tl.Last[int, int | None]",
}  # fmt: skip
_GROUPED = ("mean", "setof", "map")
"""What ticks that run as Python may need an index of."""
_SUMMED = ("counter", "pair", "text", "mean", "set", "setof", "plain")
"""Of these windows compile in time slices, too; the last one is without."""
_LAGS = ("1", "2", "3", "self.w", "self.w + 1", "2 * LONG", "tl.SECOND")


class _Writer:
    def __init__(self, seed: int, *, timed: bool = False, summed: bool = False) -> None:
        self.rng = random.Random(seed)
        self.summed = summed
        self.late = timed and self.rng.random() < 0.8
        """Whether a handler is called later."""
        self.ticks = timed and (not self.late or self.rng.random() < 0.6)
        self.plain = self.rng.random() < 0.6
        """Whether handlers of ticks keep to what compiles."""
        indexed = ("setof", "map") if self.plain else _GROUPED
        kinds = _KINDS if not self.ticks else tuple(k for k in _KINDS if k not in indexed)
        kinds = _SUMMED if summed else kinds
        self.set = not summed or self.rng.random() < 0.4
        """Whether counters are set, too."""
        self.states = {f"s{i}": self.rng.choice(kinds) for i in range(self.rng.randint(1, 4))}
        self.removed = {n for n in self.states if self.rng.random() < 0.4}
        """Means from which is removed: they have no windows, only looks back."""

    def program(self) -> str:
        rng = self.rng
        lines = [
            "import timelapse as tl", "", "LONG = 4", "",
            "class A(tl.Event):", "    k: int", "    m: int", "    s: str", "    items: list[int]", "",
            "class B(tl.Event):", "    k: int", "    m: int", "    s: str", "    items: list[int]", "",
            "class Out(tl.Record):", "    what: int", "    v: float", "", "class P(tl.Program):", "    w: int = 2",
        ]  # fmt: skip
        for name, kind in self.states.items():
            default = {
                "plain": " = tl.state(default=0)",
                "value": " = tl.state(default=0)",
                "map": " = tl.state(default=2)",
                "most": " = tl.state(default=0.5)",
            }.get(kind, "")
            lines.append(f"    {name}: {_DECLARED[kind]}{default}")
        # Some events leave to Python: a product outside int64.
        self.far = rng.random() < (0.2 if self.summed else 0.6)
        for number, event in enumerate(rng.choice((["A"], ["A", "B"], ["A", "B", "A"]))):
            lines += ["", f"    @tl.on({event})", f"    def h{number}(self, e):"]
            for _ in range(rng.randint(2, 5)):
                lines += self._statement(2)
        for number in range(rng.randint(1, 2) if self.late else 0):
            lag = ("w", "3", "LONG + 1", "tl.SECOND")[2 * number + rng.randrange(2)]
            lines += ["", f"    @tl.on({rng.choice('AB')}, after={lag})", f"    def later{number}(self, e):"]
            lines.append("        self.emit(Out(what=(self.now - e.ts) % 97, v=float(e.ts % 1000)))")
            lines += [
                line.replace("self.reject('no')", "pass")
                for _ in range(rng.randint(1, 3))
                for line in self._statement(2)
            ]
        for number in range(rng.randint(1, 2) if self.ticks else 0):
            lines += ["", f"    @tl.every({rng.choice((1, 2, 3, 5, 8))})", f"    def tick{number}(self):"]
            for _ in range(rng.randint(1, 3)):
                lines += self._of_tick()
        return "\n".join(lines) + "\n"

    def _of_tick(self) -> list[str]:
        """What a tick does: there is no event, and it may look at every key."""
        rng = self.rng
        name, kind = rng.choice(list(self.states.items()))
        if rng.random() < 0.4:
            written = self._write("0")
            for word, key in (("e.k", "1"), ("e.m", "2"), ("e.s", "'a'")):
                written = written.replace(word, key)
            return [f"        {written}"]
        lag = rng.choice(_LAGS)
        views = [f"self.{name}", f"self.{name}.last({lag})"]
        views += [f"self.{name}.ago({lag})"] if kind in ("counter", "pair", "text", "mean") else []
        if self.plain:
            return self._listed(name, kind, views)
        lines = [f"        for n, found in enumerate({rng.choice(views)}.items()):",
                 "            self.emit(Out(what=n, v=float(sum(map(ord, repr(found))))))"]  # fmt: skip
        if kind in ("counter", "pair", "text") and rng.random() < 0.5:
            lines = [f"        for _, n in {rng.choice(views)}.top({rng.randint(1, 3)}):",
                     "            self.emit(Out(what=n, v=0.5))"]  # fmt: skip
        if rng.random() < 0.3:
            lines += ["        if self.now % 4 == 3:", "            self.reject('tick')"]
        return lines

    def _listed(self, name: str, kind: str, views: list[str]) -> list[str]:
        """Loops over every key that compile."""
        rng, counts = self.rng, kind in ("counter", "pair", "text")
        views = [v for v in views if not (kind == "mean" and name in self.removed and ".last(" in v)]
        over = rng.choice(views[:1] if kind == "plain" else views)
        item, what = {"pair": ("((a, b), v)", "7 * a + b"), "text": ("(k, v)", "1 if k == 'a' else 2"), "set": ("k", "k")}.get(
            kind, ("(k, v)", "k")
        )  # fmt: skip
        value = {
            "set": "0.5",
            "flag": "1.5 if v is None else v[0] + v[1]",
            "newest": "2.5 if v is None else v",
        }.get(kind, "v")
        read = f"top({rng.choice((1, 2, 3, 'self.w'))})" if counts and rng.random() < 0.5 else "items()"
        lines = [
            f"        for n, {item} in enumerate({over}.{read}):",
            f"            self.emit(Out(what=n + 10 * ({what}), v={value}))",
        ]
        if kind == "counter" and rng.random() < 0.4:
            lines.append(f"            self.{name}[k + 1] += 1")
        return lines

    def _statement(self, depth: int, *, in_loop: bool = False) -> list[str]:
        rng, pad = self.rng, "    " * depth
        turn = rng.random()
        if self.far and turn < 0.12:
            return [f"{pad}if e.m * 2**62 % 3 == 1:", *self._statement(depth + 1, in_loop=in_loop)]
        if turn < 0.40:
            return [pad + self._write("i" if in_loop and rng.random() < 0.5 else "e.k")]
        if turn < 0.75 or depth > 3:
            return [f"{pad}self.emit(Out(what={rng.randrange(100)}, v={self._read()}))"]
        if turn < 0.80:
            return [f"{pad}if {self._read()} > {rng.randint(2, 4)}:", f"{pad}    self.reject('no')"]
        if turn < 0.92 or in_loop:
            return [
                f"{pad}if {self._read()} > {rng.randint(0, 3)}:",
                *self._statement(depth + 1, in_loop=in_loop),
            ]
        return [f"{pad}for i in e.items:", *self._statement(depth + 1, in_loop=True)]

    def _write(self, k: str) -> str:
        name, kind = self.rng.choice(list(self.states.items()))
        choices = {
            "counter": [f"self.{name}[{k}] += e.m", f"self.{name}[{k}] -= 1", f"self.{name}.add({k})",
                        *([f"self.{name}[{k}] = e.m", f"del self.{name}[{k}]"] if self.set else [])],
            "pair": [f"self.{name}[{k}, e.m] += 1", f"self.{name}[e.m, {k}] = 3"],
            "text": [f"self.{name}[e.s] += 1", f"self.{name}[e.s] += e.m"],
            "mean": [f"self.{name}.add({k}, e.m)"]
            + ([f"self.{name}.remove({k}, e.m)", f"del self.{name}[{k}]"] if name in self.removed else []),
            "set": [f"self.{name}.add({k})", f"self.{name}.add({k})", f"self.{name}.discard({k})"],
            "setof": [f"self.{name}.add({k}, e.m)", f"self.{name}.add({k}, e.m)", f"self.{name}.discard({k}, e.m)"],
            "plain": [f"self.{name}[{k}] += e.m"],
            "value": [f"self.{name}[{k}] = e.m", f"self.{name}[{k}] += 1", f"del self.{name}[{k}]", f"self.{name}.pop({k})"],
            "flag": [f"self.{name}[{k}] = (e.m, 0.5)", f"self.{name}[{k}] = None", f"del self.{name}[{k}]"],
            "map": [f"self.{name}[{k}, e.k] = e.m", f"self.{name}[{k}, 1] += e.m", f"self.{name}.pop(({k}, 1))"],
            "least": [f"self.{name}.add({k}, e.m)", f"self.{name}.add({k}, e.m % 3)", f"self.{name}.add({k}, -e.m)",
                      f"del self.{name}[{k}]"],
            "most": [f"self.{name}.add({k}, e.m)", f"self.{name}.add({k}, -0.0 if e.m == 1 else 0.0)",
                     f"self.{name}.add({k}, e.m % 2 - 0.5)", f"del self.{name}[{k}]"],
            "newest": [f"self.{name}.add({k}, e.m)", f"self.{name}.add({k}, None)", f"self.{name}.add({k}, -e.m)"],
        }  # fmt: skip
        return self.rng.choice(choices[kind])

    def _read(self) -> str:
        rng = self.rng
        name, kind = rng.choice(list(self.states.items()))
        lag = rng.choice(_LAGS)
        last, ago = f"self.{name}.last({lag})", f"self.{name}.ago({lag})"
        if name in self.removed:
            last = ago
        choices = {
            "counter": [f"{last}[e.k]", f"{last}[e.m]", f"{ago}[e.k]", f"({last}[e.k] + self.{name}[e.k])", f"(1 if e.k in {last} else 0)",
                        f"(1 if e.m in {ago} else 0)"],
            "pair": [f"{last}[e.m, e.k]", f"{last}[e.k, e.m]", f"{ago}[e.k, 1]"],
            "text": [f"{last}[e.s]", f"{ago}['b']"],
            "mean": [f"{last}.get(e.k, 0.5)", f"({last}[e.k] or 0.0)", f"{last}.sum(e.m)", f"{ago}.count(e.k)", f"(1 if e.k in {last} else 0)"],
            "set": [f"(1 if e.k in self.{name}.last({lag}) else 0)", f"(1 if e.m in self.{name}.last({lag}) else 0)"],
            "setof": [f"self.{name}.last({lag}).count(e.k)", f"(1 if (e.k, e.m) in self.{name}.last({lag}) else 0)"],
            "plain": [f"self.{name}[e.k]"],
            "value": [f"self.{name}.last({lag})[e.k]", f"self.{name}.last({lag}).get(e.m, 7)", f"(1 if e.k in self.{name}.last({lag}) else 0)"],
            "flag": [f"(0 if self.{name}.last({lag})[e.k] is None else 1)", f"(1 if e.m in self.{name}.last({lag}) else 0)"],
            "map": [f"self.{name}.last({lag})[e.k, 1]", f"self.{name}.last({lag}).get((e.m, e.k), 5)"],
            "least": [f"self.{name}.last({lag}).get(e.k, 9)", f"(self.{name}.last({lag})[e.m] or 0)",
                      f"(1 if e.k in self.{name}.last({lag}) else 0)"],
            "newest": [f"(self.{name}.last({lag})[e.k] or 0)", f"(self.{name}.last({lag}).get(e.m, 7) or 5)",
                       f"(1 if e.k in self.{name}.last({lag}) else 0)"],
            "most": [f"self.{name}.last({lag})[e.k]", f"(self.{name}.last({lag})[e.m] + self.{name}[e.k])"],
        }  # fmt: skip
        return rng.choice(choices[kind])


def windowed_program(seed: int, *, timed: bool = False, summed: bool = False) -> str:
    """The source of a program; `timed`: with ticks, or handlers that are called later; `summed`: windows of sums only."""
    return by_method(_Writer(seed, timed=timed, summed=summed).program())


def windowed_log(program: Any, seed: int, count: int, *, edges: bool = False) -> list[Event]:
    """Events on few keys at times of few microseconds; with `edges` a few values at the limits."""
    rng = random.Random(seed)
    now, found = rng.choice((0, 5, -3)), []
    kinds = list(spec_of(program).events)
    for _ in range(count):
        now += rng.choice((0, 0, 1, 1, 2, 3, 5))
        m = rng.choice((2**62, 2**63 - 1, -(2**62))) if edges and rng.random() < 0.1 else rng.randint(-1, 3)
        items = [rng.randint(0, 3) for _ in range(rng.choice((0, 1, 3, 9)))]
        made: Any = rng.choice(kinds)
        found.append(made(k=rng.randint(0, 3), m=m, s=rng.choice("abb"), items=items)._at(now, -1))
    return found
