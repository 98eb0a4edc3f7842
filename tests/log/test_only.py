"""Some event types of a log: what a replay of them means, and that nothing else is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import covering
from tests.log.test_between import DAY, EVENTS, HOUR, PROGRAM, Careful, Flag, Paid, Seen, Totals, Watch
from timelapse.errors import LogError, UsageError
from timelapse.log.part import rank
from timelapse.run.views import card


class Other(tl.Event):
    """Nobody listens to it."""

    x: int


class Ticking(tl.Program):
    """What a clock does depends on all events, of whatever type."""

    paid: tl.Counter[int]
    ticks: tl.Counter

    @tl.every(tl.HOUR)
    def tick(self) -> None:
        self.ticks += 1

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        self.paid[e.who] += e.amount
        self.emit(Flag(who=e.who, paid=self.paid[e.who], seen=self.ticks, lately=0))  # type: ignore[arg-type]

    @tl.on(Seen)
    def look(self, e: Seen) -> None:
        self.paid[e.who] -= 1


MIXED: list[tl.Event] = sorted(
    [*EVENTS[24:], *(Other(ts=n * HOUR // 4 + 1, x=n) for n in range(220))], key=lambda e: e.ts
)
"""Others come first, come last, and there are blocks with nothing else."""
MIXED += [Other(ts=60 * HOUR + n, x=n) for n in range(40)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tl.Log:
    folder = tmp_path_factory.mktemp("only")
    return tl.Log.from_events(folder / "log", MIXED, [Other, Paid, Seen], block=16)


def of(log: tl.Log, *types: type[tl.Event], lo: int = 0, hi: int = 100 * HOUR) -> list[tl.Event]:
    """The events of some types, with the numbers that they have in the log."""
    return [
        e
        for e in log.events(Other, Paid, Seen)
        if type(e).__name__ in {t.__name__ for t in types} and lo <= e.ts < hi
    ]


@pytest.mark.parametrize(
    ("types", "program", "part"),
    covering(
        [(Paid,), (Seen, Other), (Paid, Seen)], [Watch, Ticking],
        [((), 0, 100 * HOUR), ((3, 60, 61, 399), 5 * HOUR, 31 * HOUR)],
    ),
)  # fmt: skip
def test_types_are_replayed_as_the_serial_loop_processes_their_events(
    log: tl.Log,
    program: type[tl.Program],
    types: Any,
    part: tuple[tuple[int, ...], int, int],
) -> None:
    without, lo, hi = part
    stretch = log.without(without).only(*types).between(lo, hi)
    events = of(log.without(without), *types, lo=lo, hi=hi)
    info = stretch.info()
    assert len(stretch) == len(events) == info.count == sum(t.count for t in info.types)
    assert (info.ts_first, info.ts_last) == (events[0].ts, events[-1].ts)
    expected = tl.run_serial(program, events)
    for found in (tl.run_serial(program, stretch), tl.replay(program, stretch, slices=3, spark=False)):
        assert (found.digest, found.state_digest, found.events) == (
            expected.digest, expected.state_digest, len(events),
        )  # fmt: skip


@pytest.mark.parametrize("without", [(), tuple(range(40, 90)), (0, 5, 16, 17, 399, 635)])
def test_places_and_times_are_those_of_the_events_alone(log: tl.Log, without: tuple[int, ...]) -> None:
    base = log.without(without)
    for types in ((Other,), (Seen, Paid)):
        reader, events = base.only(*types).reader, of(base, *types)
        assert reader.count == len(events)
        assert [reader.seq_after(n) for n in range(0, len(events), 7)] == [e.seq for e in events[::7]]
        assert reader.seq_after(len(events)) == base.reader.seq_after(base.count)
        assert reader.ts_first == events[0].ts
        for seq in range(0, len(MIXED) + 19, 19):
            before = [e for e in events if e.seq < seq]
            assert reader.ts_before(seq) == (before[-1].ts if before else None)
            assert seq % 5 or rank(reader, seq) == len(before)


def test_a_handler_that_raises_is_taken_out(log: tl.Log) -> None:
    expected = tl.run_serial(Careful, of(log, Seen), quarantine=True)
    found = tl.replay(Careful, log.only(Seen), slices=3, spark=False, quarantine=True)
    assert expected.left_out
    assert (found.digest, found.left_out) == (expected.digest, expected.left_out)
    assert tl.replay(Careful, log.only(Seen).without(found), spark=False).digest == found.digest


def test_files_of_other_types_are_not_opened(log: tl.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: set[str] = set()
    whole = pq.ParquetFile.__init__

    def noted(self: Any, path: Any, *args: Any, **more: Any) -> None:
        if isinstance(path, str | Path):  # else the end of a file that is open
            opened.add(Path(path).stem)
        whole(self, path, *args, **more)

    monkeypatch.setattr(pq.ParquetFile, "__init__", noted)
    tl.replay(Watch, log.only("Paid"), slices=2, spark=False, cache=False)
    assert opened == {"Paid"}


def test_a_run_over_types_says_so_and_can_be_verified_and_asked(log: tl.Log, tmp_path: Path) -> None:
    run = tl.replay(Watch, log.only(Paid, "Other"), tmp_path / "run", slices=3, spark=False)
    opened = tl.Run.open(tmp_path / "run", Watch())
    assert opened.manifest.types == ["Other", "Paid"]
    assert opened.certificate["types"] == {
        "only": ["Other", "Paid"],
        "silent": ["Seen"],
        "unheard": ["Other"],
    }
    assert dict(card(opened).facts)["event types"] == (
        "only Other, Paid; as if no Seen had ever occurred; no handler hears Other"
    )
    assert opened.verify().ok
    expected = tl.run_serial(Watch, of(log, Paid, Other, hi=20 * HOUR))
    assert opened.state("paid", at=20 * HOUR).equals(expected.state("paid"))
    assert "seen.last(2 h)[1] = 0 (missing)" in run.why(int(run.table(Flag)["seq"][0].as_py())).text
    assert tl.replay(Watch, log, spark=False).certificate["types"] is None


def test_types_of_types(log: tl.Log) -> None:
    two = log.only(Paid, Seen)
    assert two.only_types == ("Paid", "Seen")
    assert log.only("Seen", "Paid").id == two.id != log.id
    assert two.only(Seen).id == log.only(Seen).id
    assert log.only(Other, Seen, Paid) is log
    assert two.only(Seen, Paid) is two
    assert log.between(HOUR, DAY).only(Seen).id == log.only(Seen).between(HOUR, DAY).id
    assert log.without([9]).only(Seen).id == log.only(Seen).without([9]).id
    assert [t.name for t in two.info().types] == ["Paid", "Seen"]
    assert [t.name for t in two.profile().types] == ["Paid", "Seen"]
    assert [e.seq for e in two.head(3)] == [e.seq for e in of(log, Paid, Seen)[:3]]
    with pytest.raises(UsageError, match="no event type is named"):
        log.only()
    with pytest.raises(UsageError, match="only some types, and Other"):
        two.only(Other)
    with pytest.raises(LogError, match="did you mean Paid") as error:
        log.only("Payd")
    assert error.value.code == "TL402"


def test_types_that_the_program_does_not_hear_are_refused(log: tl.Log) -> None:
    for run in (tl.run_serial, lambda p, events: tl.replay(p, events, spark=False)):
        with pytest.raises(LogError, match="Watch hears no events of type Other") as error:
            run(Watch, log.only(Other))
        assert error.value.code == "TL402"
        assert "it hears: Seen, Paid" in (error.value.hint or "")


def test_a_replay_goes_on_over_the_same_types(tmp_path: Path) -> None:
    first = tl.Log.from_events(tmp_path / "log", EVENTS[:200], [Paid, Seen], block=16)
    run = tl.replay(Paying, first.only(Paid), tmp_path / "first", slices=3, spark=False)
    found = tl.replay(Paying, first.only(Paid), start_from=run, spark=False)
    assert (found.digest, found.certificate["start_from"]["events"]) == (run.digest, len(first.only(Paid)))
    for other, wrong in ((first, "events of type Paid only"), (first.only(Seen), "events of type Paid only")):
        with pytest.raises(UsageError, match=wrong):
            tl.replay(Paying, other, start_from=run, spark=False)
    whole = tl.replay(Paying, first, tmp_path / "whole", spark=False)
    with pytest.raises(UsageError, match="events of all types"):
        tl.replay(Paying, first.only(Paid), start_from=whole, spark=False)


class Paying(Totals):
    """A scan that hears both types."""

    @tl.on(Seen)
    def look(self, e: Seen) -> None:
        self.paid[e.who] += 1


def test_the_command_line_replays_types_and_says_so(log: tl.Log, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(PROGRAM)
    own = ("replay", tmp_path / "rules.py:Total", log.path, "--local", "--out", tmp_path / "run")
    done = cli(*own, "--types", "Paid, Seen", "--from", "1970-01-01T05:00:00Z")
    assert done.code == 0, done.err
    assert f"{len(of(log, Paid, Seen, lo=5 * HOUR)):,} events" in done.out
    assert "only Paid, Seen; no handler hears Seen" in done.out
    assert cli("verify", tmp_path / "run").code == 0
    told = cli("report", tmp_path / "run", "--out", tmp_path / "run.html")
    assert told.code == 0, told.err
    assert "no handler hears Seen" in (tmp_path / "run.html").read_text(encoding="utf-8")
    for types, said in (
        ("Payd", "did you mean Paid"),
        ("Other", "hears no events of type Other"),
        (",", "names nothing"),
        ("Paid,", "--types 'Paid,' has an empty name"),
    ):
        none = cli(*own[:-1], tmp_path / "none", "--types", types)
        assert none.code == 2
        assert said in none.err
        assert not (tmp_path / "none").exists()
    shown = cli("log", log.path, "--types", "Paid,Seen", "--from", "1970-01-01T05:00:00Z", "--head", "30").out
    assert "Seen" in shown
    assert "Paid" in shown
    assert "Other" not in shown
