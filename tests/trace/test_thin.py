"""Going through the events alone that matter to what is asked: told as the serial loop tells it, and as all events tell it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import DEPTH, FULL, deep, some
from tests.native.fuzz.emulate import emulated
from tests.native.window_programs import windowed_log, windowed_program
from tests.trace.programs import Antispam, Edge, Friendship, Label, Message
from tests.trace.test_event import messages
from tests.trace.test_few import without_slices
from tests.trace.test_whole import told
from tests.trace.test_why import all_writes
from tests.trace.ways import by_the_loop, without_few
from tests.writers.sources import load_source
from timelapse.analysis.origins import Origins
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.program.program import spec_of
from timelapse.run import replay
from timelapse.segments.reader import Chunk
from timelapse.trace import focus as focus_module
from timelapse.trace import moments as moments_module
from timelapse.trace import thin
from timelapse.trace import whole as whole_module
from timelapse.trace import writers as writers_module
from timelapse.trace.columns import Columns, Pattern, Seqs
from timelapse.trace.knowledge import Ask, Uncompiled, Unfocused
from timelapse.trace.moments import Past
from timelapse.trace.whole import FromBeginning, WholePast, past_of
from timelapse.trace.writers import writers


def always(patch: pytest.MonkeyPatch) -> Callable[[], int]:
    """From here on logs are thinned however short they are. Gives how many events were left out in all."""
    out = 0
    seqs = thin.Thinning.seqs

    def counting(self: thin.Thinning, *args: Any) -> Seqs:
        nonlocal out
        found = seqs(self, *args)
        out += self._hi - self._lo - len(found)
        return found

    patch.setattr(thin, "LEAST", 0)
    patch.setattr(thin, "_SHARE", 1)
    patch.setattr(thin.Thinning, "seqs", counting)
    return lambda: out


def test_random_programs_with_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What events read and who wrote it, two levels deep; states at moments; histories of keys."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    left_out = 0
    for seed in some(range(60, 72)):
        program = load_source(windowed_program(seed))()
        if not spec_of(program).times:
            continue
        events = windowed_log(program, seed, 60)
        rng = random.Random(seed)
        seqs = sorted(rng.sample(range(60), 4))
        times = [events[rng.randrange(60)].ts + rng.randint(0, 1) for _ in range(2)]
        run = replay(program, MemoryLog(events, spec_of(program).events), spark=False)
        with monkeypatch.context() as patch:
            patch.setenv(SWITCH, "native")
            without_few(patch)
            out = always(patch)
            mine = told(run, seqs, times)
            left_out += out()
        with monkeypatch.context() as patch:
            by_the_loop(patch)
            wanted = told(run, seqs, times)
        assert json.dumps(mine, default=repr) == json.dumps(wanted, default=repr), seed
    assert left_out > deep(1000)


@pytest.mark.parametrize(("slices", "short"), [(1, False), (3, False), (3, True)])
def test_writers_in_slices(slices: int, short: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each key by itself every change is found, with what it held. A `short` stretch is thinned where it begins with much."""
    events = messages(90, seed=5)
    past = Past(replay(Antispam, MemoryLog(events, [Message, Friendship]), slices=slices, spark=False))
    monkeypatch.setattr(focus_module, "MOST", -1)
    monkeypatch.setattr(writers_module, "_STOPS", 2)
    out = always(monkeypatch)
    if short:
        monkeypatch.setattr(thin, "LEAST", 1 << 30)
        monkeypatch.setattr(moments_module, "LEAST", 1)
    checked = 0
    for seq in some((90, 61), 2):
        for place, wanted in all_writes(Antispam, events[:seq]).items():
            found = writers(past, [Ask(place, seq)], 1000)[Ask(place, seq)].found
            assert [w for w in found if w.before != w.after] == [w for w in wanted if w.before != w.after], (
                place
            )
            checked += len(wanted)
    assert checked > 100
    assert out() > (100 if short else 500)


class Told(tl.Event):
    who: int
    text: str


class Named(tl.Event):
    text: str


class Heard(tl.Record):
    who: int
    names: int
    share: float


class Names(tl.Program):
    """A state under keys that are made of a text; and what would fail where events are missing."""

    known: tl.Set[str]
    said: tl.Counter[int]
    all_said: tl.Counter
    often: tl.Counter[int]

    @tl.on(Named)
    def name(self, e: Named) -> None:
        for word in e.text.split():
            self.known.add(word)

    @tl.on(Told)
    def hear(self, e: Told) -> None:
        if self.said[e.who] > 3 and self.said.last(tl.HOUR)[e.who] > 1:
            self.often[e.who] += 1
        self.said[e.who] += 1
        self.all_said += 1
        if any(word in self.known for word in e.text.split()):
            self.emit(
                Heard(who=e.who, names=self.often.last(tl.DAY)[e.who], share=self.said[e.who] / self.all_said)  # type: ignore[operator]
            )


def _said(count: int) -> list[tl.Event]:
    rng = random.Random(3)
    made: list[tl.Event] = []
    for number in range(count):
        text = " ".join(rng.choice("abcdefghij") * rng.randint(1, 3) for _ in range(3))
        one = Named(text=text) if rng.random() < 0.1 else Told(who=rng.randrange(20), text=text)
        made.append(one._at(number * 5 * tl.MINUTE, number))
    return made


def test_keys_that_are_made_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """All events that may write such a state matter, and of others those of the key: what is told is the same."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    monkeypatch.setenv(SWITCH, "native")
    events = _said(300)
    run = replay(Names, MemoryLog(events, [Told, Named]), spark=False)
    seqs = run.table("Heard")["seq"].to_pylist()[-40 :: 8 if DEPTH >= FULL else 16]

    def answers() -> list[Any]:
        return [
            *(run.why(seq, depth=2).to_json() for seq in seqs),
            *(run.history("often", who, last=4).to_json() for who in range(4)),
            *(run.history("known", name, at=events[200].ts).to_json() for name in ("a", "bb", "zz")),
        ]

    with monkeypatch.context() as patch:
        by_the_loop(patch)
        wanted = answers()
    without_few(monkeypatch)
    assert answers() == wanted
    out = always(monkeypatch)
    assert answers() == wanted
    assert out() > 1000


class Fragile(tl.Program):
    """Fails where no event was the first one."""

    said: tl.Counter[int]
    first: tl.Value[str, int] = tl.state(default=0)

    @tl.on(Told)
    def hear(self, e: Told) -> None:
        self.said[e.who] += 1
        if e.text == "first":
            self.first["x"] = 4
        else:
            self.first["y"] = 4 // self.first["x"]

    @tl.on(Named)
    def name(self, e: Named) -> None:
        self.emit(Heard(who=3, names=self.said.last(tl.HOUR)[len(e.text)], share=1.0))


def test_what_does_not_run_alone_is_told_by_all_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler fails at what another key holds where events are missing: then all of them are gone through."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    monkeypatch.setenv(SWITCH, "native")
    said = [Told(who=n % 5, text="x" if n else "first")._at(n * tl.SECOND, n) for n in range(60)]
    log = MemoryLog([*said, Named(text="abc")._at(tl.MINUTE, 60)], [Told, Named])
    run = replay(Fragile, log, spark=False)
    without_few(monkeypatch)
    always(monkeypatch)
    readers: list[str] = []
    through = Past._pass

    def watched(self: Past, slice_id: int, reader: Any, *args: Any, **given: Any) -> None:
        readers.append(type(reader).__name__)
        through(self, slice_id, reader, *args, **given)

    monkeypatch.setattr(Past, "_pass", watched)
    (told_,) = [c for c in run.why(60).cause.seen if c.read.key == 3]
    assert told_.read.value == 12
    assert [s.event.seq for s in told_.sources] == [58, 53, 48]
    assert readers == ["Thinned", "MemoryLog"]


def test_a_long_stretch_is_not_thinned_where_most_of_it_matters() -> None:
    """Nor is anything read in vain: who writes a state without a key is every event."""
    events = _said(200)
    past = WholePast(replay(Names, MemoryLog(events, [Told, Named]), spark=False))
    with pytest.raises(Unfocused, match="too many events may write all_said"):
        thin.Thinning(past, 0, 200).seqs([("all_said", ())], (), ())
    assert thin.thinned(past, 0, 200, [("said", 3)], (), dict) is None  # it is short


def test_what_a_way_needs_is_loaded_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events are looked for meanwhile."""
    past = Past(replay(Antispam, MemoryLog(messages(300), [Message, Friendship]), spark=False))
    began, done = threading.Event(), list[str]()
    seqs = thin.Thinning.seqs

    def load() -> None:
        began.set()
        time.sleep(0.05)
        done.append("loaded")

    def looking(self: thin.Thinning, *given: Any) -> Seqs:
        assert began.wait(60)
        found = seqs(self, *given)
        done.append("found")
        return found

    def wanted() -> dict[str, tuple[str, ...]]:
        assert set(done) == {"found", "loaded"}
        done.append("asked")
        return {"Message": ("sender",)}

    for name, value in (("load", load), ("LEAST", 0), ("_SHARE", 1), ("cores", lambda: 2)):
        monkeypatch.setattr(thin, name, value)
    monkeypatch.setattr(thin.Thinning, "seqs", looking)
    place = next(iter(past.knowledge.used_at(messages(300)[5])))
    assert thin.thinned(past, 0, 300, [place], (), wanted) is not None
    assert done[-1] == "asked"


class Joined(tl.Record):
    node: int
    degree: int


class Spreading(tl.Program, loop=100_000):
    """What is sent sends again: of the states that it does not write it is known who does."""

    label: tl.Value[int, int | None]
    near: tl.SetOf[int, int]
    busy: tl.Counter[int]

    @tl.on(Edge)
    def join(self, e: Edge) -> None:
        self.near.add(e.a, e.b)
        self.near.add(e.b, e.a)
        if self.near.count(e.a) > 1:
            self.busy[e.b] += 1
        self.send(Label(node=e.b, label=e.a))

    @tl.on(Label)
    def hear(self, e: Label) -> None:
        known = self.label[e.node]
        if known is None or e.label < known:
            self.label[e.node] = e.label
            self.emit(Joined(node=e.node, degree=self.near.count(e.node)))
            for other in self.near[e.node]:
                self.send(Label(node=other, label=e.label))


@pytest.mark.parametrize(("slices", "slow"), [(1, False), (3, False), (3, True)])
def test_what_is_sent_again_hides_only_what_it_writes(
    slices: int, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of states that are written before that are told from the events that matter, in slices from what matters of their starts; or from
    the log's beginning, where starts are slow to load."""
    rng = random.Random(4)
    events = [Edge(a=rng.randrange(40), b=rng.randrange(40))._at(n * tl.SECOND, n) for n in range(150)]
    run = replay(Spreading, MemoryLog(events, [Edge]), slices=slices, spark=False)
    joined = run.table("Joined")["seq"].to_pylist()

    def answers() -> list[Any]:
        return [
            *(run.history("near", (events[n].a, events[n].b), last=5).to_json() for n in (3, 60, 120)),
            *(run.history("busy", node, last=5).to_json() for node in range(6)),
            *(run.history("busy", node, at=120 * tl.SECOND, last=5).to_json() for node in range(6)),
            *(run.history("label", node, last=5).to_json() for node in range(3)),
            *(without_slices(run.why(seq, depth=2).to_json()) for seq in joined[5:60:12]),
        ]

    with monkeypatch.context() as patch:
        without_few(patch)
        patch.setattr(Past, "focus", _shut(Unfocused))
        patch.setattr(Past, "walk", _shut(Uncompiled))
        wanted = answers()
    monkeypatch.setattr(focus_module, "MOST", -1)
    monkeypatch.setattr(whole_module, "_slow_starts", lambda run: slow)
    assert type(past_of(run)) is (FromBeginning if slow else Past)
    assert answers() == wanted
    out = always(monkeypatch)
    assert answers() == wanted
    assert out() > 500


def test_slices_that_begin_with_many_listed_members_are_not_begun_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To link each of them would take longer than to go through the log from its beginning."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    events = [Edge(a=n, b=n // 2)._at(n * tl.SECOND, n) for n in range(90)]
    for switch, slices, slow in (("native", 3, True), ("native", 1, False), ("python", 3, False)):
        monkeypatch.setenv(SWITCH, switch)
        run = replay(Spreading, MemoryLog(events, [Edge]), slices=slices, spark=False)
        assert (type(past_of(run)) is FromBeginning) is slow


def _shut(error: type[Exception]) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error("a test says so")

    return refuse


def test_columns_in_memory_are_what_the_log_gives(tmp_path: Path) -> None:
    """Those that are had later stand beside those that were there; of what is left of the log nothing is read again, but texts that
    do not repeat."""
    rng = random.Random(9)
    events: list[tl.Event] = [
        (Told(who=rng.randrange(9), text=f"{n} {rng.random()}") if n % 3 else Named(text="ab"[n % 2]))._at(
            n, n
        )
        for n in range(500)
    ]
    log = tl.Log.write(
        tmp_path / "log", {cls: _table(cls, events) for cls in (Told, Named)}, ts="at", unit="us"
    )
    columns = Columns(log.reader, 20, 480, {"Told": {"who"}})
    columns.add({"Named": {"text"}, "Told": {"who"}})
    columns.add({"Told": {"text", "ts"}})
    assert not columns.covers(20, 480, {"Named": ["text"]})  # of these the times were not asked for
    columns.add({"Named": {"ts"}})
    wanted = {"Told": ["who", "text"], "Named": ["text"]}
    for lo, hi in ((20, 480), (100, 101), (99, 300)):
        mine = [c for c in columns.chunks(lo, hi, wanted) if c.tables]
        theirs = [c for c in log.reader.chunks(lo, hi, wanted) if c.tables]
        assert [_rows_of(c) for c in mine] == [_rows_of(c) for c in theirs]
    few = Columns(log.reader, 0, 500, {"Told": {"who"}})
    assert few.light(wanted) == {"Told": ["who"], "Named": ["text"]}
    few.add(few.light(wanted))
    few.add({"Told": ["ts"], "Named": ["ts"]})
    assert few.covers(0, 500, few.light(wanted))
    seqs = np.asarray([3, 7, 8, 9, 250, 499], np.int64)
    for kinds, fields in ((("Told", "Named"), {"Told": ["who"], "Named": ["text"]}), (("Told",), wanted)):
        rest = thin.Thinned(log.reader, seqs, few, frozenset(kinds), {}, (), {})
        found = [row for c in rest.chunks(0, 500, fields) for row in _rows_of(c)]
        assert found == [
            row for seq in seqs.tolist()
            for c in log.reader.chunks(seq, seq + 1, {k: fields[k] for k in kinds}) for row in _rows_of(c)
        ]  # fmt: skip


def _table(cls: type[tl.Event], events: list[tl.Event]) -> pa.Table:
    own = [e for e in events if type(e) is cls]
    fields = {f.name: [getattr(e, f.name) for e in own] for f in cls.__fields__}
    return pa.table({**fields, "at": [e.ts for e in own]})


def _rows_of(chunk: Chunk) -> list[Any]:
    rows = [(row["seq"], name, row) for name, table in chunk.tables.items() for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row[0])


class Sent(tl.Event):
    a: int
    b: int


class Answered(tl.Program):
    """Of a pair each side reads what the other wrote."""

    waiting: tl.Counter[tuple[int, int]]
    answers: tl.Counter[int]

    @tl.on(Sent)
    def hear(self, e: Sent) -> None:
        if self.waiting[e.b, e.a] > 0:
            self.waiting[e.b, e.a] = 0
            self.answers[e.a] += 1
        self.waiting[e.a, e.b] += 1


def test_pairs_that_are_read_in_both_directions_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write (a, b) from `e.a, e.b` may write (b, a) from `e.b, e.a`."""
    rng = random.Random(3)
    events = [Sent(a=rng.randrange(9), b=rng.randrange(9))._at(n * tl.SECOND, n) for n in range(200)]
    past = Past(replay(Answered, MemoryLog(events, [Sent]), spark=False))
    looked: list[int] = []
    holding = Columns.holding

    def noting(self: Columns, pattern: Any, keys: Any, *given: Any) -> Any:
        looked.append(len(pattern.parts))
        return holding(self, pattern, keys, *given)

    monkeypatch.setattr(Columns, "holding", noting)
    monkeypatch.setattr(thin, "_SHARE", 1)
    found = thin.Thinning(past, 0, 200).seqs([("answers", 4)], (), ())
    assert found.tolist() == [e.seq for e in events if 4 in (e.a, e.b)]
    assert looked == [1, 2, 2]


def test_an_event_that_writes_several_states_is_asked_once_for_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(4)
    events = [Sent(a=rng.randrange(9), b=rng.randrange(9))._at(n * tl.SECOND, n) for n in range(200)]
    past = Past(replay(Answered, MemoryLog(events, [Sent]), spark=False))
    asked: list[tuple[str, int]] = []
    keys = thin.Thinning._keys

    def noting(self: thin.Thinning, key: Any, cls: Any, seqs: Seqs) -> Any:
        asked.extend((key.text, seq) for seq in seqs.tolist())
        return keys(self, key, cls, seqs)

    monkeypatch.setattr(thin.Thinning, "_keys", noting)
    monkeypatch.setattr(thin, "_SHARE", 1)
    thin.Thinning(past, 0, 200).seqs([("answers", 4)], (), ())
    assert len(asked) == len(set(asked)) > 0


def test_a_question_that_reaches_a_little_further_reads_no_columns_again() -> None:
    """What is stored together is read whole."""
    past = Past(replay(Antispam, MemoryLog(messages(300), [Message, Friendship]), spark=False))
    columns = past.columns_of(0, 100, {"Message": {"sender"}})
    assert past.columns_of(0, 101, {"Message": {"sender"}}) is columns
    held = columns.holding(Pattern("Message", (Origins(frozenset(["sender"]), ()),)), [(1,)], 0, 100, 300)
    assert held is not None
    assert 0 < len(held) < 100
    assert held.max() < 100, "what is behind is not told"
