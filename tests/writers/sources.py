"""Random programs, as source text: for oracles that compare two ways of computing the same.

    text = random_program(random.Random(7))
    program = load_source(text)
    events = random_events(program, random.Random(8), 40)

The programs are odd on purpose: few keys, writes that cancel, idioms next to what only looks like
one, early returns, loops, `try`, helpers that touch states, rejects. They never raise and always end.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.writers.methods import by_method
from tests.writers.statements import Writer
from timelapse.model.decimals import of_int
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of

_COUNT = itertools.count()
_FOLDER: list[tempfile.TemporaryDirectory[str]] = []


def random_program(rng: random.Random, size: int = 4, *, further: bool = False) -> str:
    """The source of a module with a program `P` of 2 to 4 states, its events and its record.

    `size` is the largest number of statements at the top of a handler; with `further` also states of the kinds
    beyond the first ones (testing/kind_phrases.py).
    """
    return by_method(Writer(rng, size, further).program())


def in_other_times(rng: random.Random, text: str) -> str:
    """A random program's source with some of its handlers called later, and some by the clock.

    A handler that ticks makes up its event: that costs nothing, and the statements stay as they are.
    """

    sent = set(re.findall(r"self\.send\((?:\w+ := )?(\w+)\(", text))

    def again(found: re.Match[str]) -> str:
        events, name = found["events"], found["name"]
        if sent & set(events.split(", ")):  # what is sent is heard at once
            return found[0]
        chance = rng.random()
        if chance < 0.4:
            return f"    @tl.on({events}, after={rng.choice([1, 2, 5, 6])})\n    def {name}(self, e):\n"
        if chance < 0.65:
            made = f"{events.split(',')[0]}(a=self.now % 4, b={rng.randrange(4)}, s='x', on=True, items=[1, 2], m=Decimal('0.75'))"
            return f"    @tl.every({rng.choice([1, 2, 5, 8])})\n    def {name}(self):\n        e = {made}\n"
        return found[0]

    return _HANDLER.sub(again, text)


_HANDLER = re.compile(r"    @tl\.on\((?P<events>[^()]*)\)\n    def (?P<name>\w+)\(self, e\):\n")


def load_source(text: str, name: str = "P") -> type[Program]:
    """Import a module's text from a temporary file and give the class `name` in it."""
    if not _FOLDER:
        _FOLDER.append(tempfile.TemporaryDirectory(prefix="timelapse-sources-"))
    module = f"timelapse_source_{next(_COUNT)}"
    path = Path(_FOLDER[0].name) / f"{module}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    spec.loader.exec_module(made)
    found = getattr(made, name)
    assert isinstance(found, type)
    assert issubclass(found, Program)
    return found


def random_events(program: type[Program], rng: random.Random, count: int, start: int = 0) -> list[Event]:
    """Events for a random program: few keys, many ties in time. `start`: the time before the first; also below 0."""
    types: tuple[Any, ...] = spec_of(program).events
    ts = start
    events: list[Event] = []
    for _ in range(count):
        ts += rng.choice([0, 0, 1, 5])
        cls = rng.choice(types)
        values: dict[str, Any] = {
            "a": rng.randrange(4), "b": rng.randrange(4), "s": rng.choice(["", "x", "yy"]), "on": rng.random() < 0.5,
            "items": [rng.randrange(4) for _ in range(rng.randrange(4))], "m": of_int(rng.randrange(-50, 300, 25), 2),
        }  # fmt: skip
        events.append(cls(ts=ts, **{f.name: values[f.name] for f in cls.__fields__}))
    return events
