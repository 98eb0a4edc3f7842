"""A log that is silent for longer than a program's ticks may go on, and progress that counts ticks."""

from __future__ import annotations

from pathlib import Path

import pytest

import timelapse as tl
from timelapse.errors import DefinitionError, SilentLog
from timelapse.log import Log
from timelapse.program.calendar import Calendar
from timelapse.program.silence import count_ticks
from timelapse.run.source import refuse_silence
from timelapse.testing import Harness

YEAR_2900 = 29_348_006_400_000_000


class Login(tl.Event):
    user: int


class Other(tl.Event):
    user: int


class Day(tl.Record):
    users: int


class Daily(tl.Program):
    seen: tl.Set[int]
    days: tl.Counter[int]

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.seen.add(e.user)

    @tl.every(tl.DAY)
    def day(self) -> None:
        self.days[0] += 1
        self.emit(Day(users=self.days[0]))


class Patient(Daily, gap=400_000 * tl.DAY):
    pass


class Untimed(tl.Program):
    seen: tl.Set[int]

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.seen.add(e.user)


class Ping(tl.Event):
    user: int


class Pong(tl.Event):
    user: int


class Again(tl.Program):
    """Its timer starts itself again, by way of another and a helper."""

    seen: tl.Counter[int]

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.send(Ping(user=e.user), after=tl.DAY, key=e.user)

    @tl.on(Ping)
    def ping(self, e: Ping) -> None:
        self.seen[e.user] += 1
        self.send(Pong(user=e.user), after=tl.DAY, key=e.user)

    @tl.on(Pong)
    def pong(self, e: Pong) -> None:
        self.more(e.user)

    def more(self, user: int) -> None:
        self.send(Ping(user=user), at=self.now + tl.DAY)


class Once(tl.Program):
    """Its timers end."""

    seen: tl.Counter[int]

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.send(Ping(user=e.user), after=tl.DAY)

    @tl.on(Ping)
    def ping(self, e: Ping) -> None:
        self.seen[e.user] += 1
        self.send(Pong(user=e.user))

    @tl.on(Pong)
    def pong(self, e: Pong) -> None:
        self.seen[e.user] += 1


def logins(*times: int) -> list[tl.Event]:
    return [Login(user=n, ts=ts) for n, ts in enumerate(times)]


def six() -> list[tl.Event]:
    return logins(*(n * tl.HOUR for n in range(5)), YEAR_2900)


def stored(tmp_path: Path, events: list[tl.Event]) -> Log:
    return Log.from_events(tmp_path / "log", events, [Login, Other])


@pytest.mark.parametrize("slices", [None, 3])
def test_a_row_in_the_year_2900_is_named_before_the_work_begins(tmp_path: Path, slices: int | None) -> None:
    for log in (six(), stored(tmp_path, six())):
        with pytest.raises(SilentLog, match=r"Login at 2900-01-01.*seq 5.*339,676 ticks") as caught:
            tl.replay(Daily, log, slices=slices, spark=False)
        assert caught.value.code == "TL510"
        assert "gap=" in str(caught.value)


def test_the_serial_meaning_says_the_same(tmp_path: Path) -> None:
    for log in (six(), stored(tmp_path, six())):
        with pytest.raises(SilentLog, match="Login at 2900-01-01"):
            tl.run_serial(Daily, log)


def test_the_gap_is_settable_and_inherited() -> None:
    class Again(Patient):
        pass

    near = logins(0, 500 * tl.DAY)
    with pytest.raises(SilentLog):
        tl.replay(Daily, near, spark=False)
    runs = [tl.replay(Again, near, slices=2, spark=False), tl.run_serial(Again, near)]
    assert [run.table(Day).num_rows for run in runs] == [501, 501]
    assert runs[0].digest == runs[1].digest


@pytest.mark.parametrize("gap", [0, tl.DAY - 1, 1.5, "7d"])
def test_a_gap_that_makes_no_sense_is_refused(gap: object) -> None:
    with pytest.raises(DefinitionError, match="gap is"):

        class Bad(tl.Program, gap=gap):
            pass


def test_just_the_gap_is_allowed_and_events_of_other_types_end_it(tmp_path: Path) -> None:
    edge = logins(0, 400 * tl.DAY)
    assert tl.replay(Daily, edge, spark=False).table(Day).num_rows == 401
    heard = [Login(user=1, ts=0), Other(user=1, ts=300 * tl.DAY), Login(user=2, ts=600 * tl.DAY)]
    log = stored(tmp_path, heard)
    run = tl.replay(Daily, log, slices=2, spark=False)
    assert run.digest == tl.run_serial(Daily, log).digest
    assert run.verify().ok
    without = log.without([1])
    with pytest.raises(SilentLog, match="seq 2"):
        tl.replay(Daily, without, spark=False)
    with pytest.raises(SilentLog, match="seq 2"):
        tl.run_serial(Daily, without)


def test_programs_without_ticks_do_not_mind() -> None:
    assert tl.replay(Untimed, six(), spark=False).digest == tl.run_serial(Untimed, six()).digest


@pytest.mark.parametrize("place", [0, 1, 500, 998, 999])
def test_a_gap_is_found_wherever_it_is(tmp_path: Path, place: int) -> None:
    times = [n * 30 * tl.DAY for n in range(place + 1)]
    times += [times[-1] + 401 * tl.DAY + n * 30 * tl.DAY for n in range(1000 - place)]
    log = stored(tmp_path, logins(*times))
    with pytest.raises(SilentLog, match=rf"seq {place + 1}\)"):
        refuse_silence(Daily(), log.reader)
    refuse_silence(Daily(), log.without(range(place + 1, len(times))).reader)
    if place + 1 < len(times) - 1:
        with pytest.raises(SilentLog, match=rf"seq {place + 2}\)"):
            refuse_silence(Daily(), log.without([place + 1]).reader)


@pytest.mark.parametrize("period", [tl.MINUTE, tl.HOUR, tl.DAY, 7 * tl.DAY])
def test_ticks_are_counted(period: int) -> None:
    calendar = Calendar(period)
    after, to = 3 * tl.DAY + 5, 40 * tl.DAY + 7
    at, count = calendar.after(after), 0
    while at <= to:
        at, count = calendar.after(at), count + 1
    assert calendar.about(after, to) == count
    assert calendar.about(to, after) == 0


class Heard:
    """Keeps what progress was told."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.done: dict[str, list[int]] = {}
        self.finished: list[str] = []
        self.notes: list[str] = []

    def stage(self, name: str, total: int) -> None:
        self.totals[name] = total

    def advance(self, name: str, done: int, total: int) -> None:
        self.done.setdefault(name, []).append(done)

    def finish(self, name: str, seconds: float) -> None:
        self.finished.append(name)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("slices", [1, 4])
def test_progress_counts_ticks(slices: int) -> None:
    events = logins(*(n * 100 * tl.DAY for n in range(9)))
    ticks = count_ticks(Daily(), 0, events[-1].ts)
    assert ticks == 800
    heard = Heard()
    run = tl.replay(
        Daily, events, slices=slices, strategy={} if slices == 1 else "scan", spark=False, progress=heard
    )
    assert heard.totals["final"] == len(events) + ticks
    assert "final" in heard.finished
    assert any("800 ticks beside 9 events" in note for note in heard.notes)
    assert all(done <= heard.totals[name] for name, told in heard.done.items() for done in told)
    checked = Heard()
    assert run.verify(progress=checked).ok
    assert checked.totals == {"serial reference": len(events) + ticks}
    assert checked.done["serial reference"][-1] == len(events) + ticks


def test_timers_that_start_themselves_again_are_like_ticks(tmp_path: Path) -> None:
    """Said by replays, the serial meaning, explain, check and the harness; a timer that ends goes over any gap."""
    log = stored(tmp_path, six())
    said = r"Login at 2900-01-01.*Ping, a timer that may start itself again .*test_silence"
    with pytest.raises(SilentLog, match=said):
        tl.replay(Again, log, spark=False)
    with pytest.raises(SilentLog, match=said):
        tl.run_serial(Again, log)
    note = next(n for n in tl.explain(Again, log).diagnostics if n.code == "TL510")
    assert note.severity == "error"
    assert tl.check(Again, log, spark=False).worst == "error"
    harness = Harness(Again)
    harness.feed(*six()[:5])
    with pytest.raises(SilentLog, match="seq 5"):
        harness.feed(six()[5])
    harness.advance(3 * tl.DAY)
    harness.feed(Login(user=9, ts=4 * tl.DAY))
    assert harness.state("seen")[0] == 2

    assert tl.replay(Once, log, slices=2, spark=False).digest == tl.run_serial(Once, log).digest
    assert "TL510" not in {n.code for n in tl.explain(Once, log).diagnostics}


def test_explain_check_and_the_harness_tell_of_ticks_too(tmp_path: Path) -> None:
    log = stored(tmp_path, six())
    assert "TL510" in str(tl.explain(Daily, log))
    found = tl.check(Daily, log, spark=False)
    assert [f.name for f in found.findings][-2:] == ["gaps", "replay"]
    with pytest.raises(SilentLog):
        Harness(Daily).feed(*six())
    assert "TL510" not in str(tl.explain(Patient, log))
