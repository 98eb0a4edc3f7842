"""tl.check: each check finds what was planted, and nothing where all is well."""

from __future__ import annotations

import math
import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.checks import Check, check
from timelapse.errors import TimelapseError, UsageError
from timelapse.ids import HOUR
from timelapse.log import Log
from timelapse.log.part import PartLog, PartReader, rank
from timelapse.run import replay


class Seen(tl.Event):
    user: int
    item: int
    due: tl.Time
    came: tl.Time


class Blank(tl.Event):
    user: int


class Out(tl.Record, key="n"):
    n: int


class Settles(tl.Program):
    """Remembers only the last item of a user; reads one state under a key that nobody writes."""

    last: tl.Value[int, int | None]
    pairs: tl.Set[tuple[int, int]]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        if self.last[e.user] == e.item:
            self.emit(Out(n=e.seq))
        if (e.item + 100, e.user) in self.pairs:
            self.emit(Out(n=-e.seq))
        self.pairs.add((e.user, e.item))
        self.last[e.user] = e.item


class Forgetful(tl.Program):
    """Two methods that take an event and are not handlers; one is called by a handler. A third takes more."""

    n: tl.Counter[int]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        self.count(e)

    def count(self, e: Seen) -> None:
        self.n[e.user] += 1

    def forgotten(self, e: Seen | Blank) -> None:
        self.n[e.user] += 1

    def other(self, e: Seen, by: int) -> None:
        self.n[e.user] += by


class Alarm(tl.Event):
    user: int


class Step(tl.Event):
    user: int


class Sends(tl.Program):
    """Sends what nothing takes, where it never comes; and what handlers take."""

    n: tl.Counter[int]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        self.n[e.user] += 1
        if self.n[e.user] > 10**9:
            self.send(Alarm(user=e.user))
            self.send(Alarm(user=e.user), after=tl.HOUR)
        self.helped(e)
        self.send(Step(user=e.user))

    def helped(self, e: Seen) -> None:
        if e.user > 10**9:
            self.send(Blank(user=e.user))

    @tl.on(Step)
    def step(self, e: Step) -> None:
        self.n[e.user] += 1

    @tl.on(Blank, after=tl.HOUR)
    def later(self, e: Blank) -> None:
        self.n[e.user] += 1


class Fires(tl.Program):
    n: tl.Counter[int]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        self.n[e.user] += 1
        if self.n[e.user] > 1:
            self.send(Alarm(user=e.user))


class Opaque(Forgetful):
    @tl.on(Blank)
    def anything(self, e: Blank) -> None:
        getattr(self, "forgotten")(e)  # noqa: B009


class Counts(tl.Program):
    """Never forgets."""

    n: tl.Counter[int]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        self.n[e.user] += 1
        self.emit(Out(n=self.n[e.user]))


class Mean(tl.Record):
    value: float


class Means(tl.Program):
    """Puts out NaN, too."""

    n: tl.Counter[int]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        self.n[e.user] += 1
        self.emit(Mean(value=math.nan if self.n[e.user] == 1 else 1.0 / self.n[e.user]))


class Impure(tl.Program):
    """Reads a clock."""

    n: tl.Counter[int]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        if datetime.now().hour > 30:
            self.n[e.user] += 1


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    rng = random.Random(3)
    events: list[tl.Event] = []
    for i in range(600):
        ts = (i + 1) * HOUR
        if i % 10 == 9:
            events.append(Blank(1, ts=ts))
        due = ts + (5 * HOUR if i % 100 == 1 else -1)
        came = ts + (3 * HOUR + 7 if i % 50 == 2 else rng.randrange(5))
        events.append(Seen(rng.randrange(5), rng.randrange(3), due, came, ts=ts))
    found: Log = Log.from_events(tmp_path_factory.mktemp("check") / "log", events, [Seen, Blank])
    return found


def by_name(found: Check, name: str) -> list[Any]:
    return [f for f in found.findings if f.name == name]


@pytest.fixture(scope="module")
def settles(log: Log) -> Check:
    return check(Settles, log, arrived="came", spark=False)


def test_all_is_well_where_it_is(settles: Check) -> None:
    """Purity, trusted calls, truncation."""
    assert [f.level for f in by_name(settles, "purity")] == ["ok"]
    assert [f.level for f in by_name(settles, "trusted")] == ["ok"]
    (cut,) = by_name(settles, "truncation")
    assert cut.level == "ok"
    assert cut.details["cut"] == 330
    assert settles.worst == "warning"


def test_times_after_the_event_are_found(settles: Check) -> None:
    """How many, by how much; the time of arrival is not among them."""
    (found,) = by_name(settles, "fields")
    assert found.level == "warning"
    assert found.details == {"type": "Seen", "field": "due", "values": 600, "after": 6, "most": 5 * HOUR}


def test_arrival_is_compared_with_the_order_of_events(settles: Check, log: Log) -> None:
    """Events that came after one of a later time."""
    (found,) = by_name(settles, "arrival")
    assert found.details["out_of_order"] == 12
    assert found.details["max"] == 3 * HOUR + 7
    assert found.level == "warning"
    with pytest.raises(UsageError, match="no event type has a field sent"):
        check(Settles, log, arrived="sent", spark=False)


def test_outputs_that_settle_and_those_that_do_not(settles: Check, log: Log) -> None:
    """The last item of a user is known after a few hours; a count is never forgotten."""
    (found,) = by_name(settles, "warm-up")
    assert found.level == "ok"
    assert found.details["tried"][0]["differ"] == 0
    never = check(Counts, log, spark=False)
    (found,) = by_name(never, "warm-up")
    assert found.level == "warning"
    tried = found.details["tried"][0]
    assert 0.9 < tried["share"] <= 1.0  # a changed output is not counted twice
    assert tried["new"] == tried["differ"]
    assert not by_name(check(Counts, log, warm_up=False, spark=False), "warm-up")


def test_reads_that_always_find_nothing_are_found(settles: Check) -> None:
    """A key that nobody writes."""
    warned = [f for f in by_name(settles, "reads") if f.level == "warning"]
    assert [f.details["state"] for f in warned] == ["pairs"]
    assert warned[0].details["missing"] == warned[0].details["reads"] > 100
    assert "last 0%" in by_name(settles, "reads")[-1].text


def test_an_impure_program_is_an_error_and_is_not_replayed(log: Log) -> None:
    """What needs no replay is checked all the same."""
    found = check(Impure, log, spark=False)
    assert found.worst == "error"
    assert by_name(found, "fields")
    assert by_name(found, "replay")
    assert not by_name(found, "truncation")


def test_a_truncated_replay_that_is_the_same_may_hold_nan(log: Log) -> None:
    """NaN is one value."""
    (found,) = by_name(check(Means, log, warm_up=False, spark=False), "truncation")
    assert found.level == "ok"


def test_a_truncated_replay_that_differs_is_an_error(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: here the part is cut short."""
    import timelapse.checks.driver as module

    monkeypatch.setattr(module, "PartLog", lambda log, lo, hi: PartLog(log, lo + 50, hi))
    (found,) = by_name(check(Counts, log, warm_up=False, spark=False), "truncation")
    assert found.level == "error"
    assert found.details["differ"] == ["Out"]


@pytest.mark.parametrize(("lo", "hi"), [(0, 660), (10, 650), (317, 318), (400, 400), (0, 1), (659, 660)])
def test_a_part_of_a_log_has_its_events_under_their_seqs(log: Log, lo: int, hi: int) -> None:
    """And knows the times around them, its cuts, and is replayed as itself."""
    part = PartLog(log, lo, hi)
    reader = part.reader
    seqs = [e.seq for e in log.events(Seen, Blank) if lo <= e.seq < hi]
    classes: dict[str, Any] = {"Seen": Seen, "Blank": Blank}
    assert [e.seq for e in reader.events(0, 10**9, classes)] == seqs
    assert part.count == len(seqs) == hi - lo
    assert reader.ts_first == (None if lo == hi else log.reader.ts_before(lo + 1))
    assert reader.ts_before(10**9) == (None if lo == hi else log.reader.ts_before(hi))
    assert reader.ts_before(lo) is None
    cuts = reader.cuts(3)
    assert len(cuts) == 4
    assert cuts[-1] == hi
    assert rank(reader, hi) == len(seqs)
    assert part.id != log.id
    run = replay(Counts, part, slices=3, spark=False)
    assert run.counts["Out"] == sum(s % 11 != 9 for s in seqs)
    assert isinstance(reader, PartReader)


def test_the_command_prints_findings_and_exits_with_them(log: Log, tmp_path: Path) -> None:
    """Text and JSON; --strict makes warnings count."""
    program = f"{Path(__file__)}:Settles"
    told = cli("check", program, log.path, "--arrived", "came", "--local")
    assert told.code == 0
    assert "Seen.due lies after its event in 6 of 600 values, by up to 5.0 hours" in told.out
    strict = cli("check", program, log.path, "--strict", "--no-warm-up", "--json", "--local")
    assert strict.code == 1
    assert strict.json["worst"] == "warning"
    assert cli("check", f"{Path(__file__)}:Impure", log.path, "--local").code == 1
    assert "timelapse check" in cli("check", "--help").out


class Windowed(tl.Program):
    """Looks back further than the log goes, and ticks."""

    n: tl.Counter[int]

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        self.n[e.user] += 1
        if self.n.last(3 * tl.HOUR)[e.user] > 1 and self.n.last(1000 * tl.HOUR)[e.user] > 0:
            self.emit(Out(n=self.n.last(400 * tl.HOUR)[e.user]))

    @tl.every(24 * tl.HOUR)
    def tick(self) -> None:
        self.emit(Out(n=-1))


def test_windows_longer_than_the_log_are_found(log: Log) -> None:
    """A program that reaches into other times is checked too."""
    found = check(Windowed, log, spark=False)
    levels = {f.details["window"] // HOUR: f.level for f in by_name(found, "windows")}
    assert levels == {1000: "warning", 400: "note"}
    assert [f.level for f in by_name(found, "truncation")] == ["ok"]
    assert by_name(found, "warm-up")
    (reads,) = by_name(found, "reads")
    assert reads.level == "ok"
    assert "n.last(3 h) " in reads.text


class LooksBack(tl.Program):
    """Each event reads the past at a moment of its own."""

    n: tl.Value[int, int] = tl.state(default=0, history=tl.HOUR)

    @tl.on(Seen)
    def work(self, e: Seen) -> None:
        before = self.n.get(e.user, at=self.now - tl.MINUTE)
        self.n[e.user] = self.n[e.user] + 1
        if before > 2:
            self.emit(Out(n=before))


def test_reads_of_the_past_count_together_whatever_their_moments(log: Log) -> None:
    (reads,) = by_name(check(LooksBack, log, spark=False), "reads")
    assert set(reads.details) == {"n", "n.get(at=)"}
    assert "n.get(at=) " in reads.text
    assert ".at(" not in reads.text
    assert reads.details["n.get(at=)"]["reads"] > 100


def test_a_method_that_nothing_calls(log: Log) -> None:
    """A warning with its place; none where some code may call anything."""
    (finding,) = by_name(check(Forgetful, log, warm_up=False, spark=False), "code")
    assert finding.level == "warning"
    assert finding.text.startswith("TL322")
    assert "forgotten takes an event and is never called" in finding.text
    assert f"test_check.py:{Forgetful.forgotten.__code__.co_firstlineno}" in finding.text
    assert "@tl.on(Seen)" in finding.hint
    assert "TL322" in str(tl.explain(Forgetful))
    assert "TL322" not in str(tl.explain(Opaque))


def test_a_replay_tells_its_programs_warnings(log: Log, tmp_path: Path) -> None:
    """A forgotten decorator is seen where people look first: under the replay, and on its card."""
    told = cli("replay", f"{Path(__file__)}:Forgetful", log.path, "--out", tmp_path / "run", "--local")
    assert told.code == 0
    assert "warning TL322" in told.out
    assert "forgotten takes an event and is never called" in told.out
    run = tl.replay(Forgetful, log, spark=False)
    assert "TL322" in str(run._repr_html_())
    assert "TL322" not in str(tl.replay(Windowed, log, spark=False)._repr_html_())


def test_an_event_that_is_sent_and_that_nothing_handles(log: Log) -> None:
    """A warning with the line of each send. A replay that never comes there is as it should be."""
    found = by_name(check(Sends, log, warm_up=False, spark=False), "code")
    first = Sends.work.__code__.co_firstlineno
    lines = (("Alarm", first + 4, "no handler of Sends listens"), ("Alarm", first + 5, "no handler of Sends listens"),
             ("Blank", Sends.helped.__code__.co_firstlineno + 2, "later waits for it with after="))  # fmt: skip
    assert [f.level for f in found] == ["warning"] * 3
    for finding, (event, line, why) in zip(found, lines, strict=True):
        assert finding.text.startswith("TL323")
        assert f"test_check.py:{line} " in finding.text
        assert f"{event} is sent, and {why}" in finding.text
    assert "@tl.on(Alarm)" in found[0].hint
    assert str(tl.explain(Sends)).count("TL323") == 3
    assert replay(Sends, log, spark=False).digest == tl.run_serial(Sends, log).digest


def test_an_event_that_nothing_handles_fails_where_it_is_sent(log: Log) -> None:
    """At run time, with the reason, as in the serial meaning."""
    told = []
    for serial in (False, True):
        with pytest.raises(TimelapseError) as error:
            tl.run_serial(Fires, log) if serial else replay(Fires, log, spark=False)
        told.append(str(error.value))
    assert all("Alarm is sent, and no handler of Fires listens to it" in text for text in told), told
