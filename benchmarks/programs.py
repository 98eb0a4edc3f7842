"""docs/programs.md: every program of the catalogue, how it runs, and how fast.

    python -m benchmarks.programs --events 1000000 > docs/programs.md
    python -m benchmarks.programs --only Ewma
    python -m benchmarks.programs --keep-figures > docs/programs.md    # how they run, again; the figures stay

A program's outputs are compared with its oracle's over the same log before its figures are written.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import timelapse as tl
from benchmarks.reading import files_of, rows_in
from tests.programs.catalogue import CATALOGUE, FEATURES, SIZES, Entry
from tests.programs.data import make
from timelapse.run.explain import explain
from timelapse.store.scratch import temporary_folder

PAGE = Path(__file__).resolve().parents[1] / "docs" / "programs.md"
_MARK = re.compile(r"^\| \[`(\w+)`\]\([^)|]*\) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", re.M)
_HEAD = """\
# Programs

Each program is written as a user would write it. In `tests/programs/` its outputs are compared with those of an independent
loop in plain Python, to the last bit, and replays in several slicings and strategies with the serial meaning, states
included. (`examples/sshd.py`, brute-force logins in a real sshd log, has its oracle in `tests/example_programs/`.)
This page is written by `python -m benchmarks.programs` (`benchmarks/programs.py`); what is not a figure is tested to be up to date.

How each state's start values are found: *scan* adds up what slices do, *by key* shares events out by a key, *chain* goes
slice after slice ([semantics.md](semantics.md)). Which of these is worth its while on two cores is the planner's choice:
where one pass over the log is faster, that is taken, whatever the strategies allow. `timelapse explain FILE:Class` gives
the reasons and the lines.

| program | what | states | passes | compiled |
|---|---|---|---|---|
"""
_FEATURES = """
## Features

Feature programs put out a row at each message, vote, login or view, with what was known then. Rows come to labels by the
event's `id`, the key of the record ([training.md](training.md)): `timelapse features FILE:Class LOG --at labels.parquet`. In
`tests/programs/test_training_rows.py` such rows are compared with what the oracle finds in the log up to that event.

| feature | field |
|---|---|
"""
_FIGURES = """
## How fast

How many times as fast as a loop in plain Python, in CPU seconds of all threads (`tests/programs/oracles.py`, `loops.py`): above 1 the program
is faster. *Reading included* is the figure that counts, as in all benchmarks here: the loop reads the same log from its
Parquet files into tuples first (`benchmarks/reading.py`), as ours reads it, and keeps its outputs in a list, where ours writes
them and the states. *Over tuples in memory*: the loop's events are there already, which ours never has.

| program | events/s | reading included | over tuples in memory |
|---|---|---|---|
"""


class Figures(NamedTuple):
    """What was measured of a program, as text."""

    rate: str = "-"
    read: str = "-"
    memory: str = "-"


def page(figures: Mapping[str, Figures], note: str) -> str:
    """The page's text."""
    rows = [_row(entry) for entry in CATALOGUE]
    measured = [
        f"| [`{e.name}`](../examples/{_file(e)}) | {' | '.join(figures.get(e.name, Figures()))} |"
        for e in CATALOGUE
    ]
    features = [
        f"| {what} | [`{where.partition(':')[2]}`](../examples/{where.partition(':')[0]}) |"
        for what, where in FEATURES
    ]
    return "\n".join([
        _HEAD + "\n".join(rows), _FEATURES + "\n".join(features), _FIGURES + "\n".join(measured), "", note, "",
    ])  # fmt: skip


def without_figures(text: str) -> str:
    """The page without what was measured."""
    return _MARK.sub(r"| \1 |", text).partition("\n\nMeasured")[0]


def figures_of(text: str) -> dict[str, Figures]:
    """The figures that stand in a page."""
    section = text.partition("## How fast")[2]
    return {name: Figures(*cells) for name, *cells in _MARK.findall(section)}


def _file(entry: Entry) -> str:
    return entry.place.partition(":")[0]


def _row(entry: Entry) -> str:
    program = entry.program()
    found = explain(program, cores=2)
    by_strategy: dict[str, list[str]] = defaultdict(list)
    for state in sorted(found.states, key=lambda s: s.stage):
        by_strategy[state.strategy].append(state.state)
    states = "; ".join(f"{s}: {', '.join(names)}" for s, names in by_strategy.items()) or "none"
    compiled = sum(p.kernel == "compiled" for p in found.passes)
    apart = (h.why for p in found.passes for h in p.handlers if not h.compiled)
    why = next((p.why for p in found.passes if p.kernel != "compiled"), None) or next(apart, "")
    why = re.sub(r" \(\w+\.py:\d+\)", "", why).replace("|", "\\|")
    shown = f"{compiled} of {len(found.passes)}" + (f"; {why}" if why else "")
    return f"| [`{entry.name}`](../examples/{_file(entry)}) | {entry.title} | {states} | {len(found.passes)} | {shown} |"


# --- measuring ------------------------------------------------------------------------------------


def measure(entry: Entry, events: int, rounds: int, folder: Path) -> Figures:
    """Replay against the oracle, over the same events. Raises AssertionError where they differ."""
    program, classes = entry.program(), entry.classes()
    made = make(entry.mix(SIZES["large"]), events)
    log = made.log(folder / entry.name, classes)
    files = files_of(log)
    rows = made.rows()
    looped = [_timed(partial(entry.loop, rows)) for _ in range(rounds)]
    wanted, in_memory = looped[0][0], min(spent[1] for _, spent in looped)
    del rows, looped
    read = []
    for _ in range(rounds):
        found, spent = _timed(lambda: entry.loop(rows_in(files)))
        assert found == wanted
        read.append(spent[1])
        del found
    with_reading = min(read)
    os.environ["TIMELAPSE_KERNEL"] = "native"  # waits for the compiler
    run, _ = _timed(lambda: tl.replay(program, log, spark=False, cache=False))
    os.environ["TIMELAPSE_KERNEL"] = "auto"
    _same(run, wanted)
    ours = [_timed(lambda: tl.replay(program, log, spark=False, cache=False))[1] for _ in range(rounds)]
    wall, cpu = (min(o[i] for o in ours) for i in (0, 1))
    return Figures(f"{events / wall:,.0f}", f"{with_reading / cpu:.2g}", f"{in_memory / cpu:.2g}")


def _timed(call: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    gc.collect()  # nobody pays for what was there before
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, (time.perf_counter() - wall, time.process_time() - cpu)


def _same(run: Any, wanted: Sequence[tuple[int, str, tuple[Any, ...]]]) -> None:
    """The outputs of each type are the oracle's, in order."""
    by_type: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for ts, kind, values in wanted:
        by_type[kind].append((ts, *values))
    assert {n: c for n, c in run.counts.items() if c} == {n: len(rows) for n, rows in by_type.items()}
    for kind, rows in by_type.items():
        stored = run.stored(kind)
        columns = [stored.column("ts"), *stored.columns[4:]]
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            expected = pa.array([list(v) if isinstance(v, tuple) else v for v in values], column.type)
            assert column.combine_chunks().equals(expected), f"{kind} differs"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--only", action="append", default=[], help="a program's class; the other figures stay"
    )
    parser.add_argument("--keep-figures", action="store_true")
    given = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    figures = figures_of(before)
    note = "Measured" + before.partition("\n\nMeasured")[2].rstrip() if "\n\nMeasured" in before else ""
    if not given.keep_figures:
        load = []
        with temporary_folder("programs", large=True) as folder:
            for entry in CATALOGUE:
                if given.only and entry.name not in given.only:
                    continue
                figures[entry.name] = measure(entry, given.events, given.rounds, folder)
                load.append(os.getloadavg()[0])
                print(entry.name, *figures[entry.name], f"load {load[-1]:.1f}", file=sys.stderr, flush=True)
        note = _note(given.events, given.rounds, load)
    sys.stdout.write(page(figures, note))


def _note(events: int, rounds: int, load: Sequence[float]) -> str:
    alone = max(load) < 1.5  # one is what is measured
    others = (
        f"The machine had nothing else to do (load {max(load):.1f} at most)."
        if alone
        else f"The machine was doing other work as well: its load was {min(load):.0f} to {max(load):.0f}. Compare CPU seconds, "
        "which count all threads;\nthe rates would be higher on a machine at rest."
    )
    return (
        f"Measured with {events:,} events and {SIZES['large']:,} keys of each kind, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, in one process without Spark, compiled code\n"
        f"there, nothing else kept; the best of {rounds}. {others}"
    )  # fmt: skip


if __name__ == "__main__":
    main()
