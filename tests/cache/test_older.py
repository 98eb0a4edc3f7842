"""A replay of a new version of a log starts from the states that were kept of the version before, where its slices are untouched, and gives
what one replay of the new version gives, to the last bit. Nothing is taken that is not proven to be the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import timelapse as tl
from tests.cache.programs import written
from tests.cache.test_times import PROGRAM, log_of
from tests.cli.run_cli import cli
from tests.depth import deep
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.run.test_start_from import Hit, Plain, Watch, _hits, _same
from tests.run.test_start_from_changed import _append, _split
from tests.tuned import tune_cache
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.cache.store import open_store
from timelapse.errors import HandlerError
from timelapse.log import Log
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of
from timelapse.run import Run, replay, run_serial
from timelapse.segments import manifest as stored
from timelapse.segments.changed import first_changed, same_events

EVENTS, KEYS = 120, 5


@pytest.fixture(autouse=True)
def _cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")


def _goes_on(
    program: Program,
    first: Sequence[Event],
    late: Sequence[Event],
    place: Path,
    slices: int,
    then: int | None,
) -> Run:
    """A log, a replay, late events, a replay of what the log is then: compared with the serial loop."""
    classes = list(dict.fromkeys(type(e) for e in [*first, *late]))
    log = Log.from_events(place / "log", first, classes)
    before = replay(
        program, log, slices=slices, spark=False
    )  # its folder does not stay: it is not gone on from
    grown = _append(log, late)
    whole = run_serial(program, list(grown.events(*classes)))
    found = replay(program, grown, place / "second", then, spark=False)
    _same(whole, found, f"{slices} slices, then {then}")
    assert found.certificate["fallback"] is None
    assert then is None or found.slices == then
    if found.certificate["cache"] is not None:
        told, cuts = found.certificate["cache"]["older"], before.manifest.cuts
        pairs = enumerate(zip(grown.events(*classes), first, strict=False))
        changed = next(
            (n for n, (a, b) in pairs if (type(a), a.ts, a._values()) != (type(b), b.ts, b._values())),
            len(first),
        )
        assert told["version"] == 1
        assert 0 < told["slices"] <= sum(cut <= changed for cut in cuts[1:])
        assert found.manifest.cuts[: told["slices"] + 1] == cuts[: told["slices"] + 1]
        proved = found.certificate["validated_slices"] + found.certificate["leading_slices"]
        assert proved >= told["slices"]
    return found


@pytest.mark.parametrize(
    "entry", [e for e in CATALOGUE if e.name in ("IpSpam", "Ledger", "WindowedSpam")], ids=lambda e: e.name
)
def test_programs_go_on_before_the_first_late_event(entry: Entry, tmp_path: Path) -> None:
    program, made = entry.program(), make(entry.mix(KEYS), EVENTS, seed=13)
    events = list(made.events(entry.classes()))
    first, late = _split(events, {90, 91, 100, *range(110, EVENTS)})
    found = _goes_on(program, first, late, tmp_path, 4, 5)
    assert found.certificate["cache"]["older"]["slices"] == 3


@pytest.mark.parametrize("seed", range(deep(4)))
def test_random_programs_go_on(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3005 + seed)
    program = load_source(any_program(rng))
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    events = random_events(program, random.Random(seed), 24)
    late = {n for n in range(8, 24) if rng.random() < 0.25} or {20}
    first, rest = _split(list(events), late)
    try:
        _goes_on(program(), first, rest, tmp_path, rng.randint(2, 6), rng.choice((None, 2, 5)))
    except HandlerError:  # a few of these programs raise
        return


def test_windows_timers_ticks_and_dated_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At random places, several times in a row: each version stands on the one before."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(5)
    with written(tmp_path / "p", program=PROGRAM) as module:
        log = log_of(module, tmp_path / "log", 120)
        replay(module.Talk(), log, slices=4, spark=False)
        taken = []
        for place in (100, 60, 20):
            ts = next(e.ts for n, e in enumerate(log.events(module.Join, module.Say)) if n == place)
            late = [module.Say(id=900 + n, who=rng.randrange(4), to=1, text="x", ts=ts + n) for n in range(3)]
            log = _append(log, late)
            found = replay(module.Talk(), log, slices=4, spark=False)
            _same(run_serial(module.Talk(), list(log.events(module.Join, module.Say))), found, str(place))
            assert found.certificate["fallback"] is None
            told = (found.certificate["cache"] or {}).get("older")
            taken.append((told["slices"], found.certificate["validated_slices"]) if told else None)
        assert [one and one[0] for one in taken] == [3, 2, None]
        assert all(one is None or one[1] >= one[0] for one in taken)
        edited = replay(module.Talk(limit=1), log, slices=4, spark=False)
        assert edited.certificate["cache"]["older"] is None


def test_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    first, late = _split(list(_hits(400)), {250, 251, 390})
    for program in (Watch, Plain):
        found = _goes_on(program(), first, late, tmp_path / program.__name__, 4, 4)
        assert found.certificate["cache"]["older"]["slices"] == 2
        assert program is Watch or set(found.passes.values()) == {"compiled"}


class Chained(tl.Program):
    """A state that depends on itself across keys: slice after slice."""

    last: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.last[e.who] = self.last[self.last[e.who] % 5] + e.size


def test_slice_after_slice_the_starts_come_of_what_slices_changed(tmp_path: Path) -> None:
    """One pass in log order keeps no start states; behind what is known one task takes all slices."""
    first, late = _split(list(_hits(400)), {310})
    log = Log.from_events(tmp_path / "log", first)
    before = replay(Chained, log, slices=5, spark=False)
    assert before.certificate["mode"] == "chain"
    grown = _append(log, late)
    found = replay(Chained, grown, slices=6, spark=False)
    _same(run_serial(Chained, list(grown.events(Hit))), found, "chained")
    told = found.certificate
    assert (told["mode"], told["cache"]["older"]["slices"], told["validated_slices"]) == ("chain", 3, 3)
    assert found.manifest.cuts[:4] == before.manifest.cuts[:4]
    more = _append(grown, [Hit(who=1, size=2, ts=10**12)])  # behind its end: all of it holds
    found = replay(Chained, more, slices=8, spark=False)
    _same(run_serial(Chained, list(more.events(Hit))), found, "longer")
    assert found.certificate["cache"]["older"]["slices"] == 6
    assert found.certificate["cache"]["older"]["changed_from"] is None


def test_a_version_that_lies_about_what_it_changed_is_not_believed(tmp_path: Path) -> None:
    """The events are compared, not what the manifest says of them: hashes of segments, then of what is read."""
    first, late = _split(list(_hits(300)), {40})
    log = Log.from_events(tmp_path / "log", first)
    replay(Plain, log, slices=3, spark=False)
    grown = _append(log, late)
    now = grown.manifest
    entry = msgspec.structs.replace(now.ingests[-1], rewritten=290)
    false = msgspec.structs.replace(now, ingests=[*now.ingests[:-1], entry])
    assert first_changed(log.manifest, now) == 40
    assert [same_events(log.path, log.manifest, now, end) for end in (40, 41, 299, 300)] == [
        True,
        False,
        False,
        False,
    ]
    stored.write(log.path, false)
    grown = Log.open(log.path)
    assert first_changed(log.manifest, grown.manifest) == 290
    found = replay(Plain, grown, slices=3, spark=False)
    _same(run_serial(Plain, list(grown.events(Hit))), found, "a false claim")
    assert found.certificate["cache"] is None


def test_what_is_not_there_any_more_is_not_missed(tmp_path: Path) -> None:
    """Entries that went, an older version that was removed, another log at the same place."""
    first, late = _split(list(_hits(300)), {250})
    for number, spoil in enumerate(("entry", "version", "log")):
        log = Log.from_events(tmp_path / str(number), first)
        replay(Plain, log, slices=3, spark=False)
        grown = _append(log, late)
        if spoil == "entry":
            for path in (tmp_path / "cache" / "entries").glob("*/state"):
                next(p for p in sorted(path.rglob("*.arrow"))).write_bytes(b"altered")
        elif spoil == "version":
            assert grown.expire(0.0) == [1]
        else:
            grown = Log.from_events(tmp_path / "other", _hits(290))
            grown.path.rename(log.path.with_name("moved"))
            log.path.rename(tmp_path / "away")
            (tmp_path / "moved").rename(log.path)
            grown = Log.open(log.path)
        found = replay(Plain, grown, slices=3, spark=False)
        _same(run_serial(Plain, list(grown.events(Hit))), found, spoil)
        assert found.certificate["cache"] is None, spoil


def test_a_wrong_prediction_costs_time_and_not_the_result(tmp_path: Path) -> None:
    """An entry whose hashes say another change than its slices make: the run goes on from the state that was reached."""
    first, late = _split(list(_hits(300)), {250})
    log = Log.from_events(tmp_path / "log", first)
    replay(Plain, log, slices=3, spark=False)
    store = open_store()
    assert store is not None
    for entry in store.entries():
        if entry.head.kind == "states":
            data = entry.head.data
            name = next(iter(data["moved"]))
            data["moved"][name][0][0] ^= 1
            folder = store.root / "entries" / entry.head.key
            files = {n: folder / n for n in entry.head.files}
            for n, path in files.items():
                (tmp_path / "copy" / n).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "copy" / n).write_bytes(path.read_bytes())
            store.publish(
                entry.head.key, "states", {n: tmp_path / "copy" / n for n in files}, {}, data, replace=True
            )
    found = replay(Plain, _append(log, late), slices=3, spark=False)
    _same(run_serial(Plain, list(Log.open(log.path).events(Hit))), found, "wrong")
    assert found.certificate["fallback"]["from_slice"] == 1


def test_commands_say_so(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\n\nclass Hit(tl.Event):\n    who: int\n    size: int\n\n"
        "class P(tl.Program):\n    n: tl.Counter[int]\n\n    @tl.on(Hit)\n    def hit(self, e):\n"
        "        self.n[e.who] += e.size\n"
    )
    first, late = _split(list(_hits(60)), {45})
    log = Log.from_events(tmp_path / "log", first)
    assert cli("replay", f"{rules}:P", log.path, "--out", tmp_path / "first", "--slices", "3").code == 0
    shutil.rmtree(tmp_path / "first")  # or the replay goes on from it (tests/run/test_remembered.py)
    _append(log, late)
    said = (
        "1 of 3 slices that were found over version 1 of the log hold; it has changed since, from event 45 on"
    )
    said = said.replace("1 of 3", "2 of 3")
    told = cli("explain", f"{rules}:P", log.path, "--slices", "3")
    assert said in " ".join(told.out.split()), told.out
    assert cli("explain", f"{rules}:P", log.path, "--json").json["cache"]["older"]["end_seq"] == 39
    made = cli("replay", f"{rules}:P", log.path, "--out", tmp_path / "second", "--slices", "3")
    assert made.code == 0, made.err
    assert said in " ".join(made.out.split())
    run = Run.open(tmp_path / "second")
    assert said in run._repr_html_()
    assert run.certificate["cache"]["older"] == {
        "version": 1, "changed_from": 45, "slices": 2, "of": 3, "end_seq": 39, "of_seq": 59,
    }  # fmt: skip
    assert cli("verify", tmp_path / "second").code == 0
    assert spec_of(Plain).states
