"""Arithmetic and comparison on values at the edges: compiled as Python, or left to Python."""

from __future__ import annotations

import itertools
from typing import Any

import timelapse as tl
from tests.native.oracle import same
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.interpreted import InterpretedKernel
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering.lower import Lowering
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
    log = MemoryLog(events, [event])
    tables = {"E": next(iter(log.chunks(0, len(events), work.columns))).tables["E"]}
    native = NativeKernel(program(), work, unit, {}, final=True)
    python = InterpretedKernel(program(), work, {}, final=True)
    chunk = next(iter(log.chunks(0, len(events), work.columns)))
    at = 0
    for number, one in enumerate(events):
        if number >= chunk.seq_hi:
            chunk = next(iter(log.chunks(number, len(events), work.columns)))
            tables, at = chunk.tables, number
        part = chunk._replace(tables={"E": tables["E"].slice(number - at, 1)})
        expected = python.run(iter([one._at(0, number)]), lambda _: None)
        count[one.which] += 1
        shown = one._at(0, number)
        found = native.run(iter([part]), lambda _: None, lambda _, event=shown: event)  # type: ignore[misc]
        left[one.which] += native.left
        native.left = 0
        native.credit.refill()  # each event stands alone here
        if expected.failure is not None:
            assert str(found.failure) == str(expected.failure), one
            python = InterpretedKernel(program(), work, {}, final=True)
            native = NativeKernel(program(), work, unit, {}, final=True)
            continue
        for record, table in expected.outputs.items():
            assert same(found.outputs[record], table), one
    texts = [*INTEGER, *FLOATING, *BOOLEAN]
    assert [t for t, a, b in zip(texts, left, count, strict=True) if a > 0.9 * b] == []
