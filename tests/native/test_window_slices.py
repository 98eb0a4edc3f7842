"""Windows in time slices, compiled: what one slice tells the next, and that nothing of it depends on who ran it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.depth import DEPTH, FULL, deep, in_turn, some
from tests.native.fuzz.emulate import emulated
from tests.native.test_windows import SOURCE
from tests.native.window_programs import windowed_log, windowed_program
from tests.tuned import tuned
from tests.writers.sources import load_source
from timelapse.errors import TimelapseError
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import NOT_ALONE, SWITCH, SliceKernel, choice
from timelapse.kernels.native import build
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import KernelTuning, NativeTuning
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.plan import make_plan
from timelapse.program.program import Program, spec_of
from timelapse.run import replay, run_serial
from timelapse.run.explain import explain
from timelapse.run.tuning import Tuning
from timelapse.tables.effectlog import rows_sum
from timelapse.testing import assert_same


@pytest.fixture
def not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated code runs as Python."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))


def _made(seed: int, *, timed: bool = False) -> type[Program] | None:
    program = load_source(windowed_program(seed, summed=True, timed=timed))
    return program if spec_of(program).times else None


@pytest.mark.parametrize(
    ("piece", "seeds", "timed"),
    [(32768, (0, 8), False), (3, (8, 14), False), (32768, (0, 8), True), (3, (8, 14), True)],
)
def test_random_programs_in_slices_as_the_serial_loop(
    piece: int, seeds: tuple[int, int], timed: bool, not_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces so small that logs are moved and shortened all the time, too. `timed`: with ticks and later calls."""
    replay = tuned(Tuning(KernelTuning(native=NativeTuning(piece_events=piece))))
    compiled = looked = 0
    for seed in some(range(*seeds)):
        program = _made(seed, timed=timed)
        if program is None:
            continue
        for edges, slices in in_turn((False, True), (2, 5), seed):
            events = windowed_log(program, seed, 45, edges=edges)
            try:
                wanted = run_serial(program(), events)
            except TimelapseError as error:
                with pytest.raises(type(error)):
                    replay(program(), events, slices=3, spark=False, cache=False)
                continue
            run = replay(program(), events, slices=slices, spark=False, cache=False)
            assert_same(wanted, run)
            assert (run.digest, run.state_digest) == (wanted.digest, wanted.state_digest), (
                seed,
                edges,
                slices,
            )
            assert run.certificate["fallback"] is None
            looked += 1
            compiled += set(run.certificate["passes"].values()) == {"compiled"}
    assert looked > (12 if DEPTH >= FULL else 2)
    assert compiled > (0.4 if timed else 0.7) * looked  # ticks that are not compiled keep a pass from it


def _slices(
    program: Program, work: Any, events: Sequence[Event], cuts: Sequence[int], *, final: bool
) -> list[PassResult]:
    """A pass over slices, one after the other from the log's start."""
    log = MemoryLog(events, list(spec_of(program).events))
    classes = {c.__name__: c for c in spec_of(program).events if c.__name__ in work.columns}
    made = SliceKernel(program, work, {}, 0, final=final, alone=False)
    source = [Source(log, lo, hi, classes, work.columns) for lo, hi in itertools.pairwise(cuts)]
    return [made.run(one, lambda _: None) for one in source]


def test_rows_are_those_that_a_pass_as_python_finds(
    not_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every pass, for effects and for what it knows; also what takes out what is not there has a row."""
    found, absent = set(), 0
    for seed in range(deep(20, 12)):
        program = _made(seed)
        if program is None:
            continue
        plan = make_plan(program, slices=3, force="staged")
        events = windowed_log(program, seed, 45)
        for work, final in [(stage.work, False) for stage in plan.stages] + [(plan.final, True)]:
            if not choice(program(), work, final=final).compiled:
                continue
            monkeypatch.setenv(SWITCH, "native")
            ours = _slices(program(), work, events, (0, 20, 45), final=final)
            monkeypatch.setenv(SWITCH, "interpreted")
            wanted = _slices(program(), work, events, (0, 20, 45), final=final)
            for one, other in zip(ours, wanted, strict=True):
                assert one.rows.keys() == other.rows.keys()
                for (name, form), rows in one.rows.items():
                    spec = spec_of(program).states[name]
                    assert rows.to_pydict() == other.rows[name, form].to_pydict(), (seed, work.name, name)
                    assert rows.schema == other.rows[name, form].schema
                    assert rows_sum(spec, rows) == rows_sum(spec, other.rows[name, form])
                    if rows.num_rows:
                        found.add((form, final, name in work.delta))
                    absent += form == "present" and pa.compute.all(rows.column("present")).as_py() is False
    assert found >= {
        ("net", True, False),
        ("net", False, True),
        ("present", True, False),
        ("present", False, True),
    }
    assert absent > 3


def test_a_pass_as_python_goes_on_from_compiled_ones(
    not_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other way round: rows are the same whoever writes them."""
    plain = SliceKernel.__init__
    for mixed in (True, False):

        def only(self: Any, *given: Any, final: bool, mixed: bool = mixed, **named: Any) -> None:
            plain(self, *given, final=final, **{**named, "given_up": final is mixed})

        monkeypatch.setattr(SliceKernel, "__init__", only)
        for seed in range(deep(8)):
            program = _made(seed)
            if program is None:
                continue
            events = windowed_log(program, seed, 45)
            wanted = run_serial(program(), events)
            run = replay(program(), events, slices=3, spark=False, cache=False)
            assert_same(wanted, run)
            assert run.state_digest == wanted.state_digest
            assert run.certificate["fallback"] is None


def test_machine_code_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and logs grow and move; windows are longer than slices."""
    replay = tuned(Tuning(KernelTuning(native=NativeTuning(piece_events=500))))
    lines = [line for line in SOURCE.splitlines() if "self.low" not in line and "self.high" not in line]
    text = "\n".join(line for line in lines if not line.strip().startswith(("low:", "high:", "if e.to % 11")))
    program: Any = load_source(
        text.replace(", low=low, high=high", "").replace('self.reject("too often")', "return")
    )
    sent = spec_of(program).events[0]
    rng, now, events = random.Random(5), 0, []
    for _ in range(3000):
        now += rng.choice((0, 1, 1, 5))
        user = rng.choice((rng.randrange(40), rng.randrange(2500)))
        made: Any = sent
        events.append(made(user=user, to=rng.randrange(60), text=rng.choice("abcdefgh"))._at(now, -1))
    wanted = run_serial(program(), events)
    monkeypatch.setenv(SWITCH, "native")
    for count in (2, 4):
        run = replay(program(), events, slices=count, spark=False, cache=False)
        assert (run.certificate["mode"], run.certificate["fallback"]) == ("staged", None)
        assert set(run.certificate["passes"].values()) == {"compiled"}
        assert_same(wanted, run)
        assert (run.digest, run.state_digest) == (wanted.digest, wanted.state_digest)


FAR = """
import timelapse as tl

class A(tl.Event):
    k: int
    m: int

class Out(tl.Record):
    n: int
    total: int

class P(tl.Program):
    n: tl.Counter[int]
    mean: tl.Mean[int]

    @tl.on(A)
    def note(self, e):
        self.n[e.k] = e.m
        if e.m > 0:
            self.mean.add(e.k, e.m)
        self.emit(Out(n=self.n.last(5)[e.k] // 2, total=self.mean.last(3).count(e.k)))
"""


@pytest.mark.parametrize(
    "values",
    [
        (2**62, -(2**62) - 5, 7, 2**62 + 1),
        (2**63 - 1, -(2**63), 3, -1),
        (2**60, 2**60, 2**60, 5),
        (1, 2, 3, 4),
    ],
)
def test_sums_near_the_end_of_int64(values: tuple[int, ...], not_compiled: None) -> None:
    """What is added may itself be no int64; then a slice runs as Python."""
    program = load_source(FAR)
    made: Any = spec_of(program).events[0]
    events = [made(k=i % 2, m=values[i // 2 % 4])._at(i, -1) for i in range(24)]
    try:
        wanted = run_serial(program(), events)
    except TimelapseError as error:
        with pytest.raises(type(error)) as raised:
            replay(program(), events, slices=4, spark=False, cache=False)
        assert str(raised.value).splitlines()[0] == str(error).splitlines()[0]
        return
    for slices in (2, 4, 8):
        run = replay(program(), events, slices=slices, spark=False, cache=False)
        assert_same(wanted, run)
        assert run.state_digest == wanted.state_digest
    passes = set(run.certificate["passes"].values())
    assert (passes == {"compiled"}) is (max(map(abs, values)) < 2**20)


def test_what_compiles_in_slices_and_what_does_not() -> None:
    """Windows over values and extremes need the whole log; the plan says so and names them."""
    source = windowed_program(0, summed=True)
    program = load_source(source)
    assert all(
        choice(program(), stage.work, final=False).compiled for stage in make_plan(program, slices=3).stages
    )
    plan = make_plan(load_source(SOURCE), slices=3, compiled=lambda work, final: True)
    assert plan.mode == "chain"
    assert plan.reason == "windows over high, low run compiled in one pass, and as Python in time slices"
    stage = next(
        s for s in make_plan(load_source(SOURCE), slices=3, force="staged").stages if "low" in s.states
    )
    found = choice(load_source(SOURCE)(), stage.work, final=False)
    assert not found.compiled
    assert "the rows of windows" in found.reason
    ways = {force: explain(load_source(SOURCE), force=force).passes[-1] for force in ("chain", "staged")}
    assert ways["chain"].kernel == "compiled"
    assert (ways["staged"].kernel, ways["staged"].why) == ("Python", NOT_ALONE)
    assert [h.compiled for h in ways["staged"].handlers] == [False]
