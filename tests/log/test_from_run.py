"""One program's outputs as another's log."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.depth import deep
from timelapse.errors import LogError
from timelapse.frames import portions
from timelapse.frames.tables import Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Vote(tl.Event):
    who: int
    for_whom: int
    note: str


class Raised(tl.Record):
    who: int
    note: str
    times: list[tl.Time]


class Seen(tl.Record):
    who: int


class Alarm(tl.Event):
    note: str
    cause: int
    times: list[int]


class Sight(tl.Event):
    who: int | None


class First(tl.Program):
    seen: tl.Set[int]
    votes: tl.Counter[int]

    @tl.on(Vote)
    def go(self, v: Vote) -> None:
        if v.who not in self.seen:
            self.seen.add(v.who)
            self.emit(Seen(who=v.who))
        self.votes[v.for_whom] += 1
        if self.votes[v.for_whom] % 3 == 0:
            self.emit(Raised(who=v.for_whom, note=v.note, times=[v.ts]))
            self.emit(Seen(who=-v.for_whom))


class Found(tl.Record):
    note: str
    after: int


class Second(tl.Program):
    sights: tl.Counter

    @tl.on(Sight)
    def sight(self, s: Sight) -> None:
        self.sights += 1

    @tl.on(Alarm)
    def alarm(self, a: Alarm) -> None:
        self.emit(Found(note=f"{a.note}{a.cause}", after=self.sights))  # type: ignore[arg-type]


VOTES = [Vote(who=i % 5, for_whom=(i * i) % 4, note=f"n{i}", ts=i // 3) for i in range(40)]
MAPPING: dict[type[tl.Record], type[tl.Event]] = {Raised: Alarm, Seen: Sight}


@pytest.fixture(scope="module")
def run() -> tl.Run:
    return tl.replay(First, VOTES, slices=3, spark=False)


@pytest.fixture(scope="module")
def log(run: tl.Run, tmp_path_factory: pytest.TempPathFactory) -> tl.Log:
    return tl.Log.from_run(run, MAPPING, tmp_path_factory.mktemp("log") / "log", origin="cause")


def by_hand() -> list[tl.Event]:
    """What the first program puts out, written down once more without it."""
    seen: set[int] = set()
    votes: dict[int, int] = {}
    found: list[tl.Event] = []
    for i, v in enumerate(VOTES):
        if v.who not in seen:
            seen.add(v.who)
            found.append(Sight(who=v.who, ts=v.ts))
        votes[v.for_whom] = votes.get(v.for_whom, 0) + 1
        if votes[v.for_whom] % 3 == 0:
            found.append(Alarm(note=v.note, cause=i, times=[v.ts], ts=v.ts))
            found.append(Sight(who=-v.for_whom, ts=v.ts))
    return [e._at(e.ts, n) for n, e in enumerate(found)]


def test_events_are_the_records_as_they_were_emitted(log: tl.Log) -> None:
    assert list(log.events(Alarm, Sight)) == by_hand()


def test_the_second_program_replays_over_the_first_ones_outputs(log: tl.Log) -> None:
    run = tl.replay(Second, log, slices=3, spark=False)
    assert run.verify().ok
    assert run.digest == tl.run_serial(Second, by_hand()).digest
    assert run.counts["Found"] > 5


def test_identity_does_not_depend_on_how_the_first_one_ran(run: tl.Run, log: tl.Log) -> None:
    other = tl.Log.from_run(tl.run_serial(First, VOTES), MAPPING, origin="cause")
    assert (other.id, list(other.events(Alarm))) == (log.id, list(log.events(Alarm)))
    fewer = tl.Log.from_run(tl.replay(First, VOTES[1:], spark=False), MAPPING, origin="cause")
    assert fewer.id != log.id


def test_a_log_without_a_place_lasts_as_long_as_the_process(run: tl.Run) -> None:
    made = tl.Log.from_run(run, {Seen: Sight})
    assert made.path.exists()
    assert made.count == run.counts["Seen"]


def test_records_may_be_named(run: tl.Run, log: tl.Log) -> None:
    made = tl.Log.from_run(run, {"Raised": Alarm, "Seen": Sight}, origin="cause")
    assert made.id == log.id


def test_two_records_may_become_one_event(run: tl.Run) -> None:
    class Any_(tl.Event):
        who: int

    mapping: dict[type[tl.Record], type[tl.Event]] = {Seen: Any_, Raised: Any_}
    made = tl.Log.from_run(run, mapping)
    assert made.count == run.counts["Seen"] + run.counts["Raised"]
    assert [e.seq for e in made.events(Any_)] == list(range(made.count))


def test_a_run_without_outputs_is_an_empty_log() -> None:
    made = tl.Log.from_run(tl.replay(First, [], spark=False), MAPPING, origin="cause")
    assert made.count == 0
    assert tl.replay(Second, made, spark=False).events == 0


def test_an_event_with_no_field_counts() -> None:
    class Bare(tl.Event):
        pass

    made = tl.Log.from_run(tl.run_serial(First, VOTES), {Seen: Bare})
    assert made.count == len(list(made.events(Bare))) > 0


def test_what_does_not_fit_is_refused(run: tl.Run, tmp_path: Path) -> None:
    class Other(tl.Event):
        who: str

    class More(tl.Event):
        more: int

    for mapping, message in (
        ({Seen: Other}, "Other.who is str, Seen.who is int"),
        ({Seen: More}, "More.more is no field of Seen"),
        ({Raised: Alarm}, "Alarm.cause is no field of Raised"),
        ({"Seen": Other}, "Other.who is str, Seen.who is int64"),
        ({Sight: Sight}, "no record class"),
        ({}, "no records"),
    ):
        with pytest.raises(LogError, match=message) as caught:
            tl.Log.from_run(run, mapping, tmp_path / "log")
        assert caught.value.code == "TL409"
        assert not (tmp_path / "log").exists()
    with pytest.raises(LogError, match="must be an int"):
        tl.Log.from_run(run, {Seen: Sight}, origin="who")


def test_in_portions_it_is_the_same_log(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs that are read and written part by part, in this process and as tasks of Spark: the same events, and the same id."""
    run = tl.replay(First, VOTES, out=tmp_path / "run", slices=3, spark=False)
    whole = tl.Log.from_run(run, MAPPING, origin="cause", spark=False)
    monkeypatch.setattr(portions, "PORTION_BYTES", 1)
    number = len(run.portions(list(MAPPING)))
    assert number > 2
    for name, session in (("here", False), ("spark", spark)):
        made = tl.Log.from_run(run, MAPPING, tmp_path / name, origin="cause", spark=session)  # type: ignore[arg-type]
        assert (made.id, made.count) == (whole.id, whole.count)
        assert repr(list(made.events())) == repr(list(whole.events()))
        assert len(list((tmp_path / name / "segments").iterdir())) == len(made.manifest.segments) > 1


def test_outputs_of_one_time_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small portions are to be: their order is by phase and seq too."""
    votes = [Vote(who=n, for_whom=n % 2, note=str(n), ts=n // 9) for n in range(60)]
    run = tl.replay(First, votes, out=tmp_path / "run", slices=4, spark=False)
    whole = tl.Log.from_run(run, MAPPING, origin="cause", spark=False)
    monkeypatch.setattr(portions, "PORTION_BYTES", 1)
    assert tl.Log.from_run(run, MAPPING, origin="cause", spark=False).id == whole.id


class Burst(tl.Program):
    """Everything at one time, and a little before and after."""

    @tl.on(Vote)
    def go(self, v: Vote) -> None:
        self.emit(Seen(who=v.who))
        if v.who % 2:
            self.emit(Raised(who=v.who, note=v.note, times=[v.ts]))


def _groups(self: Rows, number: int) -> Any:
    """Row groups of a file that is not what the run wrote."""
    found = pq.read_metadata(self.files[number])
    return found.num_rows, [found.row_group(i) for i in range(found.num_row_groups)]


@pytest.mark.parametrize("seed", range(deep(6)))
def test_outputs_of_one_time_are_cut_too(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is the same, no portion has more than its share and a part of each type, and each part is read for few of them."""
    rng = random.Random(seed)
    times = sorted(rng.choice([5, 5, 5, 5, rng.randrange(12)]) for _ in range(400))
    votes = [Vote(who=n % 3, for_whom=0, note=f"n{n}", ts=ts) for n, ts in enumerate(times)]
    run = tl.replay(Burst, votes, tmp_path / "run", slices=rng.choice([1, 4]), spark=False)
    wanted = tl.Log.from_run(run, MAPPING, origin="cause")
    for part in (tmp_path / "run" / "outputs").rglob("*.parquet"):
        pq.write_table(pq.read_table(part), part, row_group_size=rng.choice([3, 17]))
    of = Rows.of

    def unsealed(*args: Any) -> Rows:
        rows = of(*args)
        return replace(rows, sums=(None,) * len(rows.files))

    monkeypatch.setattr(Rows, "groups", _groups)
    monkeypatch.setattr(Rows, "of", unsealed)
    monkeypatch.setattr(portions, "PORTION_BYTES", 700)
    found = portions.portions(run, {"Raised": run.schema("Raised"), "Seen": run.schema("Seen")})
    assert sum(p.stored("Seen").num_rows for p in found) == run.counts["Seen"]
    largest = max(p.bytes for one in found for _, own in one.parts.values() for p in own)
    for one in found:
        assert sum(p.bytes for _, own in one.parts.values() for p in own) <= 700 + 4 * largest
    assert len(found) > 5
    assert tl.Log.from_run(run, MAPPING, origin="cause").id == wanted.id
