"""Random programs that send events: sends put into the text of programs that do not."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator

_SENT = "D"
"""The event type that only handlers send (though a log may have it too)."""
_READS = (("tl.Counter[int]", "self.{}[e.b]"), ("tl.Set[int]", "int(e.b in self.{})"),
          ("tl.Value[int, int] = tl.state(default=0)", "self.{}[k]"))  # fmt: skip


def sending(rng: random.Random, text: str, *, later: bool = False) -> str:
    """A random program's source with sends in some places of its handlers and methods.

    With `later` some of them are dated or timers, and timers are cancelled. What is sent is handled by handlers that send in turn: the field `a` counts down, so it ends.
    """
    lines = text.splitlines()
    there = list(places(ast.parse(text)))
    heard = re.findall(r"    @tl\.on\(([^()]*)\)", text)
    events = sorted({name for names in heard for name in names.split(", ")})
    reads = [
        read.format(name) for declared, read in _READS
        for name in re.findall(rf"^    (s\d): {re.escape(declared)}$", text, re.MULTILINE)
    ]  # fmt: skip
    chosen = rng.sample(there, min(len(there), rng.randint(1, 5 if later else 3)))
    for line, indent in sorted(chosen, reverse=True):
        lines.insert(line - 1, " " * indent + _send(rng, events, reads, later))
    made = "\n".join(lines) + "\n"
    made = made.replace("class Out(tl.Record):", _declared(_SENT) + "class Out(tl.Record):")
    at = [m.start() for m in re.finditer(r"    @tl\.on\(", made)]
    for place in sorted(rng.sample(at, rng.randint(1, len(at))), reverse=True):
        made = made[:place] + made[place:].replace("@tl.on(", f"@tl.on({_SENT}, ", 1)
    return made


def _declared(name: str) -> str:
    return f"class {name}(tl.Event):\n    a: int\n    b: int\n    s: str\n    on: bool\n    items: list[int]\n    m: Money\n\n\n"


def _send(rng: random.Random, events: list[str], reads: list[str], later: bool) -> str:
    kind = rng.choice([_SENT, _SENT, *events])
    b = rng.choice(["e.b", "small(n)", "small(k)", "e.a", *reads, *reads])
    on = rng.choice(["e.on", "not e.on", "n > 2"])
    items = rng.choice(["e.items", "[]", "[k % 3, 1]"])
    made = f"{kind}(a=min(e.a, 2) - 1, b=({b}) % 4, s=e.s, on={on}, items={items}, m=e.m)"
    test = rng.choice(
        [
            "e.a > 0",
            "e.a > 0",
            "e.a > 0 and e.on",
            "e.a > 0 and k > 1",
            *[f"e.a > 0 and {r} > 1" for r in reads],
        ]
    )
    key = rng.choice(["e.b", "k % 3", "(small(n) % 2, e.on)", "True"])
    if later and rng.random() < 0.25:
        return f"self.cancel({kind}, key={key})"
    when = ""
    if later and rng.random() < 0.8:
        times = [
            "after=1",
            "after=5",
            "after=2 * 3",
            "after=self.limit",
            "after=e.b",
            "at=self.now + (e.b + n) % 7",
        ]
        when = f", {rng.choice(times)}"
    if later and rng.random() < 0.5:
        when += f", key={key}"
    return f"if {test}: self.send({'sent := ' if rng.random() < 0.2 else ''}{made}{when})"


def places(module: ast.Module) -> Iterator[tuple[int, int]]:
    """Where a statement can be put: line and indent, in functions with an event `e` and locals `n` and `k`."""
    for cls in module.body:
        if isinstance(cls, ast.ClassDef):
            for function in cls.body:
                if isinstance(function, ast.FunctionDef) and re.fullmatch(r"[hm]\d+", function.name):
                    if "e" in (a.arg for a in function.args.args):
                        yield from _within(function.body[2:])


def _within(body: list[ast.stmt]) -> Iterator[tuple[int, int]]:
    for statement in body:
        yield statement.lineno, statement.col_offset
        match statement:
            case ast.If(body=inner) | ast.For(body=inner) | ast.While(body=inner):
                yield from _within(inner)
