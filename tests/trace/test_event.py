"""One event under observation: it does what it did, and tells the truth about it."""

from __future__ import annotations

import dataclasses
import decimal
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.trace import programs
from tests.trace.programs import Antispam, Friendship, Grouped, Louder, Message, Odd, Spam, Tangled, Timed
from tests.writers.sources import load_source, random_events, random_program
from timelapse import trace
from timelapse.errors import ReplayError, RunError, TimelapseError
from timelapse.kernels.choose import SWITCH
from timelapse.log import MemoryLog
from timelapse.run import Run, replay
from timelapse.trace.logged import event_at
from timelapse.trace.margins import margin_of
from timelapse.trace.moments import Past
from timelapse.trace.steps import MISSING, Read, Write
from timelapse.trace.tracer import Tracer


def messages(count: int, seed: int = 3) -> list[tl.Event]:
    """A small log of messages and friendships, with ties in time."""
    rng = random.Random(seed)
    made: list[tl.Event] = []
    for i in range(count):
        if rng.random() < 0.2:
            made.append(Friendship(a=rng.randrange(6), b=rng.randrange(6), ts=i // 2))
            continue
        text = rng.choice(["", "a@b", "hello", "bad", "x", "xx@", "[b]"])
        ip = rng.choice(["::1", "10.0.0.1"])
        made.append(Message(i, rng.randrange(6), rng.randrange(6), ip, text, ts=i // 2))
    return made


def states_after_tracing(run: Run, seqs: list[int]) -> list[trace.EventTrace]:
    """Trace these events, slice by slice, in place of the kernel; then the state at each slice's end is the run's."""
    past, tracer, traces = Past(run), Tracer(run), []
    for slice_id in range(run.slices):
        lo, hi = past.cuts[slice_id], past.cuts[slice_id + 1]
        mine = [s for s in seqs if lo <= s < hi]

        def visit(moment: Any, hi: int = hi, slice_id: int = slice_id) -> bool:
            if moment.seq == hi:
                for name in past.spec.states:
                    found = dict(moment.live(name, None)._items())
                    assert found == run.state_at_cut(name, slice_id + 1), name
                return False
            trace, done = tracer.trace(event_at(past.reader, past.program, moment.seq), moment, slice_id)
            traces.append(trace)
            return done

        past.walk(slice_id, [*mine, hi], visit)
    return traces


@pytest.mark.parametrize(
    ("program", "kernel"),
    [(Antispam, "python"), (Antispam, "native"), (Odd, "python"), (Louder, "python"), (Tangled, "python")],
)
def test_a_traced_event_does_what_it_did(
    program: type[tl.Program], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs, rejections (compared by the tracer) and states are the run's, whichever events are traced."""
    monkeypatch.setenv(SWITCH, kernel)
    events = MemoryLog(messages(120), [Message, Friendship])
    run = replay(program, events, slices=3, spark=False)
    listened = [e.seq for e in messages_in(events, program)]
    states_after_tracing(run, listened)
    states_after_tracing(run, listened[1::5])
    serial = tl.run_serial(program, events)
    for name in run.manifest.states:  # by a kernel that is asked for this state alone
        for at in (7, 31, 58):
            assert run.state(name.name, at).equals(serial.state(name.name, at)), (name.name, at)
    for moment in (None, 7, 31, 58):  # and by one that is asked for all
        assert run.states(moment) == serial.states(moment)
    assert list(run.states(31, names=[name.name])) == [name.name]


def test_what_handlers_raised_is_told_and_undone() -> None:
    """In a run with quarantine, with kinds that keep an index or need the time; and a rejection beside."""
    rng = random.Random(4)
    events: list[tl.Event] = [Friendship(a=rng.randrange(6), b=rng.randrange(20), ts=i) for i in range(150)]
    run = replay(Grouped, MemoryLog(events), slices=3, spark=False, quarantine=True)
    out = run.stored_quarantined().column("seq").to_pylist()
    assert len(out) > 5
    traces = states_after_tracing(run, list(range(150)))
    states_after_tracing(run, list(range(0, 150, 4)))
    assert [t.seq for t in traces if t.quarantined is not None] == out
    told = traces[out[0]].quarantined
    assert told is not None
    assert told[:2] == ("work", "ZeroDivisionError: integer division or modulo by zero")
    assert "taken out of the log" in traces[out[0]].text


def messages_in(log: MemoryLog, program: type[tl.Program]) -> list[tl.Event]:
    classes = {cls.__name__: cls for cls in program.__spec__.events}
    return list(log.events(0, 10**9, classes))


def test_random_programs_do_under_observation_what_they_do() -> None:
    """Every event of random programs: same outputs, same states."""
    branches = reads = traced = 0
    for seed in range(deep(12)):
        rng = random.Random(seed)
        cls = load_source(random_program(rng, size=5))
        log = MemoryLog(random_events(cls, rng, 40))
        try:
            run = replay(cls, log, slices=2, spark=False)
        except TimelapseError:
            continue  # a handler raises: there is no run to look into
        seqs = [e.seq for e in messages_in(log, cls)]
        found = states_after_tracing(run, seqs)
        branches += sum(len(t.branches) for t in found)
        reads += sum(len(t.reads) for t in found)
        traced += 1
    assert traced >= deep(6, 2)
    assert branches > deep(100)
    assert reads > deep(200)


@pytest.fixture(scope="module")
def run() -> Run:
    return replay(Antispam, MemoryLog(STORY, [Message, Friendship]), slices=2, spark=False)


STORY: list[tl.Event] = [
    Friendship(a=2, b=1, ts=1),
    Message(10, 1, 2, "::1", "hi", ts=2),
    Message(11, 1, 3, "::1", "a@b", ts=3),
    Message(12, 1, 3, "::1", "a@b", ts=4),
    Message(13, 1, 4, "::1", "no", ts=5),
    Message(14, 1, 4, "::1", "bad", ts=6),
]


def test_a_trace_tells_reads_conditions_writes_and_records(run: Run) -> None:
    """Event by event, with values, keys and lines of the source."""
    found = trace.event(run, 4)
    assert [h.name for h in found.handlers] == ["count", "flag"]
    count, flag = found.handlers
    assert count.steps[0] == Read("friends", (1, 4), False, False, count.steps[0].line)
    assert [(s.state, s.key, s.before, s.after) for s in count.steps if isinstance(s, Write)] == [
        ("to_others", 1, 2, 3), ("sent", "::1", 3, 4), ("total", (), 3, 4), ("last", 1, "a@b", "no"),
    ]  # fmt: skip
    assert all(r.own for r in count.reads if r.state in ("to_others", "sent", "total"))
    assert [c.values for c in count.conditions] == ["(1, 4) in friends", "'@' in 'no'"]
    assert [c.outcome for c in count.conditions] == [False, False]
    spared = next(c for c in flag.conditions if "to_others" in c.text)
    assert spared.text == "to_others[1] > ratio * to_friends[1]"
    assert spared.full == "to_others[1]=3 > ratio=2.0 * to_friends[1]=1"
    assert spared.values == "3 > 2.0"
    assert spared.outcome
    assert spared.margin is not None
    assert spared.margin.text == "1 less would fail"
    assert [(r.state, r.key, r.value) for r in spared.reads] == [("to_others", 1, 3), ("to_friends", 1, 1)]
    last = flag.branches[-1]
    assert last.source == "strangers and with_email[m.ip] > share * sent[m.ip]"
    assert [p.values for p in last.parts] == ["3 > 2.0", "2 > 0.8"]
    assert flag.emits[0].record == Spam(message=13, sender=1)
    assert found.outputs == (Spam(message=13, sender=1),)
    source = Path(programs.__file__).read_text(encoding="utf-8").splitlines()
    assert "strangers and" in source[last.line - 1]


def test_what_keeps_an_event_from_being_put_out_is_marked(run: Run) -> None:
    """The branch on whose other way there is an emit, and the early return before one; with the margin."""
    early = trace.event(run, 1).handlers[1].branches
    assert [(b.source, b.outcome, b.blocks) for b in early] == [
        ("m.text == 'bad'", False, False), ("total < 3", True, True),
    ]  # fmt: skip
    late = trace.event(run, 3).handlers[1].branches[-1]
    assert late.outcome is False
    assert late.blocks
    assert [p.outcome for p in late.parts] == [False]
    assert late.parts[0].margin is not None
    assert late.parts[0].margin.text == "short by 1"


def test_a_rejected_event_tells_where(run: Run) -> None:
    """Its writes are undone for what comes later, and told all the same."""
    found = trace.event(run, 5)
    assert found.rejected is not None
    assert found.rejected[:2] == ("flag", "bad word")
    assert found.outputs == ()
    assert found.writes
    assert "rejected by flag" in found.text


def test_a_condition_in_a_local_variable_is_told_with_the_branch() -> None:
    """Through `and`, `or`, `not` and methods; what was not evaluated is not told."""
    events = [Friendship(a=1, b=2, ts=1), Friendship(a=1, b=3, ts=2), Friendship(a=1, b=9, ts=3)]
    run = replay(Tangled, MemoryLog(events), spark=False)
    (handler,) = trace.event(run, 1).handlers
    assert [b.source for b in handler.branches] == ["not busy(e.a)", "even or e.b in (7, 8)"]
    assert [c.values for c in handler.branches[1].parts] == ["0 == 0", "3 != 3", "3 in (7, 8)"]
    assert [c.values for c in trace.event(run, 2).handlers[0].branches[1].parts] == ["1 == 0", "9 in (7, 8)"]
    busy = [c for c in handler.conditions if c.function == "busy"]
    assert [(c.text, c.values) for c in busy] == [("n[1] >= 2", "2 >= 2")]


def test_traces_are_json(run: Run) -> None:
    """All of it, without losing what happened."""
    told = json.loads(json.dumps(trace.event(run, 4).to_json(), allow_nan=False))
    assert told["outputs"] == [{"record": "Spam", "fields": {"message": 13, "sender": 1}}]
    kinds = {s["step"] for h in told["handlers"] for s in h["steps"]}
    assert kinds == {"read", "write", "condition", "branch", "emit"}


def test_a_handler_without_source_tells_what_it_reads_and_writes() -> None:
    """Nothing is known of its conditions."""
    namespace: dict[str, Any] = {"tl": tl, "E": Friendship, "Spam": Spam, "__name__": "nowhere"}
    exec(
        "class P(tl.Program):\n    n: tl.Counter[int]\n    @tl.on(E)\n    def h(self, e):\n"
        "        self.n[e.a] += 1\n        if self.n[e.a] > 1: self.emit(Spam(message=1, sender=e.a))\n"
        "    @tl.on(E)\n    def g(self, e):\n        if e.b == 5: self.reject('five')\n",
        namespace,
    )
    events = [Friendship(a=1, b=2, ts=1), Friendship(a=1, b=3, ts=2), Friendship(a=1, b=5, ts=3)]
    run = replay(namespace["P"], MemoryLog(events), spark=False)
    found = trace.events(run, [1, 2])
    assert [h.known for h in found[1].handlers] == [False, False]
    assert [(w.state, w.before, w.after) for w in found[1].writes] == [("n", 1, 2)]
    assert found[1].outputs == (Spam(message=1, sender=1),)
    assert found[2].rejected is not None
    assert found[2].rejected[0] == "g"
    assert Write("n", 1, MISSING, 1, 0) in trace.event(run, 0).writes


def test_events_that_are_not_there_are_named(run: Run) -> None:
    """Beyond the log, and of a type to which the program does not listen."""
    with pytest.raises(RunError, match="no event with seq 99"):
        trace.event(run, 99)
    other = replay(Tangled, MemoryLog(STORY, [Message, Friendship]), spark=False)
    with pytest.raises(RunError, match="of type Message, to which Tangled does not listen"):
        trace.event(other, 1)


def test_an_outcome_that_differs_from_the_run_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told must be what happened."""
    stored = run.stored("Spam")
    monkeypatch.setattr(run, "stored", lambda name: stored.slice(0, 0))
    with pytest.raises(ReplayError, match="does not put out what the run did"):
        trace.event(run, 4)


@pytest.mark.parametrize(
    ("left", "op", "right", "text"),
    [
        (5, ">", 6.0, "short by 2"), (5, ">=", 6.0, "short by 1"), (5, ">", 5.5, "short by 1"),
        (7, "<", 5, "over by 3"), (7, "<=", 5.5, "over by 2"), (1.5, ">", 2, "short by more than 0.5"),
        (2.0, ">", 2, "short by more than 0"), (1.5, ">=", 2, "short by 0.5"), (3, "==", 5, "short by 2"),
        (5, "==", 3.5, None), (7, ">", 5, "2 less would fail"), (7, ">=", 5, "3 less would fail"),
        (3, "<", 5, "2 more would fail"), (2**62 + 1, ">", 2.0**62, "1 less would fail"),
        (5, "!=", 5, None), (5, "!=", 6, "1 more would fail"), (True, ">", 2, None), (float("nan"), ">", 2, None),
        (1, "<", float("inf"), None), ("a", "<", "b", None), (-3, ">", -2.5, "short by 1"),
        (Decimal("1.01"), ">", Decimal("500.00"), "short by more than 498.99"),
        (Decimal("1234.50"), ">=", 2, "more than 1,232.50 less would fail"),
        (Decimal("1.00"), ">=", Decimal("2.5"), "short by 1.50"), (5, ">", Decimal("5.50"), "short by 1"),
        (Decimal("1.00"), "==", 3, "short by 2.00"), (Decimal("1.0"), "<=", 0.1, "over by 0.9"),
        (Decimal("NaN"), "!=", 1, None), (Decimal("1"), "<", float("inf"), None),
    ],
)  # fmt: skip
def test_margins_say_what_the_left_side_lacks(left: Any, op: str, right: Any, text: str | None) -> None:
    """In the smallest change that gives the other result; and that change does give it."""
    outcome = bool(eval(f"left {op} right"))
    found = margin_of(left, op, right, outcome)
    with decimal.localcontext(prec=2):  # as a user's module may set it
        assert (None if found is None else found.text) == text
    if found is not None and not found.open:
        assert bool(eval(f"left + found.amount {op} right")) is not outcome
        if isinstance(left, int) and found.amount:
            sign = 1 if found.amount > 0 else -1
            assert bool(eval(f"left + {found.amount - sign} {op} right")) is outcome
    if found is not None:
        assert dataclasses.replace(found) == found


def test_programs_with_windows_are_traced_by_the_serial_loop() -> None:
    """Every event of the log, outputs and rejections compared with the run; the loop goes on as if nobody had looked."""
    rng = random.Random(9)
    events: list[tl.Event] = [
        Friendship(a=rng.randrange(3), b=rng.randrange(6), ts=3_600 * 10**6 - 100 + 3 * i) for i in range(90)
    ]  # fmt: skip
    run = replay(Timed, MemoryLog(events), slices=2, spark=False)
    found = trace.events(run, range(90))
    emitted = [r for t in found.values() for r in t.outputs]
    assert len(emitted) == run.counts["Spam"] - 1 > 5  # one is the tick's
    assert sum(t.rejected is not None for t in found.values()) == run.rejected_count > 3
    few = trace.events(run, range(0, 90, 7))
    assert {s: t.to_json() for s, t in few.items()} == {s: found[s].to_json() for s in few}
    some = next(t for t in found.values() if t.outputs)
    (handler,) = some.handlers
    windows = [c for c in handler.conditions if "last(10)" in c.source]
    assert windows[0].outcome
    assert windows[0].values == "2 > 1"
    assert run.why(some.seq).holds
