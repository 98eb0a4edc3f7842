"""A standby follows, serves reads, and takes over: what was committed goes on, whoever commits it."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import timelapse as tl
from tests.depth import deep
from tests.patience import LONG
from tests.streaming.simulator import Disk, SimulatedPlace
from tests.streaming.test_head import STREAMS, Row, Timed, World, check, declare, opened
from tests.streaming.test_head import Plain as HeadPlain
from tests.streaming.test_live import FAST, Hit, Plain, hits, lines, put
from timelapse.errors import SourceError, StorageError
from timelapse.program.program import as_program
from timelapse.progress import Silent
from timelapse.run import run_serial
from timelapse.streaming import lease
from timelapse.streaming.chain import Overtaken
from timelapse.streaming.checkpoints import compact, load
from timelapse.streaming.collecting import collect
from timelapse.streaming.head import Head
from timelapse.streaming.place import live_place
from timelapse.streaming.reading import Reading
from timelapse.streaming.rules import Rules
from timelapse.streaming.saving import Saver
from timelapse.streaming.sources.files import Files


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


@pytest.mark.parametrize("program", [HeadPlain, Timed])
@pytest.mark.parametrize("seed", range(deep(45)))
def test_heads_that_follow_each_other(seed: int, program: type[tl.Program]) -> None:
    """Two heads on one disk: now one commits, now the other, which has followed."""
    rng = random.Random(seed)
    rules = Rules(lateness=rng.choice([0, 5]))
    world, disk = World.of(rng, 40, 8), Disk()
    place: Any = SimulatedPlace(disk, rng)
    heads = [opened(place, as_program(program), rules, []) for _ in range(2)]
    for _ in range(2000):
        head = heads[rng.randrange(2)]
        head.follow()
        if not head.partitions:
            declare(head, world)
        positions = {at: p.position for at, p in head.partitions.items()}
        ended = world.done(positions)
        head.epoch(world.batches(positions), 1_000, ended=ended)
        if rng.random() < 0.2:
            head.checkpoint()
        if ended:
            break
    check(disk, world, as_program(program), rules)


@pytest.mark.parametrize("seed", range(deep(15)))
def test_who_takes_over_goes_on_from_a_checkpoint_that_is_there(seed: int) -> None:
    """A standby has followed for long, and the checkpoint that it began from was removed: what it writes can be gone on from."""
    rng = random.Random(seed)
    rules, world = Rules(), World(rng)
    place: Any = SimulatedPlace(Disk(), rng)
    for stream in STREAMS:
        rows = [Row(stream.number, "0", n, 1_000 + n, n % 4, n % 5, False) for n in range(1_000)]
        world.rows[stream.number, "0"] = rows

    def saved(head: Head) -> str:
        """A checkpoint after further rows."""
        if not head.partitions:
            declare(head, world)
        before = 0 if head.last is None else head.last.end_seq
        while head.last is None or head.last.end_seq == before:
            head.epoch(world.batches({at: p.position for at, p in head.partitions.items()}), 1_000)
        name = head.checkpoint()
        assert name is not None
        return name

    first = opened(place, as_program(HeadPlain), rules, [])
    begun = saved(first)
    standby = opened(place, as_program(HeadPlain), rules, [])
    for _ in range(3):
        saved(first)
        compact(place, as_program(HeadPlain))
    collect(place, corrected=False)
    assert not place.exists(begun)
    standby.follow()
    saved(standby)
    told: list[str] = []
    again = opened(place, as_program(HeadPlain), rules, told)
    assert (told, again.on.rerun) == ([], 0)
    assert compact(place, as_program(HeadPlain)) is not None


@pytest.mark.parametrize("known", [True, False])
def test_what_a_checkpoint_stands_on_stays_until_it_is_written(known: bool) -> None:
    """A correction has gone on from a checkpoint of long ago, and others are removed while the next one is being written. Where another process
    removes it all the same, what was written counts for nothing, and the next one has it."""
    rng = random.Random(1)
    rules, world = Rules(), World.of(rng, 400, 0)
    place: Any = SimulatedPlace(Disk(), rng)
    first = opened(place, as_program(HeadPlain), rules, [])
    declare(first, world)

    def goes_on() -> None:
        before = 0 if first.last is None else first.last.end_seq
        while first.last is None or first.last.end_seq == before:
            first.epoch(world.batches({at: p.position for at, p in first.partitions.items()}), 1_000)

    goes_on()
    assert first.checkpoint() is not None
    behind = opened(place, as_program(HeadPlain), rules, [])
    for _ in range(3):
        goes_on()
        assert first.checkpoint() is not None
        compact(place, as_program(HeadPlain))
    behind.follow()
    saving = behind.saving()
    assert saving is not None
    assert place.exists(saving.parent)
    collect(place, corrected=False, needed=lambda: saving.parent if known else "")
    assert place.exists(saving.parent) == known
    if known:
        name = saving.now()
    else:
        with pytest.raises(StorageError, match="is gone"):
            saving.now()
        name = behind.checkpoint() or behind.on.checkpoint  # of this epoch there may be one
    found = load(place, name)
    assert found.about.epoch == (0 if first.last is None else first.last.number)


def test_no_checkpoint_is_written_of_an_epoch_that_has_one() -> None:
    """However long no rows come, there are no more files; also where a process goes on that stands there."""
    rng = random.Random(1)
    world, disk = World.of(rng, 40, 0), Disk()
    place: Any = SimulatedPlace(disk, rng)
    head = opened(place, as_program(HeadPlain), Rules(), [])
    declare(head, world)
    for _ in range(3):
        while head.epoch(world.batches({at: p.position for at, p in head.partitions.items()}), 1_000) is None:
            pass
    assert head.checkpoint() is not None
    assert head.checkpoint() is None
    assert head.saving() is None
    again = opened(place, as_program(HeadPlain), Rules(), [])
    assert again.checkpoint() is None
    assert again.basis()().complete == again.complete
    while again.epoch(world.batches({at: p.position for at, p in again.partitions.items()}), 1_000) is None:
        pass
    assert again.checkpoint() is not None
    assert again.checkpoint() is None


class OneFile:
    """A place as far as a lease needs it."""

    data: bytes | None = None

    def hint(self, name: str, data: bytes) -> None:
        self.data = data

    def read(self, name: str) -> bytes:
        if self.data is None:
            raise FileNotFoundError(name)
        return self.data


def test_who_has_it() -> None:
    """Whoever renews the lease. One that stands still is nobody's, and so is that of a process that is gone."""
    place: Any = OneFile()
    here, waits = socket.gethostname(), 0

    def other(told: lease.Lease | None, renewed: bool = False) -> lease.Lease | None:
        nonlocal waits
        waits = 0

        def wait(seconds: float) -> bool:
            nonlocal waits
            waits += 1
            if renewed and waits == 2 and told is not None:
                place.hint(
                    lease.NAME, msgspec.json.encode(msgspec.structs.replace(told, count=told.count + 1))
                )
            time.sleep(seconds / 10)
            return False

        if told is not None:
            place.hint(lease.NAME, msgspec.json.encode(told))
        return lease.other(place, wait)

    assert other(None) is None
    assert (other(lease.Lease("a", "elsewhere", 7, 3, ended=True)), waits) == (None, 0)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert (other(lease.Lease("a", here, gone.pid, 3)), waits) == (None, 0)
    assert (other(lease.Lease("a", here, os.getpid(), 3)), waits) == (None, 0)
    with lease.running("a", lambda: False):
        assert other(lease.Lease("a", here, os.getpid(), 3)) is not None
    for host, process in (("elsewhere", 7), (here, os.getppid())):
        found = other(lease.Lease("a", host, process, 3), renewed=True)
        assert (found and found.process, waits) == (process, 2)
        assert other(lease.Lease("a", host, process, 9)) is None
        assert waits > 2


def test_time_in_which_nobody_looked_is_none_in_which_nobody_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a machine stands still, both stand still: whoever went on first took the run over."""
    place: Any = OneFile()
    now = [100.0]
    monkeypatch.setattr("timelapse.streaming.lease.time.monotonic", lambda: now[0])
    place.hint(lease.NAME, msgspec.json.encode(lease.Lease("a", "elsewhere", 7, 3)))
    watch = lease.Watch(place, 1.0)
    assert watch.alive()
    now[0] += 60
    assert watch.alive()
    place.hint(lease.NAME, msgspec.json.encode(lease.Lease("a", "elsewhere", 7, 4)))
    assert watch.alive()
    looks = 0
    while watch.alive():
        now[0] += 0.2
        looks += 1
    assert looks == 6


def first_process(tmp_path: Path, folder: Path, out: Path) -> subprocess.Popen[str]:
    """A process that runs `Plain`, and has committed a hundred rows."""
    folder.mkdir()
    script = tmp_path / "go.py"
    script.write_text(
        textwrap.dedent(f"""
        import timelapse as tl
        from tests.streaming.test_live import Hit, Plain

        with tl.live(Plain, {{Hit: {str(folder)!r}}}, {str(out)!r}, trigger="5ms", ahead=None) as run:
            run.until(lambda e: e.end_seq >= 99)
            print("begun", flush=True)
            run.wait()
        """)
    )
    put(folder / "0.jsonl", lines(hits(100)))
    put(folder / "1.jsonl", lines(hits(50, 100)))
    first = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "begun\n"
    return first


def killed(first: subprocess.Popen[str]) -> None:
    assert first.stdout is not None
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()


def test_a_second_process_does_not_take_a_run_from_the_first(tmp_path: Path) -> None:
    """It was most likely begun by mistake: who runs it is told, and goes on. Once that is killed, the next one begins."""
    folder, out = tmp_path / "hits", tmp_path / "out"
    first = first_process(tmp_path, folder, out)
    try:
        second = tl.live(Plain, {Hit: folder}, out, once=True, **FAST)
        with pytest.raises(Overtaken, match=f"process {first.pid} on .* runs this live run") as error:
            second.wait(LONG)
        assert error.value.code == "TL941"
        assert "--standby" in str(error.value.hint)
        assert first.poll() is None
        with tl.live(Plain, {Hit: folder}, out, standby="60s", **FAST) as run:
            put(folder / "2.jsonl", lines(hits(50, 150)))
            run.until(lambda e: e.end_seq >= 199)
            assert run.health.state == "standby"
    finally:
        killed(first)
    with tl.live(Plain, {Hit: folder}, out, once=True, **FAST) as run:
        run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(200)).digest


def test_it_takes_over_when_the_other_is_killed(tmp_path: Path) -> None:
    folder, out = tmp_path / "hits", tmp_path / "out"
    first = first_process(tmp_path, folder, out)
    # Longer than a busy machine keeps the other process from its processor.
    with tl.live(Plain, {Hit: folder}, out, standby="3s", **FAST) as run:
        run.until(lambda e: e.end_seq >= 149)
        assert run.health.state == "standby"
        assert run.get("n", 1) is not None
        put(folder / "2.jsonl", lines(hits(50, 150)))
        run.until(lambda e: e.end_seq >= 199)
        killed(first)
        put(folder / "3.jsonl", lines(hits(50, 200)))
        run.until(lambda e: e.end_seq >= 249)
        assert run.health.state == "running"
    with tl.live(Plain, {Hit: folder}, out, once=True, **FAST) as run:
        run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(250)).digest
    assert Reading.open(out).parity().same


def test_it_takes_over_at_once_when_the_other_has_ended(tmp_path: Path) -> None:
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    put(folder / "0.jsonl", lines(hits(100)))
    with tl.live(Plain, {Hit: folder}, out, once=True, **FAST) as run:
        run.wait(LONG)
    put(folder / "1.jsonl", lines(hits(100, 100)))
    with tl.live(Plain, {Hit: folder}, out, once=True, standby="60s", **FAST) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(200)).digest


@pytest.mark.parametrize("standby", ["60s", None])
def test_who_takes_over_waits_for_a_source_that_is_away(
    standby: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with an error, and then nobody ran the run. A process that users begin says so at once."""
    out, folder, told = tmp_path / "out", tmp_path / "in", list[str]()
    folder.mkdir()
    put(folder / "0.jsonl", lines(hits(50)))
    with tl.live(Plain, {Hit: folder}, out, once=True, **FAST) as run:
        run.wait(LONG)
    begin, away = Files.start, [True, True, True]

    def start(self: Files, *args: Any) -> None:
        if away:
            away.pop()
            raise ConnectionError("nobody answers")
        begin(self, *args)

    class Heard(Silent):
        def note(self, text: str) -> None:
            told.append(text)

    monkeypatch.setattr(Files, "start", start)
    put(folder / "1.jsonl", lines(hits(10, 50)))
    with tl.live(Plain, {Hit: folder}, out, once=True, standby=standby, progress=Heard(), **FAST) as run:
        if standby is None:
            with pytest.raises(SourceError, match="nobody answers"):
                run.wait(LONG)
            return
        run.wait(LONG)
    assert not away
    assert "Hit does not answer, and is asked again: nobody answers" in told
    assert run.health.problem == ""
    assert run.digest == run_serial(Plain, hits(60)).digest


def test_a_run_of_this_process_that_was_asked_to_end_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`end` does not wait; who begins the run again at once was told that this very process runs it."""
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    put(folder / "1.jsonl", lines(hits(50)))
    asked = threading.Event()
    last = Saver.last

    def later(saver: Saver, *given: Any) -> None:
        assert asked.wait(LONG)
        last(saver, *given)

    monkeypatch.setattr(Saver, "last", later)
    first = tl.live(Plain, {Hit: folder}, out, **FAST)
    first.until(lambda e: e.end_seq >= 49)
    with pytest.raises(Overtaken):
        tl.live(Plain, {Hit: folder}, out, once=True, **FAST).wait(LONG)
    first.end()
    again = tl.live(Plain, {Hit: folder}, out, once=True, **FAST)
    time.sleep(0.2)  # a run that is refused is refused meanwhile
    assert again.health.state == "starting"
    asked.set()
    assert again.wait(LONG)
    assert first.health.state == "stopped"


@pytest.mark.parametrize("here", [False, True])
def test_who_is_ended_while_it_asks_leaves_the_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """It began nothing. Its last word was that the run is nobody's, so that a standby took over beside the process that has it."""
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    with tl.live(Plain, {Hit: folder}, out, **FAST) as run:
        run.stop()
    asking = threading.Event()
    read = lease._read_here

    def asked(place: Any) -> lease.Lease | None:
        asking.set()
        return read(place)

    monkeypatch.setattr(lease, "_read_here", asked)
    place = live_place(out)
    host, process = (socket.gethostname(), os.getpid()) if here else ("elsewhere", 7)
    place.hint(lease.NAME, msgspec.json.encode(lease.Lease("a", host, process, 3)))
    ending = threading.Event()
    with lease.running("a", lambda: ending.wait(LONG)):
        second = tl.live(Plain, {Hit: folder}, out, **FAST)
        assert asking.wait(LONG)
        second.end()
        ending.set()
        assert second.wait(LONG)
    assert second.health.state == "stopped"
    assert lease.read(place) == lease.Lease("a", host, process, 3)
