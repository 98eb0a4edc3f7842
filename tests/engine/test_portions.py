"""Budgets as small as they get: every chain stops after every portion, and a portion is an event or a few. Nothing changes."""

from __future__ import annotations

import random
from dataclasses import replace as changed
from pathlib import Path

import msgspec
import pytest

import timelapse as tl
from tests.depth import deep
from tests.writers.looking import looking
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.analysis import analyse
from timelapse.engine import portions, tasks
from timelapse.engine.job import Job, Task
from timelapse.env import machine
from timelapse.errors import HandlerError, TooManyQuarantined
from timelapse.kernels.base import PassResult
from timelapse.kernels.native.lowered import event_bytes
from timelapse.plan import make_plan
from timelapse.program.program import as_program, spec_of
from timelapse.run import Run, replay, run_serial
from timelapse.testing import assert_same


def small(patch: pytest.MonkeyPatch, least: int) -> list[int]:
    """One byte of memory, and portions of so many events. Returns the list to which each portion's size is added."""
    sizes: list[int] = []
    took = portions.Portions.took

    def noted(own: portions.Portions, events: int, done: PassResult, more: int, *, compiled: bool) -> None:
        sizes.append(events)
        took(own, events, done, more, compiled=compiled)

    patch.setenv(machine.MEMORY, "1")
    patch.setattr(portions, "LEAST", least)
    patch.setattr(portions.Portions, "took", noted)
    return sizes


def same(whole: Run, found: Run, what: str) -> None:
    assert_same(whole, found, names=("serial", what))
    assert (found.digest, found.state_digest, found.pending) == (
        whole.digest,
        whole.state_digest,
        whole.pending,
    ), what
    assert (found.counts, found.rejected_count) == (whole.counts, whole.rejected_count), what
    assert found.certificate["fallback"] is None, what


def compared(text: str, rng: random.Random, where: str, events: int = 24) -> bool:
    """Whether a program could be compared: in 1, 2, 3 and 7 slices, in portions of 1 to 9 events."""
    program = load_source(text)
    made = random_events(program, rng, events)
    try:
        whole = run_serial(program, made)
    except HandlerError:  # a few of these programs raise
        return False
    for slices in rng.sample((1, 2, 3, 7), 2):
        staged = None if spec_of(as_program(program)).times else "staged"
        strategy = rng.choice((staged, "chain"))
        with pytest.MonkeyPatch.context() as patch:
            sizes = small(patch, least := rng.choice((1, 2, 9)))
            found = replay(program, made, slices=slices, spark=False, strategy=strategy)
        what = f"{where}, {slices} slices, {strategy}, portions of {least}:\n{text}"
        same(whole, found, what)
        if strategy == "chain":
            assert max(sizes, default=0) <= max(least, 1), what
    return True


def written(rng: random.Random, *, timed: bool) -> str:
    """A random program: with sends, and if `timed` with handlers called later and by the clock, windows, dated writes."""
    text = random_program(rng, 3, further=rng.random() < 0.7)
    if rng.random() < 0.3:
        text = sending(rng, text, later=timed and rng.random() < 0.6)
    if timed and rng.random() < 0.6:
        made = in_other_times(rng, text)
        text = made if "@tl.on(" in made else text
    if timed and rng.random() < 0.7:
        text = looking(rng, text, dated=rng.choice((0.0, 0.3)))
    return text


@pytest.mark.parametrize("seed", range(deep(6)))
@pytest.mark.parametrize("kernel", ["interpreted", "python"])
def test_random_programs_as_python(seed: int, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{kernel} {seed}")
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    compared(written(rng, timed=seed % 2 == 1), rng, f"seed {seed}")


@pytest.mark.parametrize("seed", range(deep(2)))
def test_random_programs_compiled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"native {seed}")
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    compared(written(rng, timed=seed % 2 == 1), rng, f"seed {seed}")


class Paid(tl.Event):
    who: int
    amount: int


class Fails(tl.Program):
    n: tl.Counter[int]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.n[e.who] += 1
        if e.amount % 5 == 0:
            raise ValueError(f"no {e.amount}")


PAID = [Paid(who=i % 3, amount=i, ts=i) for i in range(24)]


@pytest.mark.parametrize("kernel", ["interpreted", "python", "native"])
def test_events_that_fail_are_taken_out(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all portions, in the log's order; an error tells of all of them where they are too many together."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    whole = run_serial(Fails, PAID, quarantine=True)
    small(monkeypatch, 2)
    for slices, strategy in ((1, "chain"), (3, "chain"), (3, "staged")):
        found = replay(Fails, PAID, slices=slices, spark=False, strategy=strategy, quarantine=True)
        assert (found.digest, found.state_digest) == (whole.digest, whole.state_digest)
        assert found.quarantined.column("seq").to_pylist() == [0, 5, 10, 15, 20]
    with pytest.raises(TooManyQuarantined) as raised:
        replay(Fails, PAID, slices=1, spark=False, strategy="chain", quarantine=True, max_quarantined=3)
    assert sum(times for _, times in raised.value.reasons) == 5  # no portion has too many, all together have


class Counted(tl.Program):
    n: tl.Counter[int]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.n[e.who] += 1


def test_what_fits_is_one_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's first slice has all of the budget: nothing is carried on or merged. It was run in three portions."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    sizes = small(monkeypatch, 1)
    work = make_plan(analyse(Counted), cores=1, compiled=lambda work, final: True).last
    own = event_bytes(as_program(Counted), work, mapped=False)
    assert own is not None
    whole = run_serial(Counted, PAID)
    for memory, portion in ((len(PAID) * own, [24]), (len(PAID) * own - 1, [8, 8, 8])):
        sizes.clear()
        monkeypatch.setenv(machine.MEMORY, str(memory))
        found = replay(Counted, PAID, slices=1, spark=False, strategy="chain", cache=False)
        assert (found.digest, sizes) == (whole.digest, portion)


def test_what_fits_nearly_is_one_portion_where_nobody_set_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later slice too: its start states are in files."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    work = make_plan(analyse(Counted), cores=1, compiled=lambda work, final: True).last
    for first in (0, 1):
        own = event_bytes(as_program(Counted), work, mapped=first > 0)
        assert own is not None
        job = Job(Counted(), (work,), None, (0, 1), Path(), Path())  # type: ignore[arg-type]
        for careful, most in ((True, 4000), (False, 5000)):
            own_job = changed(job, careful=careful)
            made = [portions.Portions(own_job, work, 4000, 4000 * own, first=first) for _ in range(3)]
            assert made[0].size(most) == most
            assert made[1].size(most + 1) < most + 1
            made[2].size(1)
            assert made[2].size(most) < most  # the next slice: states are carried on to it


def test_a_task_that_is_alone_has_the_machines_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a local session it has a thread for each core. It had a core's share, and ran a log in portions that fits."""
    monkeypatch.setattr(tasks, "state_memory", lambda: 1000)
    monkeypatch.setattr(tasks, "cores", lambda: 4)
    job = Job(Counted(), (), None, (0, 1), Path(), Path())  # type: ignore[arg-type]
    task = Task(1, "final_chain", "final")
    assert [tasks._budget(job, msgspec.structs.replace(task, threads=n)) for n in (1, 4, 8)] == [
        1000,
        4000,
        4000,
    ]
    assert tasks._budget(changed(job, memory=7), task) == 7
