"""A plain replay of a new version of a log goes on from the run that the last replay of the same program made, behind the last slice that is
untouched, and gives what the serial loop gives over all of it. Where that run is not there as it was made, all is replayed, and that is said."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import timelapse as tl
from tests.cache.programs import written
from tests.cache.test_times import PROGRAM, log_of
from tests.cli.run_cli import cli
from tests.depth import deep, some
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.run.test_start_from import Hit, Late, Plain, Watch, _hits, _same
from tests.run.test_start_from_changed import _append, _split
from tests.tuned import tune_cache
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.errors import HandlerError, TooManyQuarantined
from timelapse.log import Log
from timelapse.model.events import Event
from timelapse.program.program import Program
from timelapse.run import Run, replay, run_serial, start
from timelapse.run.files import check_files
from timelapse.run.untouched import untouched
from timelapse.segments import manifest as stored

EVENTS, KEYS = deep(160, 90), 5


@pytest.fixture(autouse=True)
def _cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")


def _grows(
    program: Program,
    events: Sequence[Event],
    place: Path,
    rng: random.Random,
    *,
    quarantine: bool = False,
    resumable: bool = False,
) -> list[Run]:
    """A log that gets its events in several goes, some of them late, replayed plainly each time."""
    classes = list(dict.fromkeys(type(e) for e in events))
    late = {n for n in range(len(events) // 3, len(events)) if rng.random() < 0.15} | set(
        range(len(events) - 6, len(events))
    )
    first, rest = _split(list(events), late)
    log = Log.from_events(place / "log", first, classes)
    runs: list[Run] = []
    for go in range(3):
        if go:
            rng.shuffle(rest)
            count = len(rest) if go == 2 else rng.randint(1, len(rest) - 1)
            part, rest = sorted(rest[:count], key=lambda e: e.ts), rest[count:]
            log = _append(log, part)
        slices = rng.choice((None, 3, 5)) if go else rng.randint(2, 6)
        try:
            whole = run_serial(program, list(log.events(*classes)), quarantine=quarantine)
        except HandlerError as error:
            with pytest.raises(HandlerError) as same:
                replay(
                    program,
                    log,
                    place / f"run{go}",
                    slices,
                    spark=False,
                    quarantine=quarantine,
                    resumable=resumable,
                )
            assert (same.value.seq, same.value.handler) == (error.seq, error.handler)
            continue
        run = replay(
            program, log, place / f"run{go}", slices, spark=False, quarantine=quarantine, resumable=resumable
        )
        _same(whole, run, f"go {go}, {slices} slices")
        assert slices is None or run.slices <= slices
        assert check_files(run).ok
        told = run.certificate["start_from"]
        if runs and told is not None and not told["reason"]:
            left = untouched(runs[-1].manifest, log)
            assert left is not None
            assert told["run"] == str(runs[-1].path)
            assert 0 < told["slices"] <= left.slices
            assert run.manifest.cuts[: told["slices"] + 1] == runs[-1].manifest.cuts[: told["slices"] + 1]
            assert run.certificate["cache"] is None
        runs.append(run)
    return runs


@pytest.mark.parametrize("entry", some(CATALOGUE, first=1), ids=lambda e: e.name)
def test_programs_go_on(entry: Entry, tmp_path: Path) -> None:
    """All of the catalogue: rejections, windows, timers, ticks, money."""
    rng = random.Random(entry.name)
    events = list(make(entry.mix(KEYS), EVENTS, seed=29).events(entry.classes()))
    _grows(entry.program(), events, tmp_path, rng, resumable=rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(deep(6)))
def test_random_programs_go_on(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4100 + seed)
    program = load_source(any_program(rng))
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    _grows(
        program(), random_events(program, random.Random(seed), 30), tmp_path, rng, resumable=bool(seed % 2)
    )


def test_they_do_take_slices_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled and not, twice in a row, late rows and rows behind the end: the number of slices asked for is kept to."""
    for kernel in ("native", "interpreted"):
        monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
        for program in (Watch, Plain):
            place = tmp_path / kernel / program.__name__
            end = _hits(400)[-1].ts + 1
            first, late = _split(list(_hits(400)), {250, 251, 390})
            log = Log.from_events(place / "log", first)
            before = replay(program, log, place / "1", 4, spark=False, resumable=True)
            assert before.certificate["start_from"] is None
            log = _append(log, late)
            found = replay(program, log, place / "2", 4, spark=False, resumable=True)
            _same(run_serial(program, list(log.events(Hit))), found, "late")
            told = found.certificate["start_from"]
            assert (told["remembered"], told["run"], told["slices"], told["of"]) == (
                True,
                str(before.path),
                2,
                4,
            )
            assert (told["changed_from"], found.slices) == (250, 4)
            log = _append(log, [Hit(who=1, size=2, ts=end + n) for n in range(5)])
            third = replay(program, log, place / "3", 4, spark=False, resumable=True)
            _same(run_serial(program, list(log.events(Hit))), third, "behind")
            told = third.certificate["start_from"]
            assert (told["run"], told["slices"], third.slices) == (str(found.path), 3, 4)
            log = _append(log, [Hit(who=1, size=3, ts=end + 9)])
            fourth = replay(program, log, place / "4", spark=False, resumable=True)
            _same(run_serial(program, list(log.events(Hit))), fourth, "all of it")
            assert (fourth.certificate["start_from"]["slices"], fourth.slices) == (4, 5)


def test_events_that_fail_are_taken_out_of_both_parts(tmp_path: Path) -> None:
    hits = [Hit(who=n % 5, size=13 if n % 10 == 4 else 1, ts=n) for n in range(100)]
    first, late = _split(list(hits), {61, 62, 74, 99})
    log = Log.from_events(tmp_path / "log", first)
    replay(Plain, log, tmp_path / "1", 4, spark=False, quarantine=True)
    log = _append(log, late)
    found = replay(Plain, log, tmp_path / "2", 4, spark=False, quarantine=True)
    whole = replay(Plain, log, tmp_path / "w", 4, spark=False, quarantine=True, cache=False)
    _same(whole, found, "quarantine")
    assert found.quarantined.equals(whole.quarantined)
    assert (found.certificate["start_from"]["slices"], whole.certificate["start_from"]) == (2, None)
    with pytest.raises(TooManyQuarantined):
        log = _append(log, [Hit(who=1, size=1, ts=200)])
        replay(Plain, log, tmp_path / "3", 4, spark=False, quarantine=True, max_quarantined=3)
    with pytest.raises(HandlerError):
        replay(Plain, log, tmp_path / "4", 4, spark=False)


def _gone(run: Path, log: Log) -> None:
    shutil.rmtree(run)


def _output(run: Path, log: Log) -> None:
    path = next(iter(sorted((run / "outputs").rglob("*.parquet"))))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def _state(run: Path, log: Log) -> None:
    next(iter(sorted((run / "state").rglob("*.arrow")))).unlink()


def _manifest(run: Path, log: Log) -> None:
    (run / "run.json").write_text((run / "run.json").read_text().replace('"executor"', '"execut0r"'))


def _other(run: Path, log: Log) -> None:
    replay(Plain, Log.open(log.path, 1), run, 2, spark=False, overwrite=True, cache=False)


def _expired(run: Path, log: Log) -> None:
    assert log.expire(0.0) == [1]


def _lie(run: Path, log: Log) -> None:
    now = log.manifest
    entry = msgspec.structs.replace(now.ingests[-1], rewritten=290)
    stored.write(log.path, msgspec.structs.replace(now, ingests=[*now.ingests[:-1], entry]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_gone, "it is gone"),
        (_output, "the file was altered"),
        (_state, "it cannot be read"),
        (_manifest, "altered"),
        (_other, "another run is at its place now"),
        (_expired, "the version of the log that it was over was removed"),
        (_lie, "could not be proven to be the same"),
    ],
    ids=lambda found: getattr(found, "__name__", ""),
)
def test_what_is_not_as_it_was_made_is_not_gone_on_from(
    spoil: Callable[[Path, Log], None], said: str, tmp_path: Path
) -> None:
    first, late = _split(list(_hits(300)), {40, 250} if spoil is _lie else {250})
    log = Log.from_events(tmp_path / "log", first)
    replay(Plain, log, tmp_path / "1", 3, spark=False)
    log = _append(log, late)
    spoil(tmp_path / "1", log)
    log = Log.open(log.path)
    found = replay(Plain, log, tmp_path / "2", 3, spark=False)
    _same(run_serial(Plain, list(log.events(Hit))), found, said)
    told = found.certificate["start_from"]
    assert (told["slices"], told["remembered"]) == (0, True)
    assert said in told["reason"]
    assert f"nothing was taken over of {tmp_path / '1'}" in found._repr_html_()
    log = _append(log, [Hit(who=1, size=2, ts=10**12)])
    again = replay(Plain, log, tmp_path / "3", 4, spark=False)
    assert again.certificate["start_from"]["run"] == str(tmp_path / "2")
    assert not again.certificate["start_from"]["reason"]


def test_nobody_asks_for_it_where_it_would_not_be_the_same(tmp_path: Path) -> None:
    """Other parameters, another `until`, a part of the log, no cache, strategies that are given, an older version, runs that do not stay."""
    first, late = _split(list(_hits(300)), {250})
    log = Log.from_events(tmp_path / "log", first)
    replay(Plain, log, slices=3, spark=False)
    grown = _append(log, late)
    assert replay(Plain, grown, slices=3, spark=False).certificate["start_from"] is None
    replay(Plain, grown, tmp_path / "run", 3, spark=False)
    more = _append(grown, [Hit(who=1, size=2, ts=10**12)])
    for options in (
        {"until": 10**13},
        {"cache": False},
        {"strategy": "chain"},
        {"quarantine": True},
        {"allow_impure": True},
    ):
        found = replay(Plain, more, slices=3, spark=False, **options)
        assert found.certificate["start_from"] is None, options
    old = replay(Plain, Log.open(log.path, 1), slices=3, spark=False)
    assert old.certificate["start_from"] is None
    part = replay(Plain, more.between(None, 10**12), slices=3, spark=False)
    assert part.certificate["start_from"] is None
    assert replay(Plain, more, slices=3, spark=False).certificate["start_from"]["slices"] == 2
    one = replay(Plain, more, slices=1, spark=False)
    assert one.certificate["start_from"]["reason"] == "one slice was asked for"


def test_a_run_in_very_many_slices_is_cut_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune_cache(tmp_path / "cache", most_slices=4)
    log = Log.from_events(tmp_path / "log", _hits(300))
    replay(Plain, log, tmp_path / "1", 5, spark=False)
    log = _append(log, [Hit(who=1, size=2, ts=10**12)])
    found = replay(Plain, log, tmp_path / "2", spark=False)
    assert found.certificate["start_from"]["reason"] == "it has 5 slices"


def test_windows_timers_ticks_and_dated_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(9)
    taken = []
    with written(tmp_path / "p", program=PROGRAM) as module:
        log = log_of(module, tmp_path / "log", 120)
        replay(module.Talk(), log, tmp_path / "0", 4, spark=False, resumable=True)
        for number, place in enumerate((100, 70, 40), 1):
            ts = next(e.ts for n, e in enumerate(log.events(module.Join, module.Say)) if n == place)
            late = [module.Say(id=900 + n, who=rng.randrange(4), to=1, text="x", ts=ts + n) for n in range(3)]
            log = _append(log, late)
            found = replay(module.Talk(), log, tmp_path / str(number), 4, spark=False, resumable=True)
            _same(run_serial(module.Talk(), list(log.events(module.Join, module.Say))), found, str(place))
            taken.append(found.certificate["start_from"]["slices"])
    assert taken == [3, 2, 1]


def test_the_same_place_again_and_what_commands_say(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\n\nclass Hit(tl.Event):\n    who: int\n    size: int\n\n"
        "class Big(tl.Record):\n    who: int\n    n: int\n\n"
        "class P(tl.Program):\n    n: tl.Counter[int]\n\n    @tl.on(Hit)\n    def hit(self, e):\n"
        "        self.n[e.who] += e.size\n        self.emit(Big(who=e.who, n=self.n[e.who]))\n"
    )
    first, late = _split(list(_hits(60)), {45})
    log = Log.from_events(tmp_path / "log", first)
    ask = ("replay", f"{rules}:P", log.path, "--out", tmp_path / "run", "--slices", "3", "--overwrite")
    assert cli(*ask).code == 0
    _append(log, late)
    said = f"{tmp_path / 'run'}: 39 events in 2 of 3 slices are of that run; its log has changed since, from event 45 on"
    told = cli("explain", f"{rules}:P", log.path)
    assert f"a replay would go on from the last one: {said}" in " ".join(told.out.split())
    assert cli("explain", f"{rules}:P", log.path, "--json").json["cache"]["run"]["slices"] == 2
    made = cli(*ask)
    assert made.code == 0, made.err
    assert f"from {said}" in " ".join(made.out.split())
    assert f"the last replay of this program: {said}" in " ".join(made.err.split())
    run = Run.open(tmp_path / "run")
    assert said in run._repr_html_()
    assert check_files(run).ok
    assert cli("verify", tmp_path / "run").code == 0
    page = cli("report", tmp_path / "run", "--out", tmp_path / "run.html")
    assert page.code == 0, page.err
    assert "39 events in 2 of 3 slices" in (tmp_path / "run.html").read_text()
    edited = tmp_path / "edited.py"
    edited.write_text(rules.read_text().replace("+= e.size", "+= 1"))
    _append(Log.open(log.path), [Hit(who=1, size=2, ts=10**12)])
    made = cli("replay", f"{edited}:P", *ask[2:], "--json")
    assert made.json["certificate"]["start_from"] is None


class Fires(tl.Program):
    """Timers and ticks that the clock reaches behind the log's end."""

    seen: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.seen[e.who] += 1
        self.emit(Late(who=e.who, n=self.seen[e.who], recent=0))

    @tl.on(Hit, after=10)
    def later(self, e: Hit) -> None:
        self.seen[e.who] -= 1
        self.emit(Late(who=e.who, n=self.seen[e.who], recent=1))

    @tl.every(tl.SECOND // 100_000)
    def tick(self) -> None:
        self.seen[-1] += 1
        self.emit(Late(who=-1, n=self.seen[-1] + self.seen[1], recent=2))


@pytest.mark.parametrize("kernel", ["interpreted", "native"])
def test_a_slice_at_whose_end_the_clock_had_gone_on(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events at the time up to which the run before had gone on, and the next ones before those: what the slice did up to then stays as it was."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    hits = [Hit(who=n % 3, size=1, ts=n * 2) for n in range(60)]
    until = hits[-1].ts + 8
    log = Log.from_events(tmp_path / "log", hits)
    replay(Fires, log, tmp_path / "0", 3, spark=False, until=until)
    taken = []
    for number, ts in enumerate((until, until, until - 4, until), 1):
        log = _append(log, [Hit(who=number % 3, size=1, ts=ts)])
        found = replay(Fires, log, tmp_path / str(number), 4, spark=False, until=until)
        _same(run_serial(Fires, list(log.events(Hit)), until=until), found, f"{number}")
        assert found.verify().ok
        taken.append(found.certificate["start_from"]["slices"])
    assert taken == [3, 3, 2, 3]


def test_runs_that_are_named_one_after_the_other_and_a_clock_that_had_gone_on(tmp_path: Path) -> None:
    hits = [Hit(who=n % 3, size=1, ts=n * 2) for n in range(60)]
    log = Log.from_events(tmp_path / "log", hits)
    first = replay(Fires, log, tmp_path / "0", 3, spark=False, until=hits[-1].ts + 8)
    log = _append(log, [Hit(who=1, size=1, ts=hits[-1].ts + 9 + n * 3) for n in range(9)])
    second = replay(Fires, log, tmp_path / "1", 2, spark=False, start_from=first)
    for number, ts in enumerate((hits[-1].ts + 10, hits[-1].ts + 7)):
        log = _append(log, [Hit(who=2, size=1, ts=ts)])
        third = replay(Fires, log, tmp_path / f"2{number}", 2, spark=False, start_from=second)
        _same(run_serial(Fires, list(log.events(Hit))), third, str(ts))
        assert third.certificate["start_from"]["slices"] == 3 - number
        assert third.verify().ok


def test_states_at_times_to_which_only_the_clock_had_gone_on(tmp_path: Path) -> None:
    hits = [Hit(who=n % 3, size=1, ts=n * 2) for n in range(60)]
    log = Log.from_events(tmp_path / "log", hits)
    first = replay(Fires, log, tmp_path / "0", 3, spark=False, until=hits[-1].ts + 8)
    log = _append(log, [Hit(who=1, size=1, ts=hits[-1].ts + 9 + n * 3) for n in range(9)])
    found = replay(Fires, log, tmp_path / "1", 2, spark=False, start_from=first)
    whole = replay(Fires, log, tmp_path / "2", 1, spark=False, cache=False)
    for at in range(hits[-1].ts - 2, hits[-1].ts + 36):
        assert found.state("seen", at).equals(whole.state("seen", at)), at


def _replaced(run: Path) -> None:
    replay(
        Plain,
        [Hit(who=1, size=1, ts=n) for n in range(100)],
        run,
        4,
        spark=False,
        overwrite=True,
        cache=False,
    )


@pytest.mark.parametrize("change", [shutil.rmtree, _replaced])
def test_the_run_may_go_away_meanwhile(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log.from_events(tmp_path / "log", _hits(300))
    replay(Plain, log, tmp_path / "1", 4, spark=False)
    log = _append(log, [Hit(who=1, size=2, ts=200), Hit(who=1, size=2, ts=10**12)])

    real = start.run_plan.__globals__["foreseen"]

    def foreseen(*given: Any) -> Any:
        monkeypatch.undo()
        monkeypatch.setenv("TIMELAPSE_STATES", "off")
        change(tmp_path / "1")
        return real(*given)

    monkeypatch.setattr(start, "foreseen", foreseen)
    found = replay(Plain, log, tmp_path / "2", 4, spark=False)
    _same(run_serial(Plain, list(log.events(Hit))), found, "gone")
    assert check_files(found).ok
    assert found.certificate["start_from"]["slices"] == 1


def test_what_was_taken_out_before_counts(tmp_path: Path) -> None:
    log = Log.from_events(
        tmp_path / "log", [Hit(who=n % 5, size=13 if n < 8 else 1, ts=n) for n in range(100)]
    )
    replay(Plain, log, tmp_path / "1", 4, spark=False, quarantine=True)
    log = _append(log, [Hit(who=1, size=1, ts=200)])
    with pytest.raises(TooManyQuarantined, match="8 events failed so far, and at most 3 may be taken out"):
        replay(Plain, log, tmp_path / "2", 4, spark=False, quarantine=True, max_quarantined=3)
    log = _append(log, [Hit(who=1, size=13, ts=201) for _ in range(5)])
    with pytest.raises(TooManyQuarantined, match="11 events failed so far, and at most 10 may be taken out"):
        replay(Plain, log, tmp_path / "3", 4, spark=False, quarantine=True, max_quarantined=10)


def test_a_log_by_another_path(tmp_path: Path) -> None:
    log = Log.from_events(tmp_path / "log", _hits(300))
    (tmp_path / "link").symlink_to(tmp_path / "log")
    replay(Plain, log, tmp_path / "1", 4, spark=False)
    _append(log, [Hit(who=1, size=2, ts=10**12)])
    found = replay(Plain, tmp_path / "link", tmp_path / "2", 4, spark=False)
    assert found.certificate["start_from"]["slices"] == 3


def test_where_rows_come_late_the_end_is_a_slice_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that late rows have changed near its end: a replay in one slice is cut before where they came, and the next goes on from there."""
    for kernel in ("native", "interpreted"):
        monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
        place = tmp_path / kernel
        hits: list[Event] = list(_hits(400))
        first, late = _split(hits, {380, 390, 394})
        log = Log.from_events(place / "log", first)
        before = replay(Plain, log, place / "1", spark=False)
        assert before.slices == 1
        log = _append(log, late[:1])
        whole = replay(Plain, log, place / "2", spark=False)
        _same(run_serial(Plain, list(log.events(Hit))), whole, "cut")
        assert whole.certificate["start_from"]["slices"] == 0
        assert (whole.slices, whole.manifest.cuts[1]) == (2, 398 - 2 * 17)
        log = _append(log, late[1:])
        again = replay(Plain, log, place / "3", spark=False)
        _same(run_serial(Plain, list(log.events(Hit))), again, "gone on")
        told = again.certificate["start_from"]
        assert (told["run"], told["slices"], told["events"]) == (str(whole.path), 1, 364)
        assert replay(Plain, log, place / "4", 1, spark=False).slices == 1  # who asks for one slice gets one
        log = _append(log, [Hit(who=1, size=3, ts=hits[0].ts + n) for n in range(2)])
        early = replay(Plain, log, place / "5", spark=False)
        _same(run_serial(Plain, list(log.events(Hit))), early, "early")
        assert early.slices == 1  # late rows may come anywhere: no place near the end helps
        # Watch looks back on its states: only a run that keeps the rows can be gone on from
        assert replay(Watch, _append(log, [hits[-2]]), place / "6", spark=False).slices == 1


def test_rows_that_arrived_late_cut_the_first_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose rows say when they arrived: already before the first late append its end is a slice of its own."""
    monkeypatch.setattr("timelapse.segments.segment.BLOCK_EVENTS", 50)
    day, hour = 86_400 * 10**6, 3_600 * 10**6

    def rows(path: Path, hits: Sequence[Hit]) -> str:
        path.write_text(
            "ts,came,who,size\n"
            + "".join(f"{h.ts},{h.ts + h.size % 7 * hour},{h.who},{h.size}\n" for h in hits)
        )
        return str(path)

    hits = [Hit(who=n % 9, size=n % 12, ts=1_700_000_000_000_000 + n * day // 50) for n in range(2000)]
    first, late = hits[:1960] + hits[1961:], hits[1960:1961]
    source = tl.Source(rows(tmp_path / "1.csv", first), arrival="came")
    log = Log.write(tmp_path / "log", {Hit: source})
    before = replay(Plain, log, tmp_path / "a", spark=False)
    assert before.slices == 2
    assert before.manifest.cuts[1] >= 1999 * 3 // 4
    log = log.append({Hit: tl.Source(rows(tmp_path / "2.csv", late), arrival="came")})
    assert log.manifest.ingests[-1].late == 1
    again = replay(Plain, log, tmp_path / "b", spark=False)
    _same(run_serial(Plain, list(log.events(Hit))), again, "gone on")
    assert again.certificate["start_from"]["slices"] == 1
    ordered = Log.write(
        tmp_path / "arrived", {Hit: tl.Source(str(tmp_path / "1.csv"), arrival="came", order="arrival")}
    )
    assert replay(Plain, ordered, tmp_path / "c", spark=False).slices == 1  # what comes now is behind all


def _files(folder: Path, hits: Sequence[Hit], files: int) -> list[str]:
    """Events in files, in the order given."""
    folder.mkdir(parents=True)
    found = []
    for n in range(files):
        own = hits[len(hits) * n // files : len(hits) * (n + 1) // files]
        found.append(str(folder / f"{n}.csv"))
        Path(found[-1]).write_text("ts,who,size\n" + "".join(f"{h.ts},{h.who},{h.size}\n" for h in own))
    return found


@pytest.mark.parametrize("files", [1, 7])
@pytest.mark.parametrize("days", [40, 1])
def test_rows_out_of_order_in_files_cut_the_first_replay(files: int, days: int, tmp_path: Path) -> None:
    """Nothing says when they arrived: they stand in their files in the order in which they came, within one or from one to the next."""
    rng = random.Random(days * 10 + files)
    step = days * 86_400 * 10**6 // 2000
    hits = [Hit(who=n % 9, size=n % 12, ts=1_700_006_400_000_000 + n * step) for n in range(2000)]
    came = sorted(range(2000), key=lambda n: n + rng.randrange(40))
    later = set(came[-30:])
    log = Log.write(tmp_path / "log", {Hit: _files(tmp_path / "raw", [hits[n] for n in came[:-30]], files)})
    before = replay(Plain, log, tmp_path / "a", spark=False)
    assert (before.slices, 1800 < before.manifest.cuts[1] < 1970 - 31) == (2, True)
    log = log.append({Hit: _files(tmp_path / "more", [hits[n] for n in came if n in later], 1)})
    assert log.manifest.ingests[-1].late > 0
    again = replay(Plain, log, tmp_path / "b", spark=False)
    _same(run_serial(Plain, list(log.events(Hit))), again, "gone on")
    assert again.certificate["start_from"]["slices"] == 1


def test_rows_in_order_in_their_files_cut_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hits = [Hit(who=n % 9, size=n % 12, ts=1_700_006_400_000_000 + n * 10**6) for n in range(2000)]
    ordered = Log.write(tmp_path / "ordered", {Hit: _files(tmp_path / "raw", hits, 5)})
    assert replay(Plain, ordered, tmp_path / "a", spark=False).slices == 1
    mixed = random.Random(3).sample(hits, 2000)
    shuffled = Log.write(tmp_path / "shuffled", {Hit: _files(tmp_path / "mixed", mixed, 5)})
    assert replay(Plain, shuffled, tmp_path / "b", spark=False).slices == 1  # they may come anywhere
    pairs = [hits[n ^ 1] for n in range(1990)]  # another log: of the same events the cache has cuts
    near = Log.write(tmp_path / "near", {Hit: _files(tmp_path / "pairs", pairs, 1)})
    assert replay(Plain, near, tmp_path / "c", spark=False).slices == 2
    assert replay(Plain, near, tmp_path / "d", spark=False, cache=False).slices == 1  # no replay looks for it
    few = Log.write(tmp_path / "few", {Hit: _files(tmp_path / "less", pairs[:1980], 1)})
    tune_cache(tmp_path / "cache", least_events=2001)  # no replay of so few events is gone on from
    assert replay(Plain, few, tmp_path / "e", spark=False).slices == 1
