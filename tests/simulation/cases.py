"""What simulated drivers replay: random programs over random logs, each with its serial meaning."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import timelapse as tl
from tests.engine.programs import ALL
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.analysis import Analysis, analyse
from timelapse.errors import TimelapseError
from timelapse.log import MemoryLog
from timelapse.plan import Plan
from timelapse.program.program import Program, spec_of
from timelapse.run.planning import Planner
from timelapse.run.request import Request, Settings
from timelapse.run.source import Source, open_source
from timelapse.testing import random_log


@dataclass
class Case:
    """A program over a stored log, planned in one way."""

    number: int
    program: Program
    analysis: Analysis
    source: Source
    settings: Settings
    plan: Plan
    digest: str
    """Of the serial loop."""
    state_digest: str
    memory: dict[Any, Any] = field(default_factory=dict)
    """What tasks did, by what they read (executor.py)."""


def make(number: int, folder: Path) -> Case:
    """Case `number`: the same each time."""
    rng = random.Random(number)
    while True:
        if rng.random() < 0.4:
            program: type[Program] = rng.choice(ALL)
            events: list[tl.Event] = random_log(
                spec_of(program).events, seed=rng.randrange(2**31), count=rng.randint(8, 40)
            )
        else:
            text = random_program(rng, 3)
            program = load_source(in_other_times(rng, text) if rng.random() < 0.3 else text)
            events = random_events(program, rng, rng.randint(8, 40))
        slices = rng.choice([2, 3, 3, 4, 5])
        strategy = rng.choice(["staged", "staged", "staged", "chain"])
        try:
            types = list(dict.fromkeys(type(event) for event in events))
            log = tl.Log.from_events(folder / f"log-{number}", events, types, overwrite=True)
            serial = tl.run_serial(program, log)
            settings = Settings(slices=slices, strategy=strategy, cache=False)
            there = list(log.events(*types))
            source = replace(open_source(log, program()), reader=MemoryLog(there, types))
            request = Request(program(), analyse(program()), source, settings)
            plan = Planner(request).plan(1, 1)
        except TimelapseError:
            continue
        return Case(
            number, request.program, request.analysis, source, settings, plan, serial.digest,
            serial.manifest.state_digest,
        )  # fmt: skip
