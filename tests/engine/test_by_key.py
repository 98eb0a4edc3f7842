"""By key: each worker goes through its own events; the starts that it finds are those of the serial meaning."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import timelapse as tl
from tests.engine.by_key_programs import (
    Ewma,
    Friendship,
    Hashed,
    Lowered,
    Matched,
    Message,
    Networks,
    Reading,
    Retired,
    Seen,
    Sums,
    Talk,
    pair,
)  # fmt: skip
from tests.engine.planned import replay_by
from timelapse.analysis import ByKey, analyse, share_out
from timelapse.engine.executor import Done, LocalExecutor, Watch
from timelapse.engine.job import Task
from timelapse.errors import HandlerError
from timelapse.kernels.parts import Part
from timelapse.log import Log, MemoryLog
from timelapse.plan import make_plan
from timelapse.plan.strategy import Strategy
from timelapse.run import Run, replay, run_serial
from timelapse.testing import check_replay, random_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS: dict[type[tl.Program], list[type[tl.Event]]] = {
    Ewma: [Reading, Reading, Retired],
    Sums: [Message],
    Talk: [Friendship, Message, Message],
}
BY_KEY = {Ewma: ["mean"], Sums: ["total", "per_host"], Talk: ["weight", "score"]}


class Recording(LocalExecutor):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Task] = []

    def submit(self, tasks: list[Task], done: Done, watch: Watch) -> None:  # type: ignore[override]
        self.seen += tasks
        super().submit(tasks, done, watch)


def staged(program: type[tl.Program], log: MemoryLog, out: Path, executor: LocalExecutor, slices: int, cores: int = 2, wrong: str = "") -> Run:  # fmt: skip
    """`wrong`: a field by which the events of pairs are shared out, which is not theirs."""
    made = program()
    analysis = analyse(made)
    plan = make_plan(analysis, cores=cores, slices=slices, force="staged")
    if wrong:
        first = plan.stages[0]
        assert first.states == ("total",)
        assert first.work.by_key is not None
        key = dataclasses.replace(first.work.by_key.keys["Message"], plain=(wrong,))
        keys = dataclasses.replace(first.work.by_key, keys={"Message": key})
        stage = dataclasses.replace(first, work=dataclasses.replace(first.work, by_key=keys))
        plan = dataclasses.replace(plan, stages=(stage, *plan.stages[1:]))
    return replay_by(plan, made, log, executor, out, slices)


@pytest.mark.parametrize("program", list(EVENTS), ids=lambda p: p.__name__)
def test_by_key_equals_the_serial_meaning(program: type[tl.Program]) -> None:
    plan = make_plan(program, slices=3)
    assert [s for stage in plan.stages if stage.strategy is Strategy.BY_KEY for s in stage.states] == BY_KEY[
        program
    ]
    for seed in range(2):
        events = random_log(EVENTS[program], seed=seed, count=12)
        check_replay(program, events, strategies=["staged"], slices=(3,))


TEXTS = [
    "10.1.2.3",
    "10.1.9.9",
    "192.168.0.1",
    "no address",
    "Ann@b.example ",
    "ann@B.example",
    "AB-1",
    " ab-2",
    "",
]


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (Lowered, "Seen by e.text.split('-')[0].strip()[:3].lower()"),
        (Matched, "Seen by domain(e.text)"),
        (Networks, "Seen by network(e.text, bits=16)"),
        (Hashed, "Seen by f\"{hashlib.sha1(e.text.encode()).hexdigest()[:1]}{re.sub('[0-9]+', '', e.text)[:1]!r:>4}\""),
    ],
)  # fmt: skip
def test_keys_made_with_the_standard_library(program: type[tl.Program], text: str, tmp_path: Path) -> None:
    """What depends on its arguments alone follows from the event, whoever calls it."""
    found = share_out(analyse(program), ["mean"])
    assert isinstance(found, ByKey)
    assert found.text == text
    events = [Seen(text=TEXTS[i * i % 7 + i % 3], value=i / 3, ts=i // 2) for i in range(60)]
    run = staged(program, MemoryLog(events, [Seen]), tmp_path / "run", LocalExecutor(), 3)
    assert run.certificate["fallback"] is None
    assert run.digest == run_serial(program, events).digest
    assert run.state_digest == run_serial(program, events).state_digest


@pytest.mark.parametrize("cores", [2, 3, 5])
def test_every_worker_does_its_part_and_no_more(tmp_path: Path, cores: int) -> None:
    """As many tasks as cores, each over all slices but the last; their events add up to those of the log."""
    log = MemoryLog(random_log([Reading], seed=1, count=60, keys=12), [Reading, Retired])
    executor = Recording()
    run = staged(Ewma, log, tmp_path / "run", executor, 4, cores)
    parts = [t for t in executor.seen if t.kind == "chain"]
    assert [(t.part, t.parts) for t in parts] == [(i, cores) for i in range(cores)]
    assert {t.last for t in parts} == {2}
    assert run.certificate["fallback"] is None
    assert run.digest == run_serial(Ewma, log).digest


def test_states_that_share_out_their_events_alike_share_a_pass() -> None:
    class Two(tl.Program):
        a: tl.Value[int, float] = tl.state(default=0.0)
        b: tl.Value[tuple[int, int], float] = tl.state(default=0.0)
        c: tl.Value[int, float] = tl.state(default=0.0)

        @tl.on(Message)
        def all_three(self, e: Message) -> None:
            self.a[e.sender] += 0.1
            self.b[e.sender, e.recipient] += 0.1
            self.c[e.recipient] += 0.1

    plan = make_plan(Two, slices=2)
    assert [stage.states for stage in plan.stages] == [("a", "b"), ("c",)]
    assert plan.stages[0].work.by_key is not None
    assert dict(plan.stages[0].work.by_key.states) == {"a": None, "b": 0}


def test_events_shared_out_wrongly_are_found_and_the_result_is_exact(tmp_path: Path) -> None:
    """The final pass proves the starts: a key that is not the accesses' own is called a bug, and repaired."""
    log = MemoryLog(random_log([Message], seed=3, count=40), [Message])
    run = staged(Sums, log, tmp_path / "run", LocalExecutor(), 3, wrong="sender")
    assert run.certificate["fallback"]["is_bug"]
    assert run.digest == run_serial(Sums, log).digest


def test_what_a_helper_is_given_by_name_is_of_the_event(tmp_path: Path) -> None:
    """Also where the handler calls the event otherwise than keys do."""

    class Named(tl.Program):
        total: tl.Value[tuple[int, int], float] = tl.state(default=0.0)

        @tl.on(Message)
        def add(self, m: Message) -> None:
            self.total[pair(a=m.sender, b=m.recipient)] += 0.1 * m.sender

    found = share_out(analyse(Named), ["total"])
    assert isinstance(found, ByKey)
    assert found.text == "Message by pair(a=e.sender, b=e.recipient)"
    log = MemoryLog(random_log([Message], seed=4, count=40), [Message])
    run = staged(Named, log, tmp_path / "run", LocalExecutor(), 3)
    assert run.certificate["fallback"] is None
    assert run.digest == run_serial(Named, log).digest


def test_columns_and_single_values_give_the_same_worker() -> None:
    """A field is hashed as a column, an expression row by row: equal keys must go to one worker."""
    log = MemoryLog(random_log([Message], seed=5, count=50), [Message])
    plan = make_plan(Sums, slices=2)
    work = next(s.work for s in plan.stages if "per_host" in s.states)
    assert work.by_key is not None
    (chunk,) = log.chunks(0, 50, {"Message": ("host",)})
    part = Part.of(Sums(), work, 0, 2)
    key = work.by_key.keys["Message"]
    assert key.plain == ("host",)
    slow = dataclasses.replace(key, plain=())
    found = part.hashes(key, "Message", chunk.tables["Message"])
    assert found.tolist() == part.hashes(slow, "Message", chunk.tables["Message"]).tolist()
    assert len(set(found.tolist())) > 3


def test_a_failing_handler_is_reported_as_the_serial_meaning_reports_it() -> None:
    class Breaks(tl.Program):
        mean: tl.Value[int, float] = tl.state(default=1.0)

        @tl.on(Reading)
        def go(self, e: Reading) -> None:
            self.mean[e.sensor] = self.mean[e.sensor] / e.value

    events = [Reading(sensor=i % 3, value=float(i != 17), ts=i) for i in range(24)]
    with pytest.raises(HandlerError):
        check_replay(Breaks, events, strategies=["staged"], slices=(3,))


@pytest.mark.spark
def test_by_key_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """The key travels to the workers; text is hashed there as here."""
    log = Log.from_events(tmp_path / "log", random_log([Message], seed=2, count=60), [Message])
    run = replay(Sums, log, slices=3, spark=spark, strategy="staged")
    assert run.certificate["fallback"] is None
    assert (run.digest, run.state_digest) == (
        run_serial(Sums, log).digest,
        run_serial(Sums, log).state_digest,
    )


def test_one_pass_by_key_is_chosen_where_it_is_compiled_and_there_are_cores() -> None:
    counts = {"Reading": 10_000_000, "Retired": 0}

    def mode(compiled: bool = True, threads: int = 4, slices: int | None = None) -> str:
        return make_plan(
            Ewma, counts=counts, cores=2, threads=threads, slices=slices, compiled=lambda work, final: compiled
        ).mode  # fmt: skip

    assert mode() == "by key"
    assert mode(compiled=False) != "by key"
    assert mode(threads=1) != "by key"
    assert mode(slices=4) == "staged"
    assert (
        make_plan(Sums, counts={"Message": 10_000_000}, threads=2, compiled=lambda work, final: True).whole
        is None
    )


def test_a_key_that_has_to_be_computed_is_not_shared_out_among_compiled_passes() -> None:
    """Python would take longer to say whose an event is than the compiled pass takes in all."""

    class Pairs(tl.Program):
        total: tl.Value[tuple[int, int], float] = tl.state(default=0.0)

        @tl.on(Message)
        def add(self, e: Message) -> None:
            self.total[pair(e.sender, e.recipient)] += 0.1

    class Senders(tl.Program):
        total: tl.Value[int, float] = tl.state(default=0.0)

        @tl.on(Message)
        def add(self, e: Message) -> None:
            self.total[e.sender] += 0.1

    def ratio(program: type[tl.Program]) -> float:
        plan = make_plan(
            program, counts={"Message": 100_000_000}, cores=8, threads=1, compiled=lambda work, final: True
        )  # fmt: skip
        return plan.ratio("staged", 8)  # of its own accord it would take fewer slices

    assert ratio(Senders) < 1 < 2 < ratio(Pairs)
