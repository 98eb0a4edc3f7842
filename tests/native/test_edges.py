"""Operations on edge values: compiled they give Python's bits, or they leave the event to Python."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.depth import some
from tests.native.oracle import same
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.analysis.result import PassProgram
from timelapse.kernels.base import PassResult
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering.lower import Lowering
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.log import MemoryLog
from timelapse.program.program import Program

INTS = [0, 1, -1, 2, 3, -7, 62, 63, 64, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [
    0.0, -0.0, 0.5, -1.5, 2.5, 3.0, 0.1, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324, float("inf"),
    float("-inf"), float("nan"),
]  # fmt: skip
PLAIN_INTS = list(range(-9, 40, 5))
PLAIN_FLOATS = [-2.25, -0.75, 0.25, 0.5, 0.875, 1.0, 1.5, 2.5, 3.5, 10.0]

INTEGER = [
    "i << j", "i >> j", "~i", "i ** 2", "i ** 3", "i ** 0", "i ** 1", "round(i)", "int(x)", "round(x)", "+i",
    "math.floor(x)", "math.ceil(x)", "math.trunc(x)", "divmod(i, j)[0]", "divmod(i, j)[1]", "min(i, j, 3)",
    "max(3, i, j)", "sum((i, j, 1))", "b + i", "b + b", "-b", "abs(b)", "b * 3 - i", "i // 3", "i % 5", "i // -1",
    "i % -7", "len((i, j, x))", "int(b)", "pow(i, 2)", "(i if b else j) + 1", "i + 1", "i - 1", "i + -1", "i * 0",
    "1 - i", "(i and j) + 0", "max((i, j))", "i if (i, b) < (j, True) else j", "(i, j)[0]",
    "sum(k for k in (i, j) if k > 0)", "len([k for k in (i, j, 3) if k])", "min(i, j) if i != j else 7",
]  # fmt: skip
FLOATING = [
    "x // y", "x % y", "x // 2.0", "x % 0.3", "i / 3", "3 / i", "x / 4", "float(i)", "float(b)", "math.sqrt(x)",
    "math.log(x)", "math.log2(x)", "math.log10(x)", "math.exp(x)", "math.sin(x)", "math.cos(x)", "math.tan(x)",
    "math.tanh(x)", "math.atan(x)", "math.log1p(x)", "math.expm1(x)", "math.asin(x)", "math.acos(x)",
    "math.sinh(x)", "math.cosh(x)", "math.fabs(x)", "math.copysign(x, y)", "math.atan2(x, y)", "math.sqrt(i)",
    "min(x, y, 0.5)", "max(x, y, 0.5)", "divmod(x, y)[0]", "divmod(x, y)[1]", "+x", "b * x", "x + b", "math.pi * x",
    "x * y - x", "abs(x) + 0.0", "math.log(j)", "-x + y", "x if b else y", "min((x, y))", "(x, y)[1]", "math.inf - x",
]  # fmt: skip
BOOLEAN = [
    "b & (i > 3)", "b | (x > y)", "b ^ (i == j)", "(i, j) < (j, i)", "(i, j) <= (i, j)", "(i, b) > (j, True)",
    "(i, j, 1) >= (i, j)", "(i, j) == (j, i)", "(i, x) == (i, y)", "(i, (j, b)) != (j, (i, b))", "math.isnan(x)",
    "math.isinf(x)", "math.isfinite(x)", "math.isnan(i)", "b is True", "i is None", "not (b and i)", "b == i",
    "b < j", "b == x", "i == x", "(i, j) in ((1, 2), (j, i))", "i in [1, j, 3]", "s == 'a'", "s != t", "s in ('a', 'é')",
    "s in {'a', ''}", "not s", "bool(s)", "s < t", "s.startswith(('a', 'é'))", "s.upper() == 'AB'", "'a' in s",
    "r == b'a'", "not r", "len(r) > 1", "s.isdigit()", "s[:1] == 'a'", "s[0] == 'a'", "'x' in s.lower() or b",
    "o is None", "o == 3", "o != i", "None is o", "o is not None and o > 3", "not o", "(o or 7) == 7", "o == p",
    "o in (1, 3)", "any(k > 3 for k in (i, j))", "all(k > 3 for k in (i, j))", "i < j < 5 != 4", "b if i else x > y",
]  # fmt: skip
TEXT = ["s", "s or 'none'", "t if b else s", "s.upper()", "s + t", "f'{s}-{i}'", "s[1:]", "s if s < t else t"]
OPTIONAL = [
    "o", "o if b else None", "None", "i if o is None else o", "o or i", "o and i", "(None if b else i)", "o if o != 3 else p",
]  # fmt: skip
GROUPS = {"I": INTEGER, "F": FLOATING, "B": BOOLEAN, "T": TEXT, "O": OPTIONAL}
LEAVING = {"o in (1, 3)", "s[0] == 'a'", "math.asin(x)", "math.acos(x)", "math.isnan(i)", "i << j", "i >> j"}
"""Ordinary values lie outside of what these take, or of what int64 holds."""


def _source(record: str, texts: list[str]) -> str:
    kind = {"I": "int", "F": "float", "B": "bool", "T": "str", "O": "int | None"}[record]
    lines = [
        "import math", "import timelapse as tl", "class E(tl.Event):", "    which: int", "    i: int", "    j: int",
        "    x: float", "    y: float", "    b: bool", "    s: str", "    t: str", "    r: bytes", "    o: int | None",
        "    p: int | None", "class Out(tl.Record):", f"    v: {kind}", "class P(tl.Program):", "    n: tl.Counter",
        "    @tl.on(E)", "    def go(self, e):", "        i, j, x, y, b, s, t, r, o, p = "
        "e.i, e.j, e.x, e.y, e.b, e.s, e.t, e.r, e.o, e.p",
    ]  # fmt: skip
    for number, text in enumerate(texts):
        lines += [f"        if e.which == {number}:", f"            self.emit(Out(v={text}))"]
    return "\n".join(lines) + "\n"


def _values(*, edges: bool) -> list[tuple[Any, ...]]:
    ints, floats = (INTS, FLOATS) if edges else (PLAIN_INTS, PLAIN_FLOATS)
    texts = itertools.cycle(["", "a", "é", "ab", "Ab", "\0", "\U0001f600", "7"])
    raw = itertools.cycle([b"", b"a", b"\xff\0"])
    maybe = itertools.cycle([None, 3, 0, 1, None])
    flags = itertools.cycle([True, False, False])
    xs, ys = (
        itertools.cycle(itertools.product(floats, floats)),
        itertools.cycle(itertools.product(ints, ints)),
    )
    count = max(len(floats) ** 2, len(ints) ** 2)
    return [
        # Each NaN is an object of its own, as those that are read from a log.
        (
            *next(ys),
            *(v * 1.0 for v in next(xs)),
            next(flags),
            next(texts),
            next(texts),
            next(raw),
            next(maybe),
            next(maybe),
        )
        for _ in range(count)
    ]


def _both(
    cls: type[Program], unit: Unit, work: PassProgram, log: MemoryLog, first: int, text: str
) -> tuple[NativeKernel, PassResult, PassResult]:
    """Both over the rest of a log; they fail at the same event, with the same words."""
    python, native = (
        InterpretedKernel(cls(), work, {}, final=True),
        NativeKernel(cls(), work, unit, {}, final=True),
    )
    native.credit.spend = lambda _: True  # type: ignore[method-assign, assignment]
    expected = python.run(log.events(first, log.count, {"E": unit.events[0]}, work.columns), lambda _: None)
    chunks = log.chunks(first, log.count, work.columns)
    found = native.run(chunks, lambda _: None, log._events.__getitem__)
    assert (found.failed_seq, str(found.failure)) == (expected.failed_seq, str(expected.failure)), text
    return native, found, expected


@pytest.mark.parametrize("record", GROUPS)
def test_operations_at_the_edges(record: str) -> None:
    """The same bits as Python over all edge values, failures left to Python; ordinary values stay compiled."""
    texts = GROUPS[record]
    cls = load_source(_source(record, texts))
    work = final_pass(analyse(cls))
    unit = Lowering(cls(), work, final=True).run()
    event: Any = unit.events[0]
    slow = []
    for edges in (True, False):
        for which, text in enumerate(texts):
            values = some(_values(edges=edges), 2, which % 2) if edges else _values(edges=edges)
            events = [event(which, *v)._at(0, n) for n, v in enumerate(values)]
            log, good, first = MemoryLog(events, [event]), [], 0
            while first < len(
                events
            ):  # from where Python has raised to where it does next: no event depends on another
                native, _, expected = _both(cls, unit, work, log, first, text)
                stop = len(events) if expected.failure is None else expected.failed_seq
                good += events[first:stop]
                first = stop + 1
            if len(good) < len(events):
                events = [e._at(0, n) for n, e in enumerate(good)]
            if events:
                native, found, expected = _both(cls, unit, work, MemoryLog(events, [event]), 0, text)
                assert expected.failure is None, text
                for one, table in expected.outputs.items():
                    pairs = zip(found.outputs[one].to_pylist(), table.to_pylist(), strict=True)
                    assert [
                        (events[n], a, b) for n, (a, b) in enumerate(pairs) if repr(a) != repr(b)
                    ] == [], text
                    assert same(found.outputs[one], table), text
            if not edges and native.left > 0.1 * len(events) and text not in LEAVING:
                slow.append((text, native.left))
    assert slow == []
