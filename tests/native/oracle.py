"""Running one pass by both kernels, slice after slice, and comparing everything they return."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import timelapse as tl
from tests.native.programs import A, B
from timelapse.analysis import PassProgram, analyse, build_pass, final_pass
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import SWITCH, SliceKernel
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.program.program import as_program, spec_of
from timelapse.tables.apply import empty
from timelapse.tables.merge import fold

INTS = st.sampled_from([0, 1, 1, 2, 3, -1, 5, 2**53, 2**53 + 1, -(2**63), 2**63 - 1])
SMALL = st.integers(-1, 3)
WORDS = st.sampled_from(["", "a", "é", "b", "zz", "a" * 9, "\0", "\U0001f600a"])
FLOATS = st.sampled_from([0.0, -0.0, 0.1, float("nan"), float("inf"), 2.0**53, -1e300])
RAW = st.sampled_from([b"", b"a", b"\xff\0"])


def logs(keys: st.SearchStrategy[int] = SMALL, max_size: int = 25) -> st.SearchStrategy[list[Event]]:
    """Events in log order; `keys` are their integers."""
    a: Any = st.builds(lambda *v: A(*v), keys, keys, WORDS, st.booleans(), FLOATS, RAW, SMALL)
    b: Any = st.builds(lambda *v: B(*v), keys, WORDS)
    steps = st.lists(st.tuples(a | b, st.sampled_from([0, 0, 1])), max_size=max_size)

    def place(found: list[tuple[Any, int]]) -> list[Event]:
        now, placed = 3, []
        for event, step in found:
            now += step
            placed.append(event._at(now, -1))
        return placed

    return steps.map(place)


@lru_cache(maxsize=64)
def passes(program: type[tl.Program]) -> list[tuple[PassProgram, bool]]:
    """Passes as a planner could make them: deltas where possible, some of the others alone, and the final one.

    The same ones each time: what was lowered of them is then found again."""
    found = analyse(program)
    facts = found.facts
    scans = [
        s
        for c in found.components
        for s in c
        if len(c) == 1 and not facts[s].depends_on and not facts[s].composes
    ]
    made: list[tuple[PassProgram, bool]] = []
    if scans:
        made.append((build_pass(found, "delta", scans, scans), False))
    others = [c for c in found.components if not set(c) & set(scans)]
    made += [
        (build_pass(found, "exact", component, ()), False) for component in [*others, *found.components][:2]
    ]
    return [*made, (final_pass(found), True)]


def run(
    program: tl.Program, work: PassProgram, final: bool, events: Sequence[Event], cuts: Sequence[int],
    kernel: str, monkeypatch: Any, tuning: KernelTuning = USUAL,
) -> tuple[list[PassResult], SliceKernel, list[int]]:  # fmt: skip
    """The results of consecutive slices, the kernel, the progress reported for each."""
    log = MemoryLog(events, [A, B])
    classes = {c.__name__: c for c in (A, B) if c.__name__ in work.columns}
    monkeypatch.setenv(SWITCH, kernel)
    made = SliceKernel(program, work, {}, 0, final=final, tuning=tuning)
    results, ticks = [], []
    for lo, hi in pairwise(cuts):
        told: list[int] = []
        results.append(made.run(Source(log, lo, hi, classes, work.columns), told.append))
        ticks.append(sum(told))
        if results[-1].failure is not None:
            break
    return results, made, ticks


def run_mapped(
    program: tl.Program,
    work: PassProgram,
    events: Sequence[Event],
    cuts: Sequence[int],
    kernel: str,
    monkeypatch: Any,
    tuning: KernelTuning = USUAL,
) -> list[PassResult]:
    """The final pass, with a new kernel for each slice, which takes keys over from the state before one by one."""
    log = MemoryLog(events, [A, B])
    classes = {c.__name__: c for c in (A, B) if c.__name__ in work.columns}
    monkeypatch.setenv(SWITCH, kernel)
    specs = spec_of(program).states
    starts = {name: empty(spec) for name, spec in specs.items()}
    results = []
    for lo, hi in pairwise(cuts):
        made = SliceKernel(program, work, starts, 0, final=True, memory=0, tuning=tuning)
        results.append(made.run(Source(log, lo, hi, classes, work.columns), lambda _: None))
        if results[-1].failure is not None:
            break
        starts = {n: fold(spec, starts[n], [results[-1].effects[n]]) for n, spec in specs.items()}
    return results


def assert_equal(found: PassResult, expected: PassResult) -> None:
    """Everything that a kernel returns, to the last bit."""
    assert (found.failed_seq, str(found.failure)) == (expected.failed_seq, str(expected.failure))
    if expected.failure is not None:
        return
    assert found.events == expected.events
    assert list(found.effects) == list(expected.effects) or set(found.effects) == set(expected.effects)
    for name, table in expected.effects.items():
        assert same(found.effects[name], table), name
    assert found.changes == expected.changes
    assert set(found.outputs) == set(expected.outputs)
    for record, table in expected.outputs.items():
        assert same(found.outputs[record], table), record
    assert (found.rejected is None) == (expected.rejected is None)
    if found.rejected is not None:
        assert same(found.rejected, expected.rejected)


def same(a: pa.Table, b: pa.Table) -> bool:
    """Equal rows, order and schema; -0.0 is not 0.0, NaN is NaN."""
    return bool(a.schema.equals(b.schema, check_metadata=True)) and repr(_plain(a)) == repr(_plain(b))


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Python values; times as integers, most of which are no dates that Python has."""
    for i, name in enumerate(table.column_names):
        if pa.types.is_timestamp(table.schema.types[i]):
            table = table.set_column(i, name, table.column(i).cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def compare(
    program: Any, events: list[Event], cuts: Sequence[int], monkeypatch: Any, tuning: KernelTuning = USUAL
) -> int:
    """Compare all passes of a program. Returns how many of them ran compiled to the end."""
    made = as_program(program)
    count = 0
    for work, final in passes(type(made)):
        python, _, ticks = run(made, work, final, events, cuts, "interpreted", monkeypatch)
        native, kernel, told = run(made, work, final, events, cuts, "native", monkeypatch, tuning)
        assert len(native) == len(python)
        for found, expected in zip(native, python, strict=True):
            assert_equal(found, expected)
        assert told == ticks or python[-1].failure is not None
        if final:
            mapped = run_mapped(made, work, events, cuts, "native", monkeypatch, tuning)
            for found, expected in zip(mapped, python, strict=True):
                assert_equal(found, expected)
        count += kernel.compiled
    return count
