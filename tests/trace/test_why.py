"""Why, why not, who wrote it: exact, also where keys are computed and slices are many."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.trace.programs import Antispam, Edge, Friendship, Label, Message, Spam
from tests.trace.test_event import STORY, messages
from timelapse import serial, trace
from timelapse.errors import RunError, UsageError
from timelapse.kept import Kept
from timelapse.log import Log, MemoryLog
from timelapse.model.order import in_order
from timelapse.run import Run, replay
from timelapse.trace import instrument
from timelapse.trace import likely as likely_module
from timelapse.trace import writers as writers_module
from timelapse.trace.knowledge import Ask
from timelapse.trace.logged import event_at
from timelapse.trace.moments import Past
from timelapse.trace.questions import find_output
from timelapse.trace.recorder import MOST_CALLS, Recorder
from timelapse.trace.steps import MISSING, line_of
from timelapse.trace.tracer import Tracer, _emits_at_most
from timelapse.trace.writers import Written, writers


class Derived(tl.Program):
    """Keys that no field holds; events that are rejected; writes that leave a key as it was."""

    a: tl.Counter[int]
    b: tl.Value[tuple[int, bool], int] = tl.state(default=0)
    last: tl.Value[int] = tl.state(default=-1)

    @tl.on(Message)
    def work(self, m: Message) -> None:
        self.a[m.sender * 7 % 5 + 100] += len(m.text) - 2
        k = self.a[m.recipient + 100] % 3
        self.b[k, m.text == ""] = m.sender
        self.last = m.sender  # type: ignore[assignment]
        if m.text == "bad":
            self.reject()


class Joined(tl.Record):
    node: int
    label: int


class Spread(tl.Program, loop=1000):
    """One event may call handlers many times, with what is sent."""

    label: tl.Value[int, int] = tl.state(default=0)
    heard: tl.Counter[int]
    near: tl.SetOf[int, int]

    @tl.on(Edge)
    def join(self, e: Edge) -> None:
        self.near.add(e.a, e.b)
        self.send(Label(node=e.b, label=e.a))

    @tl.on(Label)
    def hear(self, e: Label) -> None:
        self.heard[e.node % 7] += 1
        if self.label[e.node] < e.label and self.heard[e.node % 7] > 0:
            self.label[e.node] = e.label
            self.emit(Joined(node=e.node, label=e.label))
            for other in self.near[e.node]:
                self.send(Label(node=other, label=e.label))


class Counted(Spread, loop=1000):
    """The event itself puts something out, too."""

    seen: tl.Counter[int]

    @tl.on(Edge)
    def count(self, e: Edge) -> None:
        self.seen[e.b] += 1
        if self.seen[e.b] > 1:
            self.emit(Joined(node=-self.seen[e.b] + 1, label=e.a))


def all_writes(program: type[tl.Program], events: list[tl.Event]) -> dict[tuple[str, Any], list[Written]]:
    """Every change of every key by the serial loop, newest first."""
    loop = serial.Loop(program)
    found: dict[tuple[str, Any], list[Written]] = {}
    for event in in_order(events):
        before = {n: dict(s) for n, s in loop.outcome.states.items()}
        loop.step(event)
        for name, state in loop.outcome.states.items():
            for key in {*state, *before[name]}:
                x, y = before[name].get(key, MISSING), state.get(key, MISSING)
                if x != y or (x is MISSING) != (y is MISSING):
                    found.setdefault((name, key), []).insert(0, Written(event.seq, x, y))
    return found


def test_handlers_are_rewritten_once_for_many_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next question of the same code finds them rewritten, with all their places; other code is rewritten anew."""
    made: list[str] = []
    real = instrument._compiled

    def counting(function: Any, *args: Any) -> Any:
        made.append(function.__qualname__)
        return real(function, *args)

    monkeypatch.setattr(instrument, "_compiled", counting)
    monkeypatch.setattr(instrument, "_REWRITTEN", Kept(256))
    run = replay(Derived, MemoryLog(messages(20, seed=5), [Message, Friendship]), spark=False)
    first = run.why_not(8).to_json()
    assert made == ["Derived.work"]
    assert run.why_not(8).to_json() == first
    assert len(made) == 1
    monkeypatch.setattr(
        Derived.work,
        "__code__",
        Derived.work.__code__.replace(co_firstlineno=Derived.work.__code__.co_firstlineno),
    )
    assert run.why_not(8).to_json() == first
    assert made == ["Derived.work", "Derived.work"]


@pytest.mark.parametrize("program", [Antispam, Derived])
@pytest.mark.parametrize("slices", [1, 3])
def test_writers_are_those_of_the_serial_loop(
    program: type[tl.Program], slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every change is found, newest first, from any event on; writes of the same value may be among them."""
    monkeypatch.setattr(writers_module, "_STOPS", 2)
    for name in ("_EVENLY", "_CLOSER", "_LEAST"):
        monkeypatch.setattr(writers_module, name, 2)
    events = messages(90, seed=5)
    log = MemoryLog(events, [Message, Friendship])
    past = Past(replay(program, log, slices=slices, spark=False))
    checked = 0
    for seq in (90, 61, 30):
        changes = all_writes(program, events[:seq])
        found = {a.place: w for a, w in writers(past, [Ask(p, seq) for p in changes], 1000).items()}
        for place, wanted in changes.items():
            mine = [w for w in found[place].found if w.before != w.after or w.before is MISSING]
            assert mine == wanted, (seq, place)
            checked += len(wanted)
            few = writers(past, [Ask(place, seq)], 2)[Ask(place, seq)].found
            assert few == found[place].found[:2]
    assert checked > 150


def test_questions_about_many_events_are_answered_at_once() -> None:
    """Each with what was written before its own event, as when it is asked alone."""
    events = messages(90, seed=6)
    past = Past(replay(Antispam, MemoryLog(events, [Message, Friendship]), slices=2, spark=False))
    places = list(all_writes(Antispam, events))[::3]
    asks = [Ask(place, seq) for place in places for seq in (12, 40, 41, 77, 90)]
    together = writers(past, asks, 3)
    assert {a: w.found for a, w in together.items()} == {a: writers(past, [a], 3)[a].found for a in asks}
    assert sum(len(w.found) for w in together.values()) > 100


class Loops(tl.Program):
    """Goes round a loop so often that nobody would read it all."""

    n: tl.Counter[int]

    @tl.on(Message)
    def work(self, m: Message) -> None:
        few = 0
        for i in range(30_000):
            if i % 1000 == 999:
                few += 1
        if few == 30:
            self.emit(Spam(message=m.id, sender=few))


def test_a_loop_is_told_in_sum() -> None:
    """The first rounds, how often it came out how, and what came after it."""
    found = replay(Loops, MemoryLog(messages(30, seed=1), [Message, Friendship]), spark=False).why(
        "Spam:sender=30"
    )
    lines = found.text.splitlines()
    assert len(lines) < 20
    assert sum("% 1000 == 999" in line for line in lines) == 8
    assert lines[-2].endswith(" 29,992 more times: 30 true, 29,962 false")
    assert lines[-3].endswith("few=30 == 30   (30 == 30)")
    assert "emit Spam(" in lines[-1]
    assert not found.trace.cut


@pytest.mark.parametrize("native", [False, True])
def test_of_many_calls_the_one_that_put_the_record_out_is_told(
    monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    """As it is told where all of them are kept: its conditions, what it read, and who wrote that, this event's other calls too."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native" if native else "python")
    edges = [(n, n + 1) for n in range(1, 151)] + [(7000, 1), (8000, 1)]
    events = [Edge(ts=n, a=a, b=b) for n, (a, b) in enumerate(edges)]
    run = replay(Spread, MemoryLog(events, [Edge]), spark=False)
    for node in (1, 3, 70, 149, 151):
        question = f"Joined:node={node},label=8000"
        with monkeypatch.context() as patched:
            for module in ("recorder", "tracer", "why", "explanation"):
                patched.setattr(import_module(f"timelapse.trace.{module}"), "MOST_CALLS", 1000)
            full = trace.why(run, question)
        assert len(full.cause.handlers) == 151
        assert full.trace.calls == 0
        told = trace.why(run, question)
        (handler,) = told.cause.handlers
        ours = next(h for h in full.cause.handlers if h.emits[0].record == Joined(node=node, label=8000))
        assert [line_of(s) for s in handler.steps] == [line_of(s) for s in ours.steps]
        assert handler.rounds == ours.rounds
        alone = import_module("timelapse.trace.why")._begun(full.trace, (ours,)).seen
        assert [(s.read, s.here) for s in told.cause.seen] == [(s.read, s.here) for s in alone]
        known = {id(s.read): s for s in full.cause.seen}  # of a place that several calls read the first
        same = [known[id(s.read)].to_json() for s in alone if id(s.read) in known]
        assert same
        assert [s for s in (own.to_json() for own in told.cause.seen) if s in same] == same
        assert len(told.cause.seen) == 3
        assert told.trace.calls == 152
        assert told.trace.outputs == full.trace.outputs
        assert len(told.lines) < 12
        assert told.lines[-1][0].startswith("handlers were called 152 times")


@pytest.mark.parametrize("most", [1, 100])
def test_of_an_event_with_many_calls_those_that_are_told_alone_run_as_python(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The others are done compiled; the pass goes on as if nobody had looked. Where too many calls wrote what was read, all run as Python."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    monkeypatch.setattr(import_module("timelapse.trace.inside"), "_MOST", most)
    edges = [(n, n + 1) for n in range(1, 151)] + [(7000, 1), (8000, 1), (5, 9000), (9001, 77)]
    run = replay(
        Spread, MemoryLog([Edge(ts=n, a=a, b=b) for n, (a, b) in enumerate(edges)], [Edge]), spark=False
    )
    entered: list[str] = []
    enter = Recorder.enter

    def entering(self: Recorder, handler: str) -> None:
        entered.append(handler)
        enter(self, handler)

    monkeypatch.setattr(Recorder, "enter", entering)
    for node, alone in ((1, True), (150, most == 100)):
        entered.clear()
        told = trace.why(run, f"Joined:node={node},label=8000")
        assert told.trace.calls == 152
        assert (len(entered) < 60) is alone
    past, found = Past(run), find_output(run, "Joined:node=150,label=8000")
    tracer, traced = Tracer(run, found), list[int]()

    def visit(moment: Any) -> bool:
        if moment.seq == found.seq:
            traced.append(moment.seq)
            return tracer.trace(event_at(past.reader, past.program, moment.seq), moment, 0)[1]
        for name in past.spec.states:
            assert dict(moment.live(name, None)._items()) == run.state_at_cut(name, 1), name
        return False

    past.walk(0, [found.seq, len(edges)], visit)
    assert traced


def test_a_record_of_the_event_itself_is_told_among_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before what is sent; two handlers listen to the event."""
    events = [Edge(ts=n, a=n, b=n + 1) for n in range(1, 101)] + [Edge(ts=200, a=500, b=2)]
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    compiled = replay(Counted, MemoryLog(events, [Edge]), spark=False)
    monkeypatch.setenv("TIMELAPSE_KERNEL", "python")
    python = replay(Counted, MemoryLog(events, [Edge]), spark=False)
    for question in ("Joined:node=-1,label=500", "Joined:node=100,label=500"):
        monkeypatch.setenv("TIMELAPSE_KERNEL", "python")
        expected = trace.why(python, question)
        monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
        told = trace.why(compiled, question)
        assert told.text == expected.text
        assert told.trace.calls == expected.trace.calls > MOST_CALLS
        assert told.trace.outputs == expected.trace.outputs
        assert told.to_json()["reads"] == expected.to_json()["reads"]


def test_calls_that_do_not_reach_the_record_are_hardly_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each emits one at most: what is told of those before is what they wrote."""
    edges = [(n, n + 1) for n in range(1, 151)] + [(7000, 1), (8000, 1)]
    events = [Edge(ts=n, a=a, b=b) for n, (a, b) in enumerate(edges)]
    run = replay(Spread, MemoryLog(events, [Edge]), spark=False)
    observed: list[str] = []
    condition = Recorder._condition

    def noting(self: Recorder, *args: Any) -> Any:
        observed.append(self.function)
        return condition(self, *args)

    monkeypatch.setattr(Recorder, "_condition", noting)
    trace.why(run, "Joined:node=149,label=8000", depth=0)
    assert observed.count("hear") < 2 * 2 * 66


class _Handlers:
    """By their names: how many records each emits at most."""

    def emits_1(self: Any, e: Any) -> None:
        for x in e.a:
            self.n[x] += 1
        self.emit(e)

    def emits_0(self: Any, e: Any) -> None:
        self.n[e.a] += 1

    def emits_2(self: Any, e: Any) -> None:
        if e.a:
            self.emit(e)
        else:
            self.emit(e)

    def unknown_in_a_loop(self: Any, e: Any) -> None:
        for x in e.a:
            self.emit(x)

    def unknown_in_a_list(self: Any, e: Any) -> None:
        self.n[e.a] = len([self.emit(x) for x in e.a])

    def unknown_by_another_name(self: Any, e: Any) -> None:
        put = self.emit
        put(e)

    def unknown_by_a_method(self: Any, e: Any) -> None:
        self.emits_1(e)

    def unknown_by_a_function(self: Any, e: Any) -> None:
        print(self, e)

    def unknown_by_a_base(self: Any, e: Any) -> None:
        super().on(e)  # type: ignore[misc]


@pytest.mark.parametrize("name", [name for name in vars(_Handlers) if name.startswith(("emits", "unknown"))])
def test_how_many_records_a_call_emits_at_most(name: str) -> None:
    expected = int(name[-1]) if name.startswith("emits") else None
    assert _emits_at_most(vars(_Handlers)[name], vars(_Handlers)) == expected


def test_why_not_names_few_of_many_records() -> None:
    """And tells the first calls."""
    events = [
        Edge(ts=n, a=a, b=b) for n, (a, b) in enumerate([*((n, n + 1) for n in range(1, 101)), (9000, 1)])
    ]
    run = replay(Spread, MemoryLog(events, [Edge]), spark=False)
    told = trace.why_not(run, 100)
    assert not told.holds
    assert "and 81 more: ask why" in told.text
    assert told.lines[-1][0] == "handlers were called 102 times: the first 64 calls are told"


def test_writes_of_the_same_value_are_writes() -> None:
    """The last event that set a value counts, whether it changed it or not; rejected ones do not."""
    events: list[tl.Event] = [
        Message(1, 1, 2, "", "x", ts=1), Message(2, 1, 2, "", "y", ts=2), Message(3, 1, 2, "", "bad", ts=3),
    ]  # fmt: skip
    past = Past(replay(Derived, MemoryLog(events), spark=False))
    ask = Ask(("last", ()), 3)
    assert writers(past, [ask], 9)[ask].found == [
        Written(1, 1, 1),
        Written(0, MISSING, 1),
    ]


@pytest.fixture(scope="module")
def run() -> Run:
    return replay(Antispam, MemoryLog(STORY, [Message, Friendship]), slices=2, spark=False)


def test_why_names_conditions_and_who_wrote_what_was_read(run: Run) -> None:
    """With values, margins and writers; the event's own writes are `this event`."""
    found = run.why("Spam:13")
    lines = found.text.splitlines()
    assert lines[0].endswith("Message 4   id=13, sender=1, recipient=4, ip='::1', text='no'")
    text = "\n".join(lines[1:])
    assert "true  to_others[1]=3 > ratio=2.0 * to_friends[1]=1   (3 > 2.0)   1 less would fail" in text
    assert "to_others[1] = 3 <- this event <- Message 3 <- Message 2" in text
    assert "to_friends[1] = 1 <- Message 1" in text
    assert "sent['::1'] = 4 <- this event <- Message 3 <- Message 2 <- Message 1" in text
    assert "emit Spam(message=13, sender=1)" in text
    assert "befriend" not in text
    assert run.why(4).text == found.text
    assert run.why("Spam:message=13").text == found.text
    assert run.why("Spam:sender=1, message=13").text == found.text
    assert json.loads(json.dumps(found.to_json()))["reads"]


def test_depth_explains_the_writers_as_well(run: Run) -> None:
    """Down to as many levels as asked; 0 looks for nobody."""
    deep = run.why("Spam:13", depth=3)
    writer = next(s for s in deep.cause.seen if s.read.state == "to_friends").sources[0]
    assert writer.trace is not None
    friends = next(s for s in writer.trace.seen if s.read.state == "friends")
    assert [s.event.seq for s in friends.sources] == [0]
    assert "(1, 2) in friends" in deep.text
    assert "friends[(1, 2)] = True <- Friendship 0" in deep.text
    shallow = run.why("Spam:13", depth=0)
    assert all(not s.sources for s in shallow.cause.seen)


def test_why_not_names_what_kept_the_event(run: Run) -> None:
    """With margins; a rejected event says so; one that put something out does not fit the question."""
    early = run.why_not(1)
    assert early.holds
    assert "so nothing was put out: total < 3 is true" in early.text
    late = run.why_not("Message:id=12")
    assert "FALSE to_others[1]=2 > ratio=2.0 * to_friends[1]=1   (2 > 2.0)   short by 1" in late.text
    assert "flag" in run.why_not(5).text
    assert "rejected it: 'bad word'" in run.why_not(5).text
    assert not run.why_not(4).holds
    assert "no handler of Friendship emits anything" in run.why_not(0).text


@pytest.mark.parametrize(
    ("question", "error", "match"),
    [
        ("Spam:99", RunError, "no Spam with message=99"), ("Spm:1", RunError, "no record type 'Spm'"),
        ("Spam", UsageError, "names no output"), ("Spam:x", UsageError, "'x' is no value of message"),
        ("Spam:colour=1", UsageError, "'colour=1' is no value"), (3, RunError, "event 3 put out nothing"),
        ("Spam:message=1,colour=2", UsageError, "no value of message"),
        ("Spam@1970-01-02", RunError, r"no Spam at 1970-01-02 00:00:00.000000\n"),
        (None, UsageError, "None names no output"),
        ("Spam@1970-01-02#3", RunError, "no Spam number 3 at 1970"), ("Spam@5#0", UsageError, "number 1"),
    ],
)  # fmt: skip
def test_questions_that_do_not_fit_say_so(
    run: Run, question: Any, error: type[Exception], match: str
) -> None:
    """Each with what there is instead."""
    with pytest.raises(error, match=match):
        run.why(question)


class Asked(tl.Event):
    k: int


class Reminded(tl.Record):
    k: int


class Reminder(tl.Program):
    """What it puts out comes later than the event that it stems from."""

    n: tl.Counter[int]

    @tl.on(Asked, after=5)
    def remind(self, e: Asked) -> None:
        self.n[e.k] += 1
        self.emit(Reminded(k=e.k))


def test_an_event_of_which_something_comes_later_put_out_nothing_at_its_own_time() -> None:
    """Its row has its seq: who asks by that is told how such rows are named."""
    run = replay(Reminder, [Asked(k=1, ts=3), Asked(k=2, ts=20)], until=30, spark=False)
    assert run.table(Reminded)["seq"].to_pylist() == [0, 1]
    with pytest.raises(RunError, match="event 0 put out nothing at its own time") as caught:
        run.why(0)
    assert "TYPE@TIME" in str(caught.value.hint)
    assert "emit Reminded(k=1)" in run.why("Reminded@1970-01-01T00:00:00.000008").text


class Named(tl.Event):
    name: str
    amount: Annotated[Decimal, tl.scale(2)]


class Seen(tl.Record):
    name: str
    amount: Annotated[Decimal, tl.scale(2)]


class Repeats(tl.Program):
    most: Decimal = Decimal("2.50")
    total: tl.Sum[str, Annotated[Decimal, tl.scale(2)]]

    @tl.on(Named)
    def repeat(self, e: Named) -> None:
        self.total[e.name] += e.amount
        if self.total[e.name] > self.most:
            self.emit(Seen(name=e.name, amount=self.total[e.name]))


def test_texts_are_asked_for_as_answers_show_them() -> None:
    """In quotes as without; a text that has quotes of its own is found too. Decimals are shown as numbers, with margins."""
    names = ["plain", "a,b", "'x'", "x", "it's"]
    made = [Named(name=n, amount=Decimal(i + 3), ts=i) for i, n in enumerate(names)]
    run = replay(Repeats, MemoryLog(made, [Named]), spark=False)
    asked = {
        "'plain'": 0,
        '"plain"': 0,
        "plain": 0,
        "'a,b'": 1,
        "a,b": 1,
        "'x'": 2,
        "x": 3,
        '"it\'s"': 4,
        "it's": 4,
    }
    for text, place in asked.items():
        found = find_output(run, f"Seen:name={text}")
        assert (found.seq, found.others) == (place, int(text == "'x'")), text
        assert run.why_not(f"Named:name={text}").trace.seq == place
    with pytest.raises(RunError) as error:
        run.why("Seen:name='plain")
    assert "name='plain', amount=3.00" in str(error.value.hint)
    assert "(3.00 > 2.50)   0.50 less would fail" in run.why("Seen:name=plain").text
    assert '"amount": "-0.50"' in json.dumps(run.why("Seen:name=plain").to_json())


def test_a_time_is_text_a_datetime_or_a_number(run: Run) -> None:
    """All of them name the same moment; what is no time is an error."""
    ts = run.need_reader().ts_before(4) or 0
    at = datetime(1970, 1, 1) + timedelta(microseconds=ts)
    wanted = run.state("sent", at=ts)
    assert wanted != run.state("sent")
    assert run.state("sent", at=at) == run.state("sent", at=at.replace(tzinfo=UTC)) == wanted
    zoned = at.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=2))).isoformat()
    assert run.state("sent", at=at.isoformat()) == run.state("sent", at=zoned) == wanted
    for none in ("soon", 2.5, True):
        with pytest.raises(UsageError, match=r"at=.* is no time"):
            run.state("sent", at=none)  # type: ignore[arg-type]


def test_an_output_is_no_event(run: Run) -> None:
    """`why-not` of a record's type names the question that was meant, and the events there are."""
    with pytest.raises(RunError) as error:
        run.why_not("Spam:5")
    assert "timelapse why RUN Spam:5" in str(error.value.hint)
    assert "Message" in str(error.value.hint)


def test_a_key_has_a_history() -> None:
    """What it held before any time, as the serial loop has it, and the writes before; as table and plot."""
    events = messages(80, seed=8)
    run = replay(Antispam, MemoryLog(events, [Message, Friendship]), slices=3, spark=False)
    rng = random.Random(2)
    for at in [None, *(rng.randrange(42) for _ in range(12))]:
        before = [e for e in events if at is None or e.ts < at]
        changes = all_writes(Antispam, before)
        states = serial.run(Antispam, before).states
        found = run.history("to_others", 3, at=at, last=1000)
        assert (0 if found.value is MISSING else found.value) == states["to_others"].get(3, 0)
        assert [Written(e.event.seq, e.before, e.after) for e in reversed(found.entries)] == changes.get(
            ("to_others", 3), []
        )
    table = run.history("to_others", 3).table()
    assert table.column_names == ["ts", "seq", "event", "before", "after"]
    assert table["after"].to_pylist() == sorted(table["after"].to_pylist())
    assert "to_others[3] = " in run.history("to_others", 3).text
    assert run.history("total").value == serial.run(Antispam, events).states["total"][()]
    with pytest.raises(RunError, match="no state 'tot'"):
        run.history("tot")
    with pytest.raises(UsageError, match="a key of to_others"):
        run.history("to_others", "x")
    assert run.history("last", 3).plot().axes[0].get_title() == "last[3]"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a folder, of a program in a file."""
    folder = tmp_path_factory.mktemp("why")
    log = Log.from_events(folder / "log", STORY, [Message, Friendship])
    replay(Antispam, log, folder / "run", slices=2, spark=False)
    return folder / "run"


def test_commands_answer_with_texts_json_and_exit_codes(stored: Path) -> None:
    """why and why-not."""
    told = cli("why", stored, "Spam:13")
    assert told.code == 0
    assert "to_others[1] = 3 <- this event <- Message 3" in told.out
    assert cli("why", stored, "Spam:13", "--depth", "2", "--json").json["reads"][0]["sources"][0]["why"]
    missed = cli("why", stored, "Spam:14")
    assert missed.code == 2
    assert "TL609" in missed.err
    nowhere = cli("why", stored, "1000")
    assert nowhere.code == 2
    assert "the log has no event with seq 1000" in nowhere.err
    assert cli("why-not", stored, "Message:id=12").code == 0
    wrong = cli("why-not", stored, "4")
    assert wrong.code == 1
    assert "it did put out Spam(message=13, sender=1): ask why" in wrong.out
    for command in ("why", "why-not", "state"):
        assert "timelapse " + command in cli(command, "--help").out


def test_state_shows_all_one_or_a_key(stored: Path, tmp_path: Path) -> None:
    """At the end and at a time, as text and JSON; a plot."""
    overview = cli("state", stored)
    assert "with_email" in overview.out
    assert "Set[(int, int)]" in overview.out or "Set[tuple" in overview.out
    rows = cli("state", stored, "to_others", "--json").json
    assert rows["shown"] == [{"key": 1, "value": 3}]
    assert cli("state", stored, "to_others", "--at", "1970-01-01T00:00:00.000004", "--json").json[
        "shown"
    ] == [{"key": 1, "value": 1}]
    assert "(1, 2)" in cli("state", stored, "friends").out
    key = cli("state", stored, "sent", "--key", "::1", "--at", "5")
    assert "sent['::1'] = 3 before 1970-01-01 00:00:00.000005" in key.out
    assert "Message 3  2 -> 3" in key.out
    assert cli("state", stored, "friends", "--key", "1,2", "--json").json["value"] is True
    assert cli("state", stored, "friends", "--key", "x").code == 2
    assert "TL841" in cli("state", stored, "to_others", "--at", "noon").err
    for option in (("--key", "1"), ("--plot", "x.svg")):
        assert cli("state", stored, *option).err.startswith(f"TL841 {option[0]} is about one state")
    notes = {
        at: cli("state", stored, "sent", "--at", at).out.partition("\n")[0] for at in ("0", "3", "2050-01-01")
    }
    assert "lies before the log" in notes["0"]
    assert "note" not in notes["3"]
    assert "2050-01-01 00:00:00 lies after the log" in notes["2050-01-01"]
    picture = tmp_path / "sent.svg"
    assert cli("state", stored, "sent", "--key", "::1", "--plot", picture).code == 0
    assert b"<svg" in picture.read_bytes()


def test_log_contents_are_data(tmp_path: Path) -> None:
    """Markup, control characters and long texts are shown as text, on their line."""
    evil = "[red]x[/red]\x1b[31m\n<script>" + "y" * 5000
    events: list[tl.Event] = [Message(i, 1, 2, evil, "a@b", ts=i) for i in range(4)]
    log = Log.from_events(tmp_path / "log", events, [Message, Friendship])
    replay(Antispam, log, tmp_path / "run", spark=False)
    told = cli("why", tmp_path / "run", "Spam:2")
    assert told.code == 0
    assert "\x1b" not in told.out
    assert "[red]x[/red]" in told.out
    assert max(map(len, told.out.splitlines())) < 2500
    found = trace.why(Run.open(tmp_path / "run"), "Spam:2")
    assert "<script>" not in found._repr_html_()
    state = cli("state", tmp_path / "run", "sent")
    assert "\x1b" not in state.out


@pytest.mark.parametrize("program", [Antispam, Derived])
def test_what_is_guessed_on_the_way_to_an_event_changes_no_answer(
    program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the guess, with a poor one and without, the same writers; those of the serial loop."""
    events = messages(90, seed=6)
    run = replay(program, MemoryLog(events, [Message, Friendship]), slices=2, spark=False)
    seqs = [e.seq for e in run.need_reader().events(20, 90, {"Message": Message})][::9]

    def answers() -> list[Any]:
        return [run.why_not(seq, last=4).to_json()["reads"] for seq in seqs]

    told = answers()
    changes = {seq: all_writes(program, events[:seq]) for seq in seqs}
    checked = 0
    for seq in seqs:
        for seen in run.why_not(seq, last=4).cause.seen:
            found = [Written(s.event.seq, s.before, s.after) for s in seen.sources if s.before != s.after]
            wanted = changes[seq].get((seen.read.state, seen.read.key), [])
            assert found == wanted[: len(found)]
            assert len(seen.sources) == 4 or len(found) == len(wanted)
            checked += len(found)
    assert checked > (20 if program is Antispam else 3)
    for name, value in (("_FEW", 1), ("_NEAR", 3), ("_GUESSES", 1)):
        monkeypatch.setattr(likely_module, name, value)
        assert answers() == told
    monkeypatch.setattr(likely_module, "_guessed", lambda past, event: iter(()))
    assert answers() == told
