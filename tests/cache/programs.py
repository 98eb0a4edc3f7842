"""A program in files of its own, which tests edit as users do: text, helpers, constants, base classes."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import timelapse as tl

EVENTS = """
import timelapse as tl

class Join(tl.Event):
    a: int
    b: int

class Say(tl.Event):
    id: int
    who: int
    to: int
    text: str
"""
HELPERS = """
STEP = 1

def pair(a, b):
    return (a, b) if a < b else (b, a)

def weight(text):
    return len(text) + STEP
"""
PROGRAM = """
import timelapse as tl
from cachetest_events import Join, Say
from cachetest_helpers import pair, weight

class Loud(tl.Record):
    id: int
    score: int

class Base(tl.Program):
    friends: tl.Set[tuple[int, int]]

    @tl.on(Join)
    def befriend(self, e):
        self.friends.add(pair(e.a, e.b))

    def bonus(self, n):
        return n % 3

class Talk(Base):
    least: int = 2
    limit: int = 3
    WORD = "x"

    known: tl.Counter[int]
    other: tl.Counter[int]
    last: tl.Value[int, int] = tl.state(default=-1)

    @tl.on(Say)
    def count(self, e):
        if pair(e.who, e.to) in self.friends:
            self.known[e.who] += weight(e.text)
        elif len(e.text) >= self.least:
            self.other[e.who] += self.bonus(e.id) + 1
        if e.text == self.WORD:
            self.last[e.to] = e.who

    @tl.on(Say)
    def flag(self, e):
        if self.other[e.who] > self.limit * self.known[e.who] and e.who != e.to:
            self.emit(Loud(id=e.id, score=self.other[e.who] - self.last[e.who]))
"""
SOURCES = {"cachetest_events": EVENTS, "cachetest_helpers": HELPERS, "cachetest_program": PROGRAM}


@contextmanager
def written(folder: Path, **texts: str) -> Iterator[ModuleType]:
    """The program imported from files in `folder`; `texts` replaces whole files, by the end of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SOURCES.items():
        (folder / f"{name}.py").write_text(texts.get(name.partition("_")[2], text))
    sys.path.insert(0, str(folder))
    dont, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        _forget()
        importlib.invalidate_caches()
        yield importlib.import_module("cachetest_program")
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = dont
        _forget()


def _forget() -> None:
    for name in SOURCES:
        sys.modules.pop(name, None)
    linecache.clearcache()


def events(module: ModuleType, count: int = 400, seed: int = 0) -> list[tl.Event]:
    """Deterministic events with few keys and many ties."""
    made: list[Any] = []
    state = seed
    for n in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        r = state >> 33
        who, to = r % 7, r // 7 % 7
        text = ("", "x", "yy", "x" * 5)[r // 49 % 4]
        if r // 196 % 5 == 0:
            made.append(module.Join(a=who, b=to, ts=n // 3))
        else:
            made.append(module.Say(id=n, who=who, to=to, text=text, ts=n // 3))
    return made
