"""Compiles what compiled passes need beside their own code: taking over states, hashing and ordering what was done, text.

Such functions are compiled when they are first called. A small replay should never wait for that, so whoever compiles passes
that nobody waits for runs these programs before (`compile.py`): a pass that is there is then all that was missing.
(Where somebody does wait, a second process compiles only the most usual ones, `native/usual.py`, which is sooner done.)
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from itertools import pairwise

from timelapse.analysis import analyse, build_pass, final_pass
from timelapse.analysis.result import PassProgram
from timelapse.kernels.choose import SliceKernel
from timelapse.kernels.native.machine import store
from timelapse.kernels.native.machine.version import compiler_version
from timelapse.kernels.native.usual import compile_usual
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import USUAL
from timelapse.kinds.counter import Counter
from timelapse.kinds.extremum import Max
from timelapse.kinds.set import Set
from timelapse.kinds.value import Value
from timelapse.log import MemoryLog
from timelapse.model.events import Event, Record
from timelapse.program.program import Program, on, spec_of
from timelapse.tables.apply import empty
from timelapse.tables.merge import fold


class Pair(Event):
    """Two numbers."""

    a: int
    b: int


class Note(Event):
    """A bit of everything."""

    id: int
    user: int
    place: str
    text: str
    amount: float


class Found(Record):
    """What is put out."""

    id: int
    place: str


class Broad(Program):
    """States under all kinds of keys, with values of all kinds."""

    pairs: Set[tuple[int, int]]
    sent: Counter[int]
    seen: Counter[str]
    last: Value[str, str | None]
    amount: Value[int, float | None]
    most: Max[int, int | None]

    @on(Pair)
    def join(self, e: Pair) -> None:
        self.pairs.add((e.a, e.b))

    @on(Note)
    def note(self, e: Note) -> None:
        self.sent[e.user] += 1
        self.seen[e.place] += 1
        self.last[e.place] = e.text
        self.amount[e.user] = e.amount
        self.most.add(e.user, e.id)
        if (e.user, e.id) not in self.pairs and "@" in e.text:
            self.emit(Found(id=e.id, place=e.place))


class ByUser(Program):
    """All state is under one key of each event, so threads share the events."""

    mean: Value[int, float | None]

    @on(Note)
    def smooth(self, e: Note) -> None:
        mean = self.mean[e.user]
        if mean is None:
            mean = e.amount
        self.mean[e.user] = mean + 0.1 * (e.amount - mean)
        if e.amount > 3.0 * mean:
            self.emit(Found(id=e.id, place=e.place))


class Recent(Program):
    """A sliding window."""

    sent: Counter[int]

    @on(Note)
    def note(self, e: Note) -> None:
        self.sent[e.user] += 1
        if self.sent.last(10)[e.user] > 3:
            self.emit(Found(id=e.id, place=e.place))


_waiting = partial(SliceKernel, share=USUAL.warm_events, tuning=replace(USUAL, times=USUAL.cold_events))
"""The compiler is waited for, however few events there are."""


def rehearse() -> None:
    """Compile them into the cache, unless they are there."""
    name = hashlib.sha256(f"{compiler_version()} rehearsal".encode()).hexdigest()[:32]
    with store.being_made(name):
        if store.has(name):
            return
        compile_usual()
        for program in (Broad, ByUser, Recent):
            _run(program())
        store.write(name, b"")


def _run(program: Program) -> None:
    """Each pass over slices whose start is carried, loaded and taken over key by key."""
    found = analyse(type(program))
    scans = [
        name for part in found.components for name in part
        if len(part) == 1 and not found.facts[name].depends_on and not found.facts[name].composes
    ]  # fmt: skip
    if scans and not spec_of(program).times:
        _slices(program, build_pass(found, "delta", scans, scans), final=False)
    _slices(program, final_pass(found), final=True)


def _slices(program: Program, work: PassProgram, *, final: bool) -> None:
    log = MemoryLog(_events(), [Pair, Note])
    classes = {c.__name__: c for c in (Pair, Note) if c.__name__ in work.columns}
    cuts = [0, 400, 1_000, log.count]
    made = _waiting(program, work, {}, 0, final=final, workers=2)
    results = [made.run(Source(log, lo, hi, classes, work.columns), _unheard) for lo, hi in pairwise(cuts)]
    specs = spec_of(program).states
    if not final or spec_of(program).times:
        return
    starts = {n: fold(spec, empty(spec), [results[0].effects[n]]) for n, spec in specs.items()}
    for memory in (None, 0):
        kernel = _waiting(program, work, starts, log.count, final=True, memory=memory)
        kernel.run(Source(log, cuts[1], cuts[2], classes, work.columns), _unheard)


def _events() -> list[Event]:
    """Enough that tables grow."""
    made: list[Event] = []
    for n in range(3_000):
        made.append(Pair(a=n, b=n % 7)._at(2 * n, 2 * n))
        text = "a@b" if n % 2 else "no"
        event = Note(id=n, user=n % 2_000, place=f"p{n % 50}", text=text, amount=float(n % 9))
        made.append(event._at(2 * n + 1, 2 * n + 1))
    return made


def _unheard(events: int) -> None:
    """Nobody asks how far it is."""
