"""What docs/semantics.md says of the supported Python is what analysis and definition do."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from timelapse.analysis import analyse
from timelapse.errors import DefinitionError
from timelapse.plan import make_plan
from timelapse.program.load import load_program

HEAD = """
import functools
import math
import timelapse as tl


class E(tl.Event):
    k: int
    v: int
    name: str


class R(tl.Record):
    k: int


def both(a, b):
    return (a, b)


class P(tl.Program):
    limit: int = 3
    seen: tl.Set[int]
    n: tl.Counter[int]
    best: tl.Value[int, int] = tl.state(default=0)
    first: tl.Value[int, int | None]

    def helper(self, k):
        self.n[k] += 1

    @property
    def big(self):
        return self.limit > 2

    @tl.on(E)
    def handle(self, e):
"""

ANALYSED = {
    "branches and loops": """
        for i in range(e.v):
            if i == e.k:
                break
            self.n[i] += 1
        else:
            self.seen.add(e.k)
        while e.v > 100:
            return
    """,
    "try, with, assert, match": """
        try:
            x = 1 // e.v
        except ZeroDivisionError:
            x = 0
        finally:
            y = 2
        assert y == 2
        match e.k:
            case 1:
                self.n[x] += 1
            case _:
                pass
    """,
    "locals and expressions": """
        a, (b, *c) = e.k, (e.v, 1, 2)
        if (w := a + b) > 3 and 0 < w < 9 or not c:
            self.n[w if w else 1] += sum(i for i in c)
        text = f"{e.k}-{len(e.name)}"
        self.n[len(text)] += 1
    """,
    "methods and helpers": """
        self.helper(e.k)
        if self.big and both(e.k, 1) != (0, 0):
            self.n[max(e.k, 1)] += int(math.sqrt(4))
    """,
    "mutable locals": """
        found = []
        other = found
        other.append(e.k)
        for k in found:
            self.n[k] += 1
    """,
    "membership": "if e.k not in self.seen: self.seen.add(e.k)",
    "early return": """
        if e.k in self.seen:
            return
        self.seen.add(e.k)
    """,
    "running maximum": "if e.v > self.best[e.k]: self.best[e.k] = e.v",
    "max()": "self.best[e.k] = max(self.best[e.k], e.v)",
    "addition written out": "self.n[e.k] = self.n[e.k] + 1",
    "first write": "if e.k not in self.first: self.first[e.k] = e.v",
}

OPAQUE = {
    "a state as a value": "c = self.seen; c.add(e.k)",
    "self passed on": "functools.partial(print, self); self.n[e.k] += 1",
    "a method as a value": "f = self.helper; f(e.k)",
    "nested functions": "f = lambda: self.helper(e.k); f()",
    "access by name": "getattr(self, 'n')[e.k] += 1",
    "a class in a handler": """
        class X:
            pass
        self.n[e.k] += 1
    """,
}

REFUSED = {
    "global": "global x; x = 1",
    "undeclared attributes": "self.other = 1",
    "generators": "yield 1",
}


def program(folder: Path, body: str) -> str:
    inner = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    (folder / "snippet.py").write_text(HEAD + inner + "\n")
    return f"{folder}/snippet.py:P"


@pytest.mark.parametrize("name", ANALYSED)
def test_analysed(tmp_path: Path, name: str) -> None:
    """No diagnostic, and every state scans."""
    analysis = analyse(load_program(program(tmp_path, ANALYSED[name]))())
    assert [str(d) for d in analysis.diagnostics] == []
    plan = make_plan(analysis, slices=4)
    assert {str(stage.strategy) for stage in plan.stages} <= {"scan"}


@pytest.mark.parametrize("name", OPAQUE)
def test_opaque(tmp_path: Path, name: str) -> None:
    """A diagnostic of the TL30x group that says what to write instead."""
    analysis = analyse(load_program(program(tmp_path, OPAQUE[name]))())
    codes = {d.code for d in analysis.diagnostics}
    assert any(code.startswith(("TL30", "TL31")) for code in codes), codes
    assert all(d.remedy for d in analysis.diagnostics)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path: Path, name: str) -> None:
    """The class statement raises, with line and hint."""
    with pytest.raises(DefinitionError) as caught:
        load_program(program(tmp_path, REFUSED[name]))
    assert caught.value.place.line is not None
    assert caught.value.hint
