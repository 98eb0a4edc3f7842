"""Running a program given as source, compiled and interpreted, over made-up events of any type."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.native.oracle import assert_equal, passes
from tests.writers.sources import load_source
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import SWITCH, SliceKernel, choice
from timelapse.kernels.source import Source
from timelapse.log import MemoryLog
from timelapse.model.decimals import of_int
from timelapse.model.events import Event
from timelapse.program.program import as_program, spec_of

INTS = [0, 1, -1, 2, 3, 7, 10, 100, -5, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 0.5, -1.5, 2.0, 3.0, 1e300, float("inf"), float("nan")]
WORDS = ["", "a", "b", "ab", "Ab", "é", "a b", "x@y.z", "\0", "\U0001f600", "ß", "7"]


def value(kind: str, rng: random.Random, *, edges: bool) -> Any:
    """A value of a type, as it is written; `edges`: also ones at the limits."""
    if kind.endswith(" | None"):
        return None if rng.random() < 0.4 else value(kind.removesuffix(" | None"), rng, edges=edges)
    if kind.startswith("list["):
        return [value(kind[5:-1], rng, edges=edges) for _ in range(rng.choice([0, 1, 2, 2, 3, 5]))]
    made: dict[str, Callable[[], Any]] = {
        "int": lambda: rng.choice(INTS) if edges else rng.randint(-2, 6),
        "Time": lambda: rng.randint(0, 9),
        "float": lambda: rng.choice(FLOATS) if edges else rng.randint(-8, 8) / 4,
        "bool": lambda: rng.random() < 0.5,
        "str": lambda: rng.choice(WORDS),
        "bytes": lambda: rng.choice([b"", b"a", b"\xff\0"]),
    }
    if kind.startswith("Decimal["):
        units = rng.choice(INTS) if edges else rng.randint(-300, 900)
        return of_int(units, int(kind[8:-1]))
    return made[kind]()


def events_of(cls: type[Event], count: int, seed: int, *, edges: bool = False) -> list[Event]:
    """Made-up events of one type, in log order."""
    rng = random.Random(seed)
    made: Any = cls
    found = [made(*[value(f.type.text, rng, edges=edges) for f in cls.__fields__]) for _ in range(count)]
    return [event._at(i // 2, -1) for i, event in enumerate(found)]


def agree(
    source: str,
    *,
    count: int = 60,
    edges: bool = False,
    seed: int = 1,
    only_final: bool = True,
    **params: Any,
) -> tuple[int, int]:
    """Compare a program's passes, compiled and interpreted, over two slices.

    Returns how many events compiled passes ran, and how many of them they left to Python.
    """
    cls: Any = load_source(source)
    program = as_program(cls(**params))
    kinds = list(spec_of(program).events)
    events = [e for kind in kinds for e in events_of(kind, count, seed, edges=edges)]
    events.sort(key=lambda e: e.ts)
    ran = left = 0
    for work, final in passes(cls):
        if only_final and not final:
            continue
        refusal = choice(program, work, final=final)
        assert refusal.compiled, (work.name, refusal.reason)
        known = events
        while True:  # until no event fails: those that do are compared, and taken out
            python, _ = _run(program, work, known, kinds, "interpreted", final=final)
            native, unsure = _run(program, work, known, kinds, "native", final=final)
            for one, other in zip(native, python, strict=True):
                assert_equal(one, other)
            if python[-1].failure is None:
                break
            known = [e for i, e in enumerate(known) if i != python[-1].failed_seq]
        ran += len(known)
        left += unsure
    return ran, left


def _run(
    program: Any,
    work: Any,
    events: Sequence[Event],
    kinds: Sequence[type[Event]],
    switch: str,
    *,
    final: bool,
) -> tuple[list[PassResult], int]:
    """The results of two slices, and how many events were left to Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, switch)
        log = MemoryLog(events, kinds)
        classes = {c.__name__: c for c in kinds if c.__name__ in work.columns}
        made = SliceKernel(program, work, {}, 0, final=final)
        native = made._native
        results = []
        for lo, hi in pairwise([0, len(events) // 3, len(events)]):
            results.append(made.run(Source(log, lo, hi, classes, work.columns), lambda _: None))
            if results[-1].failure is not None:
                break
        return results, native.left if native is not None else 0
