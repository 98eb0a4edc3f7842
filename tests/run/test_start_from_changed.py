"""A log that changed under a run: a replay of the new version goes on behind the last slice before the first change, and gives
what one replay of that version gives, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.run_cli import cli
from tests.depth import deep, some
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.run.test_start_from import Hit, Plain, Watch, _hits, _same
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.analysis import analyse
from timelapse.errors import HandlerError, LogError
from timelapse.log import Log
from timelapse.model.events import Event
from timelapse.program.program import Program
from timelapse.run import Run, replay, run_serial
from timelapse.run.files import check_files
from timelapse.run.untouched import untouched
from timelapse.segments.segment import table_of

EVENTS, KEYS = 240, 5


def _append(log: Log, events: Sequence[Event]) -> Log:
    """Events as a new version of a log, late ones among them."""
    sources: dict[type[Event], pa.Table] = {}
    for cls in dict.fromkeys(type(e) for e in events):
        own = [e for e in events if type(e) is cls]
        kind = next(k for k in log.types if k.name == cls.__name__)
        sources[cls] = table_of(kind, own).append_column("ts", pa.array([e.ts for e in own], pa.int64()))
    return log.append(sources)


def _split(events: list[Event], late: set[int]) -> tuple[list[Event], list[Event]]:
    """The events of the first version, and those that come later."""
    return (
        [e for n, e in enumerate(events) if n not in late],
        [e for n, e in enumerate(events) if n in late],
    )


def _program_goes_on(
    program: Program, first: list[Event], late: list[Event], place: Path, slices: int, then: int
) -> Run:
    classes = list(dict.fromkeys(type(e) for e in [*first, *late]))
    log = Log.from_events(place / "log", first, classes)
    run = replay(program, log, place / "first", slices, spark=False, resumable=True)
    grown = _append(log, late)
    whole = run_serial(program, list(grown.events(*classes)))
    found = replay(program, grown, place / "second", then, spark=False, start_from=run, resumable=True)
    _same(whole, found, f"{slices} slices, then {then}")
    told, left = found.certificate["start_from"], untouched(run.manifest, grown)
    assert left is not None
    if left.slices and analyse(type(program)).serial_only is None:
        assert not told["reason"], told["reason"]
        assert (told["slices"], told["events"]) == (left.slices, left.end)
        assert found.manifest.cuts[: left.slices + 1] == run.manifest.cuts[: left.slices + 1]
    else:
        assert told["reason"]
    assert check_files(found).ok
    return found


@pytest.mark.parametrize("entry", some(CATALOGUE, first=2), ids=lambda e: e.name)
def test_programs_go_on_before_the_first_late_event(entry: Entry, tmp_path: Path) -> None:
    """Late events in the middle and near the end, twice in a row; four slices, then two, then one."""
    program, made = entry.program(), make(entry.mix(KEYS), EVENTS, seed=13)
    events = list(made.events(entry.classes()))
    first, rest = _split(events, {150, 151, 170, *range(220, EVENTS)})
    found = _program_goes_on(program, first, rest, tmp_path, 4, 2)
    log = Log.open(tmp_path / "log")
    names = {kind.name: entry.classes()[kind.name] for kind in log.types}
    again = make(entry.mix(KEYS), EVENTS, seed=14).events(entry.classes())
    later = [e for e in again if e.ts > events[200].ts and type(e).__name__ in names][:5]
    grown = _append(log, later)
    third = replay(program, grown, tmp_path / "third", spark=False, start_from=found)
    _same(run_serial(program, list(grown.events(*names.values()))), third, "a third")


@pytest.mark.parametrize("seed", range(deep(6)))
def test_random_programs_go_on(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1000 + seed)
    program = load_source(any_program(rng))
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    events = random_events(program, random.Random(seed), 24)
    late = {n for n in range(8, 24) if rng.random() < 0.25} or {20}
    first, rest = _split(list(events), late)
    try:
        _program_goes_on(program(), first, rest, tmp_path, rng.randint(2, 6), rng.randint(1, 4))
    except HandlerError:  # a few of these programs raise
        return


def test_what_is_forgotten_or_left_out_changes_a_log_too(tmp_path: Path) -> None:
    events = _hits(200)
    log = Log.from_events(tmp_path / "log", events)
    run = replay(Plain, log, tmp_path / "run", 5, spark=False)
    without = log.without([130, 150])
    found = replay(Plain, without, tmp_path / "without", 2, spark=False, start_from=run)
    _same(replay(Plain, without, tmp_path / "w", spark=False), found, "without")
    assert found.certificate["start_from"]["slices"] == 3
    less = log.forget(f"ts >= {events[90].ts} and who == 3")
    found = replay(Plain, less, tmp_path / "less", 2, spark=False, start_from=run)
    _same(run_serial(Plain, list(less.events(Hit))), found, "forgotten")
    assert found.certificate["start_from"]["slices"] == 2
    assert "changed since" in found._repr_html_()
    later = replay(Plain, less, tmp_path / "over2", 2, spark=False)
    with pytest.raises(LogError) as old:
        replay(Plain, Log.open(log.path, 1), tmp_path / "no", spark=False, start_from=later)
    assert old.value.code == "TL440"


def test_events_that_fail_are_counted_in_the_slices_that_stay(tmp_path: Path) -> None:
    events = [type(h)(who=n % 5, size=13 if n % 10 == 4 else 1, ts=n) for n, h in enumerate(_hits(100))]
    late = {61, 62, 74, 99}
    first, rest = _split(list(events), late)
    log = Log.from_events(tmp_path / "log", first)
    run = replay(Plain, log, tmp_path / "first", 4, spark=False, quarantine=True)
    grown = _append(log, rest)
    whole = replay(Plain, grown, tmp_path / "whole", spark=False, quarantine=True)
    found = replay(Plain, grown, tmp_path / "second", 2, spark=False, quarantine=True, start_from=run)
    _same(whole, found, "quarantine")
    assert found.quarantined_count == whole.quarantined_count == 10
    assert found.quarantined.equals(whole.quarantined)
    assert found.certificate["start_from"]["slices"] == 2


def test_compiled_and_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    events = _hits(400)
    first, rest = _split(list(events), {250, 251, 390})
    for program in (Watch, Plain):
        found = _program_goes_on(program(), first, rest, tmp_path / program.__name__, 4, 2)
        assert program is Watch or set(found.passes.values()) == {"compiled"}


def test_the_command_says_what_stays(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\n\nclass Hit(tl.Event):\n    who: int\n    size: int\n\n"
        "class P(tl.Program):\n    n: tl.Counter[int]\n\n    @tl.on(Hit)\n    def hit(self, e):\n"
        "        self.n[e.who] += e.size\n"
    )
    events = _hits(60)
    log = Log.from_events(tmp_path / "log", events)
    made = cli("replay", f"{rules}:P", log.path, "--out", tmp_path / "first", "--slices", "3")
    assert made.code == 0, made.err
    _append(log, [type(events[0])(who=1, size=1, ts=events[45].ts)])
    found = cli(
        "replay", f"{rules}:P", log.path, "--out", tmp_path / "second", "--start-from", tmp_path / "first"
    )
    assert found.code == 0, found.err
    assert (
        "40 events in 2 of 3 slices are of that run; its log has changed since, from event 45 on"
        in " ".join(found.out.split())
    )
    assert cli("verify", tmp_path / "second").code == 0
    assert cli("verify", tmp_path / "first").code == 0
