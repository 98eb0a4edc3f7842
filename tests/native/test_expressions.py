"""Arithmetic and comparison on values at the edges: compiled as Python, or left to Python."""

from __future__ import annotations

import itertools
from typing import Any

import timelapse as tl
from tests.native.oracle import same
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering.lower import Lowering
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.log import MemoryLog

INTS = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    -7,
    10,
    2**31,
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**62,
    2**62 + 1,
    2**63 - 1,
    -(2**63),
]
FLOATS = [0.0, -0.0, 0.5, -1.5, 3.0, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324, float("inf"), float("nan")]

INTEGER = [
    "i + j", "i - j", "i * j", "i // j", "i % j", "-i", "abs(i)", "i & j", "i | j", "i ^ j", "min(i, j)",
    "max(i, j)", "i if i < j else j", "i or j", "i and j", "i + j - i", "int(i < j)", "(i, j)[1]", "i * 3 % 7",
]  # fmt: skip
FLOATING = [
    "x + y", "x - y", "x * y", "x / y", "-x", "abs(x)", "min(x, y)", "max(x, y)", "i / j", "i + x", "x - i",
    "i * x", "i / x", "x / j", "float(i)", "x or y", "x and y", "x if x <= y else y", "-0.0 * x", "x * 1e300 * y",
]  # fmt: skip
BOOLEAN = [
    "i < j", "i <= j", "i == j", "i != j", "x < y", "x == y", "x != y", "x >= y", "i < x", "i == x", "x > j",
    "i <= x", "not x", "not i", "i < j < 3", "x < i <= j", "(i, j) == (j, i)", "i in (1, 2, j)", "i == 3.0",
    "bool(x)", "i < j and x < y or i == 0", "i not in (0, 1)",
]  # fmt: skip


def _program() -> type[tl.Program]:
    lines = [
        "import timelapse as tl", "class E(tl.Event):", "    which: int", "    i: int", "    j: int",
        "    x: float", "    y: float", "class I(tl.Record):", "    v: int", "class F(tl.Record):", "    v: float",
        "class B(tl.Record):", "    v: bool", "class P(tl.Program):", "    n: tl.Counter",
        "    @tl.on(E)", "    def go(self, e):", "        i, j, x, y = e.i, e.j, e.x, e.y",
    ]  # fmt: skip
    number = 0
    for record, texts in (("I", INTEGER), ("F", FLOATING), ("B", BOOLEAN)):
        for text in texts:
            lines += [f"        if e.which == {number}:", f"            self.emit({record}(v={text}))"]
            number += 1
    return load_source("\n".join(lines) + "\n")


def test_expressions_at_the_edges() -> None:
    """Every expression on every pair of edge values gives the same bits as Python, or leaves to Python."""
    program = _program()
    work = final_pass(analyse(program))
    unit = Lowering(program(), work, final=True).run()
    event: Any = unit.events[0]
    total = len(INTEGER) + len(FLOATING) + len(BOOLEAN)
    pairs = list(itertools.product(INTS, FLOATS[:4])) + list(itertools.product(INTS[:6], FLOATS))
    others = itertools.cycle(zip(itertools.cycle(INTS[::-1]), itertools.cycle(FLOATS[::-1])))
    events: list[Any] = []
    for which in range(total):
        second = itertools.product(INTS, INTS) if which < len(INTEGER) else ()
        for i, j in second:
            events.append(event(which, i, j, 0.5, 0.5))
        if which >= len(INTEGER):
            for i, x in pairs:
                j, y = next(others)
                events.append(event(which, i, j, x, y))
            events += [event(which, 3, 3, x, y) for x, y in itertools.product(FLOATS, FLOATS)]
    left = [0] * total
    count = [0] * total
    for which, group in itertools.groupby(events, key=lambda e: e.which):
        rest, good = list(group), []
        count[which] = len(rest)
        while rest:  # up to where Python raises: there the compiled pass fails too
            expected, found, _ = _both(program, work, unit, rest)
            assert (found.failed_seq, str(found.failure)) == (expected.failed_seq, str(expected.failure))
            stop = len(rest) if expected.failure is None else expected.failed_seq
            good += rest[:stop]
            left[which] += stop < len(rest)
            rest = rest[stop + 1 :]
        expected, found, gone = _both(program, work, unit, good)
        left[which] += gone
        assert found.failure is expected.failure is None
        assert set(found.outputs) == set(expected.outputs)
        assert good == [] or expected.outputs
        for record, table in expected.outputs.items():
            assert same(found.outputs[record], table), which
    texts = [*INTEGER, *FLOATING, *BOOLEAN]
    assert [t for t, a, b in zip(texts, left, count, strict=True) if a > 0.9 * b] == []


def _both(program: Any, work: Any, unit: Any, given: list[Any]) -> tuple[Any, Any, int]:
    """What Python and the compiled pass make of events of one expression, and how many the latter left to Python."""
    events = [e._at(0, n) for n, e in enumerate(given)]
    log = MemoryLog(events, unit.events)
    python = InterpretedKernel(program(), work, {}, final=True)
    native = NativeKernel(program(), work, unit, {}, final=True)
    native.credit.spend = lambda _: True  # type: ignore[method-assign, assignment]
    rows = log.events(0, len(events), {"E": unit.events[0]}, work.columns)
    chunks = log.chunks(0, len(events), work.columns)
    expected = python.run(rows, lambda _: None)
    return expected, native.run(chunks, lambda _: None, events.__getitem__), native.left
