"""Programs from a few lines, and fixtures: a handler's body and what the analysis is to say of it.

A fixture file holds cases, each a title, a body, and lines like `=> seen: set, del needs nothing`.
`def` at the start of a line begins a method; `top:` before it a function of the module.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import timelapse as tl
from tests.writers.sources import load_source
from timelapse.analysis import Analysis, analyse

FIXTURES = Path(__file__).parent / "fixtures"

MODULE = """\
import contextlib
import math
import re
from typing import NamedTuple

import timelapse as tl


class E(tl.Event):
    a: int
    b: int
    s: str
    x: float
    o: int | None
    on: bool
    items: list[int]


class F(tl.Event):
    a: int


class Out(tl.Record):
    a: int


def pair(a, b):
    return (a, b) if a < b else (b, a)


{top}


class P(tl.Program):
    limit: int = 3
    seen: tl.Set[int]
    pairs: tl.Set[tuple[int, int]]
    count: tl.Counter[int]
    other: tl.Counter[int]
    total: tl.Counter
    best: tl.Value[int, int] = tl.state(default=0)
    high: tl.Value[int, float] = tl.state(default=0.0)
    name: tl.Value[int, str] = tl.state(default="")
    last: tl.Value[int, int | None]
    top: tl.Value[int] = tl.state(default=0)
    peak: tl.Max[int, int] = tl.state(default=0)
    origin: tl.First[int, int] = tl.state(default=0)

{methods}

    @tl.on(E)
    def handle(self, e):
{body}

{handlers}
"""


def source(body: str, *, methods: str = "", top: str = "", handlers: str = "") -> str:
    """A module with a program `P` whose handler `handle` has this body."""
    return MODULE.format(
        body=textwrap.indent(textwrap.dedent(body).strip() or "pass", " " * 8),
        methods=textwrap.indent(textwrap.dedent(methods).strip(), " " * 4),
        handlers=textwrap.indent(textwrap.dedent(handlers).strip(), " " * 4),
        top=textwrap.dedent(top).strip(),
    )  # fmt: skip


def program(body: str, **parts: str) -> type[tl.Program]:
    return load_source(source(body, **parts))


def analysis(body: str, **parts: str) -> Analysis:
    found = analyse(program(body, **parts))
    found.verify()
    return found


def said(found: Analysis, state: str) -> str:
    """What the analysis says of one state, as fixtures write it."""
    facts = found.facts[state]
    effects = list(dict.fromkeys(w.effect for w in facts.writes))
    needs = [s for s in found.facts if s in facts.depends_on]
    text = f"{', '.join(effects) or 'unwritten'} needs {', '.join(needs) or 'nothing'}"
    return text if facts.composes is None or "opaque" in effects else f"{text}, does not compose"


@dataclass(frozen=True)
class Case:
    """One case of a fixture file."""

    file: str
    title: str
    body: str
    methods: str
    top: str
    expected: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"


def cases(pattern: str) -> list[Case]:
    """The cases of all fixture files that match."""
    found = []
    for path in sorted(FIXTURES.glob(pattern)):
        for text in path.read_text().split("\n# ")[1:]:
            title, *lines = text.splitlines()
            expected = [line[3:].split(": ", 1) for line in lines if line.startswith("=> ")]
            code = "\n".join(line for line in lines if not line.startswith("=> "))
            parts = {"body": "", "methods": "", "top": ""}
            current = "body"
            for line in code.splitlines():
                if line.rstrip() in ("top:", "methods:", "body:"):
                    current = line.strip()[:-1]
                else:
                    parts[current] += line + "\n"
            assert expected, f"{path.name}: {title} expects nothing"
            found.append(Case(path.stem, title, parts["body"], parts["methods"], parts["top"],
                              tuple((a, b) for a, b in expected)))  # fmt: skip
    assert found, f"no fixtures match {pattern}"
    return found
