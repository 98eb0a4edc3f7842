"""What a pass costs, and what that means for time slices.

Handlers that run as Python: bytecode instructions of the handlers that a pass keeps (with the helpers that they call),
plus what making an event costs, per event type and weighted with the types' counts where a log is known.
Compiled ones: what reading and decoding a column costs, by type, what an access to a state costs, which grows as its
table leaves the processor's caches, and what sorting and hashing what was written costs.
"""

from __future__ import annotations

import ast
import dis
import functools
import math
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from timelapse.analysis.result import PassProgram
from timelapse.code.source import all_nodes
from timelapse.model.types import ScalarType, ValueType

EVENT_WORK = 30.0
"""Cost of an event in a pass at all, in instructions."""
COLUMN_WORK = 6.0
"""Cost of one of its columns."""
SECONDS_PER_INSTRUCTION = 4.8e-8
"""Measured over 400,000 anti-spam events, handlers as plain Python: 4.5e-8 to 5.2e-8 for each of the three passes."""
TASK_SECONDS = 0.03
"""What each task costs beside its work: scheduling, files, the merge."""
COMPILED_TASK_SECONDS = 0.13
"""The same for a compiled pass: a worker process also loads the compiler's library and the machine code."""
THREAD_TASK_SECONDS = 0.015
"""The same where tasks are threads of the driver: over 100,000 anti-spam events two forced slices took 0.06 s longer than one
(two rounds of passes, merges, and the final pass), eight 0.13 s."""
SHARING_SHARE = 0.25
"""Of a pass as Python by key, what every worker does: reading, and finding out which events are its own."""
COMPUTED_SHARE = 0.5
"""The same where the key is no field but has to be computed for every event, as Python."""
COMPILED_COMPUTED_SHARE = 8.0
"""What computing the key of every event as Python takes, relative to a compiled pass."""
MERGE_SHARE = 0.05
"""Writing the state at the log's end once, relative to the final pass."""
COMPILED_MERGE_SHARE = 0.2
"""The same, relative to a compiled one. Every merge writes what there is so far: 2 to 4 slices of 10 million anti-spam
events took 0.4 to 0.7 s for each time the whole state was written."""
LOAD_SHARE = 0.05
"""What a final pass takes over from a start state as large as the last, relative to the final pass."""
COMPILED_LOAD_SHARE = 0.15
"""The same, relative to a compiled one: its keys are looked up and their rows made. Ten million anti-spam events, at half of the log: 0.11 s
of processor time (November 2026)."""
COMPILED_HAND_SHARE = 0.2
"""What it takes a compiled final pass to end a slice and go on into the next one with a state as large as the last, relative to that pass.
Ten million anti-spam events, at half of the log: 0.24 to 0.36 s of 2.3 s of processor time at a load of 14 (November 2026)."""
LATER, LATER_SHARE = 2e-6, 0.27
"""Seconds that an event takes more as Python in a slice that does not begin empty: its dicts are larger than the processor's caches, they are
loaded, and compared at the end. And the most that this is of what it takes. Measured over a million anti-spam events in two halves (November 2026):
0.26 and 0.3 of what it takes in the first half, of which 0.21 are counted on: slower handlers cannot be told from these, and gain from even slices.
Seconds are those of handlers that are not rewritten, which take two and a half times as long."""
CROWD = 1.3
"""How much slower compiled passes are side by side on one machine than one alone: they wait for the same memory.
Measured on two virtual machines with two cores (AMD and Intel): 1.2 to 1.45."""
AROUND_SECONDS = 0.5
"""What a replay takes beside its passes, in a process that has analysed and planned it: events that are processed twice, first use
of what reads and writes files, publishing. Anti-spam, 2,000 to 3,000,000 events, two cores: 0.5 to 0.7 s of processor time."""
LOADING_SECONDS = 0.4
"""The same for machine code, beside that: the compiler's library is loaded."""
TYPICAL_EVENTS = 1_000_000
"""Size of a log that is not known."""

RECORD_SECONDS = 1e-5
"""Iterate: what recording an event takes beside its handlers as Python."""
SWEEP_SECONDS = 3e-6
"""Iterate: loading an event's recording and checking it against what its keys hold."""
AGAIN_SECONDS = 7e-5
"""Iterate: reading an event that runs again, beside its handlers."""
TYPICAL_CONFLICTS = 0.02
"""The share of events that run again, where it was not measured."""

# Compiled passes, in nanoseconds of one core: the anti-spam program's passes over two and four million events, with numbers
# and with texts, and means per sensor over ten million, November 2026 (two cores; benchmarks/calibrate.py).
READ_NS = {"int": 3.3, "float": 4.5, "bool": 3.0, "Time": 3.3, "str": 15.0, "bytes": 15.0}
"""Reading a column from Parquet, per value."""
DECODE_NS = {"int": 0.3, "float": 0.3, "bool": 3.0, "Time": 0.3, "str": 15.0, "bytes": 15.0}
"""Making it what a pass reads, per value: strings become numbers, or are tested."""
OTHER_NS = 200.0
"""A value of any other type, read and decoded."""
PLACE_NS = 10.0
"""Time and place of an event, and the order of its chunk's types."""
EVENT_NS = 8.0
"""An event in the compiled loop."""
KEY_NS = 22.0
"""Looking a key's row up, when the log has ten million events."""
KEY_GROWTH = 0.055
"""So much more for every doubling of the log, so much less for every halving (to half at most): misses of the caches."""
ACCESS_NS = 2.5
"""A read or a write of a state whose row is known."""
WRITTEN_NS = 9.0
"""Sorting, hashing and writing what a slice did, per write in the code and event. Threads share that out."""
KEPT_NS = 80.0
"""In time slices: a row of what was done to a state that is looked back on: kept, hashed and written by every pass that does it.
Windowed spam over a million events (three million rows), November 2026; so is the next one."""
RECALLED_NS = 80.0
"""Reading such a row of an earlier slice, and looking its key up."""
LISTED_NS = 6.0
"""By key: finding out whether an event is a thread's own. Each does that with all events."""


@dataclass(frozen=True)
class PassCost:
    """Seconds of one core over the log, or over one event of each type without counts.

    `decode` (reading included) can run beside the rest; for handlers as Python it is not told apart.
    """

    decode: float
    kernel: float
    write: float
    compiled: bool

    @property
    def seconds(self) -> float:
        return self.decode + self.kernel + self.write


@dataclass(frozen=True)
class Measured:
    """What a sample of the log says of a pass whose slices could be guessed and repaired."""

    seconds: float
    """Of one core per event, handlers as Python: with what they call, which cannot be seen from here."""
    conflicts: float
    """The share of events that would decide otherwise on a guessed state."""


_WRITING = ("add", "remove", "discard", "append", "pop", "setdefault", "clear")

IsCompiled = Callable[[PassProgram, bool], bool]
"""Whether a pass (and: is it the final one?) will run compiled."""


def cost_of(work: PassProgram, counts: Mapping[str, int] | None, *, compiled: bool) -> PassCost:
    """What a pass costs."""
    if not compiled:
        return PassCost(0.0, work_of(work, counts) * SECONDS_PER_INSTRUCTION, 0.0, compiled=False)
    events = {event.__name__: event for handler in work.handlers for event in handler.events}
    size = TYPICAL_EVENTS if counts is None else max(1, sum(counts.get(name, 0) for name in events))
    looked_up = KEY_NS * max(0.5, 1 + KEY_GROWTH * math.log2(size / 10_000_000))
    decode = kernel = write = 0.0
    for name, event in events.items():
        count = 1 if counts is None else counts.get(name, 0)
        kinds = {f.name: f.type for f in event.__fields__}
        per_event = PLACE_NS + sum(_column_ns(kinds[c]) for c in work.columns.get(name, ()) if c in kinds)
        decode += count * per_event
        accesses = writes = 0
        keys: set[str] = set()
        for handler in work.handlers:
            if event in handler.events:
                found = _accesses(handler.text, work)
                accesses, writes = accesses + found[0], writes + found[1]
                keys |= found[2]
        kernel += count * (EVENT_NS + looked_up * len(keys) + ACCESS_NS * accesses)
        write += count * WRITTEN_NS * writes
    return PassCost(decode * 1e-9, kernel * 1e-9, write * 1e-9, compiled=True)


def _column_ns(kind: ValueType) -> float:
    name = kind.name if isinstance(kind, ScalarType) else ""
    return READ_NS[name] + DECODE_NS[name] if name in READ_NS else OTHER_NS


def _accesses(text: str, work: PassProgram) -> tuple[int, int, frozenset[str]]:
    """How many accesses to states a handler's text has, how many of them write, and under which keys, as they are written."""
    return _accesses_of(text, work.exact | work.delta)


@functools.lru_cache(maxsize=4096)
def _accesses_of(text: str, states: frozenset[str]) -> tuple[int, int, frozenset[str]]:
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return 4, 1, frozenset({"a", "b"})
    found = writes = 0
    keys: set[str] = set()

    def is_state(node: ast.expr) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in states

    for node in all_nodes(tree):
        match node:
            case ast.Attribute(ctx=context) if is_state(node):
                found += 1
                writes += isinstance(context, ast.Store)
            case ast.Subscript(value=owner, slice=key, ctx=context):
                writes += not isinstance(context, ast.Load)
                if is_state(owner):
                    keys.add(ast.unparse(key))
            case ast.Compare(left=key, comparators=[owner]) if is_state(owner):
                keys.add(ast.unparse(key))
            case ast.Call(func=ast.Attribute(value=owner, attr=operation), args=args) if is_state(owner):
                writes += operation != "get"
                keys.add(ast.unparse(args[0]) if args else "")
    return found, writes, frozenset(keys)


def logged_of(work: PassProgram, counts: Mapping[str, int] | None) -> float:
    """Rows of what is done to states that are looked back on, over the log; over one event of each type without counts."""
    found = 0.0
    for handler in work.handlers:
        writes = _writes_to(handler.text, frozenset(work.logs))
        found += writes * sum(1 if counts is None else counts.get(e.__name__, 0) for e in handler.events)
    return found


@functools.lru_cache(maxsize=4096)
def _writes_to(text: str, states: frozenset[str]) -> int:
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return len(states)
    found = 0
    for node in all_nodes(tree):
        match node:
            case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Store() | ast.Del()):
                found += name in states
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name), attr=operation)):
                found += name in states and operation in _WRITING
    return found


def writes_of(work: PassProgram, counts: Mapping[str, int]) -> float:
    """Writes to states that a pass does over the log, as its code shows them."""
    found = 0.0
    for handler in work.handlers:
        writes = _accesses(handler.text, work)[1]
        found += writes * sum(counts.get(event.__name__, 0) for event in handler.events)
    return found


def work_of(work: PassProgram, counts: Mapping[str, int] | None) -> float:
    """Instructions that a pass executes over the log; over one event of each type without counts."""
    by_type: dict[str, float] = {}
    for handler in work.handlers:
        cost = function_work(handler.function, work.members)
        for event in handler.events:
            name = event.__name__
            start = EVENT_WORK + COLUMN_WORK * len(work.columns.get(name, ()))
            by_type[name] = by_type.get(name, start) + cost
    return sum(cost * (1 if counts is None else counts.get(name, 0)) for name, cost in by_type.items())


def function_work(function: Any, members: Mapping[str, Any], depth: int = 4) -> float:
    """Instructions in a function and in the helpers that it names."""
    code = getattr(_plain(function), "__code__", None)
    if code is None:
        return 0.0
    total = float(_size(code))
    if depth:
        scope = getattr(_plain(function), "__globals__", {})
        for name in code.co_names:
            helper = members.get(name, scope.get(name))
            if isinstance(_plain(helper), types.FunctionType) and not isinstance(helper, type):
                total += function_work(helper, members, depth - 1)
    return total


def _plain(value: Any) -> Any:
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return getattr(value, "__wrapped__", value)


@functools.lru_cache(maxsize=4096)
def _size(code: types.CodeType) -> int:
    return sum(1 for _ in dis.get_instructions(code)) + sum(
        _size(c) for c in code.co_consts if isinstance(c, types.CodeType)
    )


@dataclass(frozen=True)
class Law:
    """The cost law: time relative to the serial loop, as a function of cores (docs/scaling.md)."""

    scan: tuple[float, ...]
    """Relative cost of each pass that runs over all slices at once."""
    chain: tuple[float, ...]
    """Relative cost of each pass that runs slice after slice."""
    serial_seconds: float
    """What the final pass alone would take, one slice after the other, on one core."""
    beside: float = 0.0
    """The share of it that reads and decodes, which another core can do ahead."""
    compiled: bool = False
    """Whether the final pass runs compiled."""
    written: float = 0.0
    """The share of it that puts together what it did, which threads share out."""
    listed: float = 0.0
    """What finding its own events takes each thread by key, relative to it."""
    kept: float = 0.0
    """In time slices: what keeping rows of what is done to states that are looked back on takes, relative to it."""
    recalled: float = 0.0
    """What taking over all of these rows takes a slice, relative to it."""

    @property
    def total(self) -> float:
        """R: all passes together, relative to the final one."""
        return sum(self.scan) + sum(self.chain)

    def one_by_one(self, slices: int = 1, threads: int = 1) -> float:
        """T/T1 of the whole program, slice after slice; with a second thread decoding runs beside the rest, and what a
        slice did is put together by both."""
        kernel = 1 - self.beside - self.written
        time = 1.0 if threads < 2 else max(self.beside, kernel) + self.written / 2
        return time + slices * self.task * 0.1

    def by_key(self, slices: int = 1, threads: int = 1) -> float:
        """T/T1 of the whole program with its events shared out by key: each thread looks at all of them, and they take turns
        at reading."""
        loop = max(self.beside, (1 - self.written) / max(1, threads) + self.listed)
        return loop + self.written / max(1, threads) + slices * self.task * 0.1

    @property
    def task(self) -> float:
        """What each task costs beside its work, relative to the serial loop."""
        return self.task_seconds / self.serial_seconds if self.serial_seconds > 0 else 0.0

    @property
    def task_seconds(self) -> float:
        return COMPILED_TASK_SECONDS if self.compiled else TASK_SECONDS

    @property
    def merge_seconds(self) -> float:
        """Writing the state at the log's end once."""
        return (COMPILED_MERGE_SHARE if self.compiled else MERGE_SHARE) * self.serial_seconds

    @property
    def load_seconds(self) -> float:
        """Taking over a start state as large as the last."""
        return (COMPILED_LOAD_SHARE if self.compiled else LOAD_SHARE) * self.serial_seconds

    @property
    def hand_seconds(self) -> float:
        """Going on into a slice with a state as large as the last, where passes are compiled."""
        return COMPILED_HAND_SHARE * self.serial_seconds

    @property
    def crowd(self) -> float:
        """How much slower passes are side by side. Python's wait for the interpreter, not for memory."""
        return CROWD if self.compiled else 1.0

    def later(self, events: int) -> float:
        """What each of so many events takes in a slice that does not begin empty, relative to the first slice."""
        if self.compiled or not self.serial_seconds:
            return 1.0
        return 1.0 + min(LATER * events / self.serial_seconds, LATER_SHARE)

    def ideal(self, cores: int) -> float:
        """The law without constants: 1/C + (C-1)/C^2 * R_scan + (C-1)/C * R_chain."""
        share = (cores - 1) / cores
        return 1 / cores + share / cores * sum(self.scan) + share * sum(self.chain)


def law_of(
    passes: Sequence[tuple[bool, PassProgram]], final: PassProgram, counts: Mapping[str, int] | None,
    compiled: IsCompiled | None = None, more: Mapping[str, float] = types.MappingProxyType({}),
) -> tuple[Law, list[float], list[PassCost]]:  # fmt: skip
    """The law for passes (is it a chain?, its work), each one's relative cost, and all costs, the final pass's last.

    `more`: seconds that handlers were found to take beyond their own instructions, by the pass's name. The final pass
    takes them too.
    """
    known = compiled or (lambda work, is_final: False)
    found = [
        cost_of(work, counts, compiled=known(work, False) and work.name not in more) for _, work in passes
    ]
    found = [
        replace(cost, kernel=cost.kernel + more.get(work.name, 0.0))
        for cost, (_, work) in zip(found, passes, strict=True)
    ]
    last = cost_of(final, counts, compiled=known(final, True))
    last = replace(last, kernel=last.kernel + sum(more.values()))
    whole = last.seconds or SECONDS_PER_INSTRUCTION
    costs = [cost.seconds / whole for cost in found]
    seconds = last.seconds
    if counts is None:
        types_ = max(1, len({e for h in final.handlers for e in h.events}))
        seconds = whole / types_ * TYPICAL_EVENTS
    scan = tuple(c for c, (slow, _) in zip(costs, passes, strict=True) if not slow)
    chain = tuple(c for c, (slow, _) in zip(costs, passes, strict=True) if slow)
    law = Law(scan, chain, seconds, last.decode / whole, last.compiled)
    if last.compiled:
        events = sum(
            (counts or {}).get(e, 0 if counts else 1)
            for e in {e.__name__ for h in final.handlers for e in h.events}
        )
        law = replace(law, written=last.write / whole, listed=events * LISTED_NS * 1e-9 / whole)
        rows = logged_of(final, counts) * 1e-9 / whole
        law = replace(law, kept=rows * KEPT_NS, recalled=rows * RECALLED_NS)
    return law, costs, [*found, last]
