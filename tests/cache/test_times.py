"""Programs that reach into other times keep what slices begin with, as all others do: windows, dated writes, timers, ticks."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import timelapse as tl
from tests.cache.programs import events, written
from tests.cache.test_reads import ALL, what
from tests.cache.test_states import tokens
from tests.depth import deep, some
from tests.tuned import tune_cache
from tests.writers.looking import looking
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.analysis import analyse
from timelapse.analysis.outputs import output_part
from timelapse.cache.key import refusal
from timelapse.divergence import assert_same
from timelapse.errors import DefinitionError, HandlerError, UsageError
from timelapse.program.program import spec_of
from timelapse.run import Run


@pytest.fixture(autouse=True)
def _cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")


HEAD = """
import timelapse as tl
from cachetest_events import Join, Say

class Loud(tl.Record):
    id: int
    score: int

class Gone(tl.Event):
    who: int

class Talk(tl.Program):
    limit: int = 3
    days: int = 10
    lag: int = 7
    sent: tl.Counter[int]
    seen: tl.Set[int]
    last_text: tl.Value[int, str] = tl.state(default="", history=20)
    peak: tl.Max[int, int] = tl.state(default=-1)
    blocked: tl.Set[int]
    late: tl.Counter[int]
"""
CORE = """
    @tl.on(Say)
    def count(self, e):
        self.sent[e.who] += 1
        self.last_text[e.who] = e.text
        self.peak.add(e.to, e.id % 13)
        if self.sent.last(self.days)[e.who] > 4:
            self.blocked.add(e.who)
            self.blocked.discard(e.who, at=self.now + 9)
        self.send(Gone(who=e.who), after=11, key=e.who)

    @tl.on(Join)
    def join(self, e):
        self.seen.add(e.a)
        self.seen.discard(e.b)

    @tl.on(Gone)
    def gone(self, g):
        self.late[g.who] += 1

    @tl.on(Say, after="lag")
    def later(self, e):
        self.late[e.to] -= 1

    @tl.every(tl.DAY // 86_400_000_0)
    def tick(self):
        self.late[0] += len(self.sent.last(5).items())
"""
FLAG = """
    @tl.on(Say)
    def flag(self, e):
        if e.who in self.blocked or self.sent.last(6)[e.who] > self.limit:
            self.emit(Loud(id=e.id, score=self.late[e.to] + self.peak.last(8)[e.to]))
        if e.to in self.seen.last(5) and self.last_text.get(e.who, at=self.now - 3) == "x":
            self.emit(Loud(id=-e.id, score=self.sent.ago(6)[e.to]))
"""
PROGRAM = HEAD + CORE + FLAG


def log_of(module: ModuleType, path: Path, count: int = 250, seed: int = 0) -> tl.Log:
    return tl.Log.from_events(path, events(module, count, seed), [module.Join, module.Say], block=32)


def checked(cls: Any, log: tl.Log, given: dict[str, Any], slices: int = 4, **settings: Any) -> Run:
    """A replay with the cache, compared with the serial loop, and what proves it."""
    made = tl.replay(cls(**given), log, slices=slices, spark=False, **settings)
    plain = tl.run_serial(cls(**given), log, **settings)
    assert_same(plain, made, names=("serial", "with the cache"))
    assert (made.digest, made.state_digest, made.pending) == (plain.digest, plain.state_digest, plain.pending)
    assert made.certificate["fallback"] is None
    return made


Kept = Callable[[int, int, Path], Path]
"""Of a log of so many events, replayed in so many slices: gives its path. What the replay kept is in the test's cache."""


@pytest.fixture(scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    return {}


@pytest.fixture
def kept(_kept: dict[tuple[int, int], Path], tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The first replay is done once for all tests."""

    def copied(count: int, slices: int, tmp_path: Path) -> Path:
        place = _kept.get((count, slices))
        if place is None:
            place = _kept[count, slices] = tmp_path_factory.mktemp("kept")
            with written(place / "p", program=PROGRAM) as module:
                checked(module.Talk, log_of(module, place / "log", count), {}, slices)
            shutil.copytree(tmp_path / "cache", place / "cache")
        else:
            shutil.copytree(place / "cache", tmp_path / "cache", dirs_exist_ok=True)
        return place / "log"

    return copied


def test_an_edited_rule_starts_from_what_is_kept(tmp_path: Path) -> None:
    """States with all that windows, timers and dated writes need at the cuts, then what the last rule reads of them."""
    with written(tmp_path / "p", program=PROGRAM) as module:
        log = log_of(module, tmp_path / "log", 120)
        assert output_part(analyse(module.Talk)).reason == ""
        runs = [checked(module.Talk, log, {"limit": limit}) for limit in (3, 2, 1, 4)]
        assert [what(run) for run in runs] == ["", "states", ALL, ALL]
        assert [run.certificate["validated_slices"] for run in runs] == [3, 3, 0, 0]
        assert {run.pending["Gone"] > 0 and run.pending["later"] > 0 for run in runs} == {True}
        assert runs[2].verify().ok


KEYS = {
    "a window of the core": ("last(self.days)", "last(self.days + 1)"),
    "its parameter": ("days: int = 10", "days: int = 11"),
    "when a timer is due": ("after=11, key", "after=12, key"),
    "which timer it is": ("key=e.who)", "key=e.to)"),
    "when a dated write takes effect": ("at=self.now + 9", "at=self.now + 8"),
    "a delay's parameter": ("lag: int = 7", "lag: int = 6"),
    "a calendar": ("tl.DAY // 86_400_000_0", "tl.DAY // 43_200_000_0"),
    "how far a state's past goes": ("history=20", "history=30"),
    "another state is looked back on": ("self.late[e.to] +", "self.late.last(3)[e.to] +"),
    "another form of rows": ("self.peak.last(8)", "self.peak.ago(8)"),
    "what a timer's event has": ("    who: int\n\nclass Talk", "    who: int | None\n\nclass Talk"),
    "who issues dated writes": ("def count(self, e)", "def counted(self, e)"),
}
SAME = {
    "another length": ("self.sent.last(6)", "self.sent.last(9)"),
    "a longer one than any": ("self.peak.last(8)", "self.peak.last(80)"),
    "another view of the same rows": ("self.sent.ago(6)", "self.sent.last(2)"),
    "another time of the past": ("at=self.now - 3", "at=self.now - 4"),
    "a rule": ("> self.limit", ">= self.limit"),
    "another name": ("def flag", "def flagged"),
}


@pytest.mark.parametrize("name", [*KEYS, *SAME])
def test_what_an_edit_leaves(name: str, tmp_path: Path, kept: Kept) -> None:
    """An edit of what states, or what is kept of them, depend on finds nothing; any other finds it. Equal to the serial loop."""
    old, new = {**KEYS, **SAME}[name]
    assert PROGRAM.count(old) == 1
    log = kept(90, 3, tmp_path)
    with written(tmp_path / "q", program=PROGRAM.replace(old, new)) as module:
        assert what(checked(module.Talk, tl.Log.open(log), {}, 3)) == ("states" if name in SAME else "")


def test_how_far_the_clock_goes_on(tmp_path: Path) -> None:
    """What happens after the last event belongs to the states: another `until` finds nothing."""
    with written(tmp_path / "p", program=PROGRAM) as module:
        log = log_of(module, tmp_path / "log", 90)
        end = log.reader.ts_before(log.reader.seq_after(log.count))
        assert end is not None
        found = [checked(module.Talk, log, {}, 2, until=end + more) for more in (5, 5, 9, 9, 9)]
        assert [what(run) for run in found] == ["", "states", "", "states", ALL]
        assert what(checked(module.Talk, log, {}, 2)) == ""


FILES = ("~pending.arrow", "~writes.arrow", "net-sent.arrow", "present-last_text.arrow")


@pytest.mark.parametrize(("damage", "file"), some(product(["cut", "flip", "gone", "other"], FILES)))
def test_damaged_entries_are_done_again(damage: str, file: str, tmp_path: Path, kept: Kept) -> None:
    """A file that windows, timers and dated writes need: the run is what it was, and the next one finds a sound entry."""
    log = tl.Log.open(kept(90, 3, tmp_path))
    entries = tmp_path / "cache" / "entries"
    kinds = {
        p.name.split("-", 1)[1]: p for p in entries.rglob("0*.arrow") if p.parent.name in ("rows", "starts")
    }
    assert {*FILES, "ops-peak.arrow"} <= {*kinds}
    path, aside = kinds[file], kinds["ops-peak.arrow"].read_bytes()
    data = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-3])
    elif damage == "flip":
        path.write_bytes(bytes([*data[:-9], data[-9] ^ 1, *data[-8:]]))
    elif damage == "other":
        path.write_bytes(aside)
    with written(tmp_path / "p", program=PROGRAM) as module:
        assert what(checked(module.Talk, log, {}, slices=3)) == ""
        assert what(checked(module.Talk, log, {}, slices=3)) != ""


NOT_HOISTED = {
    "a tick": ("handler of @tl.every", """
    @tl.every(tl.DAY // 86_400_000_0)
    def told(self):
        self.emit(Loud(id=self.limit, score=self.late[1]))
"""),
    "a delay": ("handler of @tl.on(after=)", """
    @tl.on(Say, after=3)
    def told(self, e):
        self.emit(Loud(id=self.limit, score=self.late[e.who]))
"""),
    "a timer": ("Gone, which may be sent", """
    @tl.on(Gone)
    def told(self, g):
        self.emit(Loud(id=self.limit, score=self.late[g.who]))
"""),
    "a view between writes": ("between writes", """
    @tl.on(Say)
    def told(self, e):
        self.late[e.to] += self.sent.last(4)[e.who]
        self.sent[e.who] += 1
        self.emit(Loud(id=self.limit, score=self.sent.last(4)[e.who]))
        self.sent[e.who] -= 1
"""),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_HOISTED)
def test_outputs_at_other_times_start_from_the_states(name: str, tmp_path: Path) -> None:
    """What they read is no column beside the log; why is said."""
    why, text = NOT_HOISTED[name]
    with written(tmp_path / "p", program=HEAD + CORE + text) as module:
        assert why in output_part(analyse(module.Talk)).reason
        log = log_of(module, tmp_path / "log", 90)
        found = [what(checked(module.Talk, log, {"limit": limit}, 2)) for limit in (3, 2, 1)]
        assert found == ["", "states", "states"]


@pytest.mark.parametrize("kernel", ["python", "native"])
def test_a_sweep_equals_separate_replays(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first point finds the states; the others run the last rule on what it read of them. As Python also with dated writes,
    timers, delays and ticks."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    monkeypatch.setattr("timelapse.run.planning.usable_cores", lambda: 3)
    plain = """
    @tl.on(Say)
    def count(self, e):
        self.sent[e.who] += 1
        self.seen.add(e.to)

    @tl.on(Say)
    def flag(self, e):
        if self.sent.last(6)[e.who] > self.limit or e.who in self.seen.last(4):
            self.emit(Loud(id=e.id, score=self.sent.ago(5)[e.to]))
"""
    text = PROGRAM if kernel == "python" else HEAD + plain
    with written(tmp_path / "p", program=text) as module:
        log = log_of(module, tmp_path / "log", 120)
        found = tl.sweep(module.Talk, log, {"limit": [1, 2, 3, 4, 5]}, spark=False)
        assert [p.source for p in found.points] == ["replay", *["last rules"] * 4]
        for point in found.points:
            alone = tl.run_serial(module.Talk(**point.values), log)
            assert_same(alone, point.run, names=("serial", "a point"))
            assert (alone.digest, alone.state_digest, alone.pending) == (
                point.run.digest, point.run.state_digest, point.run.pending,
            )  # fmt: skip


def test_every_few_tokens_edited(tmp_path: Path) -> None:
    """After each edit the run over a warm cache equals the serial loop: result, or error."""
    found: list[str] = []
    with written(tmp_path / "p", program=PROGRAM) as module:
        log = log_of(module, tmp_path / "log", count=120)
        for _ in range(2):
            checked(module.Talk, log, {}, slices=3)
    core, rest = list(tokens(HEAD + CORE)), list(tokens(FLAG))
    edits = [text + FLAG for text in some(core, 12)] + [HEAD + CORE + text for text in some(rest, 4)]
    for number, text in enumerate(edits):
        try:
            with written(tmp_path / f"p{number}", program=text) as module:
                log = tl.Log.open(tmp_path / "log")
                try:
                    found.append(what(checked(module.Talk, log, {}, slices=3)))
                except HandlerError as error:
                    with pytest.raises(HandlerError) as caught:
                        tl.run_serial(module.Talk, log)
                    assert (caught.value.message, caught.value.seq) == (error.message, error.seq), text
        except (DefinitionError, SyntaxError, ImportError, TypeError, NameError, UsageError):
            continue  # not a program any more
    assert {"", ALL} <= {*found}
    assert len(found) > 5


class Endless(BaseException):
    """A program that does not end: an edit may take out what ends a loop."""


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Raise Endless where what is in the block takes more processor time than that. For the main thread."""

    def stop(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, stop)  # not the signal of pytest-timeout
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("seed", range(deep(10)))
def test_random_programs_that_are_edited(seed: int, tmp_path: Path) -> None:
    """Windows, dated writes, timers, delays and ticks: run, run again, edit some tokens one after the other."""
    rng = random.Random(f"edited {seed}")
    text = random_program(rng, further=seed % 2 > 0)
    text = sending(rng, text, later=True) if seed % 3 else text
    text = in_other_times(rng, text) if seed % 4 > 1 else text
    text = looking(rng, text, dated=(0.0, 0.4)[seed % 2])
    program = load_source(text)
    made = tl.Log.from_events(
        tmp_path / "log", random_events(program, rng, 60), spec_of(program).events, block=8
    )
    slices = rng.choice([2, 3, 5])
    edits = [text, text, *rng.sample(list(tokens(text)), 4)]
    for number, edited in enumerate(edits):
        try:
            cls = load_source(edited)
            with ended_after(2.0):  # one that ends takes a fraction of a second
                plain = tl.run_serial(cls, made)
        except (Exception, Endless):
            assert number > 1
            continue  # no program any more, or one that fails or does not end
        run = tl.replay(cls, made, slices=slices, spark=False)
        assert_same(plain, run, names=("serial", "with the cache"))
        assert (plain.digest, plain.state_digest, plain.pending) == (
            run.digest,
            run.state_digest,
            run.pending,
        )
        fallback = run.certificate["fallback"]
        assert fallback is None or not fallback["is_bug"], edited
        if number == 1 and run.certificate["mode"] == "staged":
            assert what(run) or refusal(analyse(cls))
