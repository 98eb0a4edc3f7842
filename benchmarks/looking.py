"""What it costs to look into runs of every program of the catalogue (docs/programs.md): why, why-not, state --key, with and without --at.

    python -m benchmarks.looking --events 2000000
    python -m benchmarks.looking --events 10000000 --only AnsweredByNow

Of each kind several questions are asked in this process: about an ordinary and a busy key of every state, about outputs and events in the
log's third quarter, and of the busiest keys. The dearest of them are asked again as commands, processes of their own, with Python's compiled
modules kept; of the dearest command the median is shown: seconds by the clock, and in brackets those of all processors.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

import timelapse as tl
from tests.programs.catalogue import CATALOGUE, SIZES, Entry
from tests.programs.data import make
from timelapse import trace
from timelapse.kinds.base import UNKEYED, StateSpec
from timelapse.kinds.mean import SUM, Mean
from timelapse.moments import time_text
from timelapse.program.program import spec_of
from timelapse.run import Run
from timelapse.store.scratch import temporary_folder

_ROOT = Path(__file__).resolve().parents[1]
KINDS = ("why", "why-not", "state --key", "state --key --at")
_COMMANDS = 2
"""So many of the dearest questions of a kind are asked as commands: which is dearest is not quite the same in a process that is warm."""


@dataclass
class Way:
    """How a question was answered, from what was told while it was."""

    stages: list[str] = field(default_factory=list)

    def stage(self, name: str, total: int) -> None:
        self.stages.append(name)

    def advance(self, name: str, done: int, total: int) -> None: ...
    def finish(self, name: str, seconds: float) -> None: ...
    def note(self, text: str) -> None: ...

    @property
    def text(self) -> str:
        """`events`: those that matter, alone; `compiled`: through the log or a slice; `loop`: by the serial loop. How often."""
        loops = sum(s == "the serial loop" for s in self.stages)
        through = len(self.stages) - loops
        found = [
            f"{name} x{n}" if n > 1 else name for name, n in (("compiled", through), ("loop", loops)) if n
        ]
        return " + ".join(found) or "events"


class Question(NamedTuple):
    """One question: its kind, the command's arguments, and the same in Python."""

    kind: str
    command: tuple[str, ...]
    ask: Callable[[Run, Way], Any]


class Took(NamedTuple):
    """Seconds by the clock, and of all processors."""

    wall: float
    cpu: float

    @property
    def text(self) -> str:
        return f"{self.wall:.1f} ({self.cpu:.1f})"


class Asked(NamedTuple):
    """What a question took in this process."""

    took: Took
    way: str
    question: Question


def questions(run: Run) -> Iterator[Question]:
    """What is asked about a run."""
    reader = run.need_reader()
    middle = reader.count * 3 // 4
    heard = {cls.__name__ for cls in spec_of(run.need_program()).events}
    near = next(
        iter(reader.chunks(middle, middle + 4096, {t.name: [] for t in reader.types if t.name in heard}))
    ).tables
    yield from (_why(run, name) for name, count in run.counts.items() if count)
    for table in near.values():
        if table.num_rows:
            yield _why_not(table.column("seq")[table.num_rows // 2].as_py())
    at = reader.ts_before(middle)
    assert at is not None
    for spec in spec_of(run.need_program()).states.values():
        for key in _keys(run, spec):
            yield from _history(spec, key, at)


def _why(run: Run, name: str) -> Question:
    rows = run.stored(name)
    row = rows.slice(rows.num_rows * 3 // 4, 1).to_pylist()[0]
    what = str(row["seq"]) if row["phase"] == 3 else f"{name}@{_when(row['ts'])}"
    return Question("why", ("why", "RUN", what), lambda run, way: trace.why(run, what, progress=way).text)


def _why_not(seq: int) -> Question:
    return Question(
        "why-not", ("why-not", "RUN", str(seq)), lambda run, way: trace.why_not(run, seq, progress=way).text
    )


def _history(spec: StateSpec, key: Any, at: int) -> Iterator[Question]:
    own = () if spec.key is None else ("--key", _text(key))
    given = UNKEYED if spec.key is None else key
    command = ("state", "RUN", spec.name, *own)
    yield Question(
        "state --key", command, lambda run, way: trace.history(run, spec.name, given, progress=way).text
    )
    yield Question(
        "state --key --at", (*command, "--at", _when(at)),
        lambda run, way: trace.history(run, spec.name, given, at=at, progress=way).text,
    )  # fmt: skip


def _keys(run: Run, spec: StateSpec) -> list[Any]:
    """Keys as they are stored: an ordinary one, and a busy one (with the largest number; else the first, as keys are drawn unevenly)."""
    if spec.key is None:
        return [UNKEYED]
    table = run.state(spec.name)
    if not table.num_rows:
        return []
    values = table.column("value") if "value" in table.column_names else pa.chunked_array([[]])
    busy = pc.index(values, pc.max(values)).as_py() if pa.types.is_integer(values.type) else 0
    rows = [table.slice(place, 1).to_pylist()[0] for place in dict.fromkeys((table.num_rows // 2, busy))]
    return [_stored(spec, row) for row in rows]


def _stored(spec: StateSpec, row: dict[str, Any]) -> Any:
    parts: list[Any] = []
    for part in (row[name] for name in ("key", "field", "member") if name in row):
        parts += part.values() if isinstance(part, dict) else [part]
    if spec.kind is Mean:
        parts.append(SUM)
    return tuple(parts) if len(parts) > 1 else parts[0]


def _text(key: Any) -> str:
    return repr(key) if isinstance(key, tuple) else str(key)


def _when(ts: int) -> str:
    return time_text(ts).replace(" ", "T")


def measured(path: Path) -> dict[str, list[Asked]]:
    """The questions of each kind, the dearest first."""
    found: dict[str, list[Asked]] = {}
    asked = list(questions(Run.open(path)))
    for question in asked[:1]:
        question.ask(Run.open(path), Way())  # loads what all of them need
    for question in asked:
        gc.collect()
        way, run, began, used = Way(), Run.open(path), time.monotonic(), time.process_time()
        question.ask(run, way)
        one = Asked(Took(time.monotonic() - began, time.process_time() - used), way.text, question)
        _tell(one.took, one.way, question)
        found.setdefault(question.kind, []).append(one)
    return {kind: sorted(own, key=lambda one: -one.took.wall) for kind, own in found.items()}


def _tell(took: Took, way: str, question: Question) -> None:
    print(
        f"    {took.wall:6.2f} {took.cpu:6.2f}  {way:16}  {' '.join(question.command)}",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def commanded(question: Question, path: Path) -> Took:
    """What the question takes as a command."""
    arguments = [str(path) if part == "RUN" else part for part in question.command]
    began, before = time.monotonic(), _children()
    done = subprocess.run(
        [sys.executable, "-m", "timelapse.cli.main", *arguments], capture_output=True, text=True, check=False,
        env={
            **os.environ, "PYTHONPATH": f"{_ROOT / 'src'}", "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(path.parents[1] / "modules"),
        },
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(f"timelapse {' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
    return Took(time.monotonic() - began, _children() - before)


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def replayed(entry: Entry, events: int, folder: Path) -> Path:
    """A run of the program over a log of its own, made now unless it is there."""
    path = folder / f"{entry.name}-{events}"
    if not (path / "run").exists():
        log = make(entry.mix(SIZES["large"]), events).log(path / "log", entry.classes())
        os.environ["TIMELAPSE_KERNEL"] = "native"  # waits for the compiler
        tl.replay(entry.program(), log, spark=False, cache=False, out=str(path / "run"))
        os.environ["TIMELAPSE_KERNEL"] = "auto"
    return path / "run"


class Costs(NamedTuple):
    """What looking into a run of one program took: of each kind the dearest question, as a command."""

    name: str
    cells: dict[str, tuple[Took, str]]
    """By kind: what it took, and how it was answered."""
    compiled: bool
    """Whether the replay's final pass was compiled, so that looking is to be, too."""

    def shown(self) -> list[str]:
        """A cell for each kind of question."""
        return [f"{own[0].text} {own[1]}" if (own := self.cells.get(kind)) else "-" for kind in KINDS]


def costs(entry: Entry, events: int, folder: Path, rounds: int = 1) -> Costs:
    """Look into a run of a program: see the module."""
    path = replayed(entry, events, folder)
    cells: dict[str, tuple[Took, str]] = {}
    for kind, asked in measured(path).items():
        for one in asked[:_COMMANDS]:
            commanded(one.question, path)  # keeps compiled modules
            each = [commanded(one.question, path) for _ in range(rounds)]
            took = Took(median(own.wall for own in each), median(own.cpu for own in each))
            _tell(took, "as a command", one.question)
            if kind not in cells or took.wall > cells[kind][0].wall:
                cells[kind] = took, one.way
    passes = Run.open(path).certificate["passes"]
    return Costs(entry.name, cells, passes["final"] == "compiled")


def catalogue(events: int, folder: Path, rounds: int = 1, only: Sequence[str] = ()) -> Iterator[Costs]:
    """All programs, or those named `only`."""
    for entry in CATALOGUE:
        if not only or entry.name in only:
            print(entry.name, file=sys.stderr, flush=True)
            yield costs(entry, events, folder, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--only", action="append", default=[], help="a program's class")
    parser.add_argument("--folder", type=Path, help="where logs and runs are kept for the next time")
    parser.add_argument("--rounds", type=int, default=1, help="commands: the median of so many")
    given = parser.parse_args()
    print(f"| program | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    with temporary_folder("look", large=True) as temporary:
        for one in catalogue(given.events, given.folder or temporary, given.rounds, tuple(given.only)):
            name = f"`{one.name}`{'' if one.compiled else ' (as Python)'}"
            print(f"| {name} | {' | '.join(one.shown())} |", flush=True)


if __name__ == "__main__":
    main()
