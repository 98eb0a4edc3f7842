"""A live run that another process runs is read here, as of its last committed epoch, whatever becomes of it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.patience import LONG, until
from tests.streaming.test_asking import Adding, Doubling, Put
from tests.streaming.test_live import FAST
from tests.streaming.test_serve import Client
from timelapse.errors import RunError, UsageError
from timelapse.streaming import following
from timelapse.streaming.following import Following, follow
from timelapse.streaming.kernel import OpenKernel
from timelapse.streaming.reading import Reading
from timelapse.streaming.recovery import Recovery
from timelapse.streaming.serve.app import Server

RULES = """
import timelapse as tl


class Hit(tl.Event):
    who: int
    size: int


class Seen(tl.Record):
    who: int
    n: int


class Watch(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if e.who == 13:
            raise ValueError("thirteen")
        self.emit(Seen(who=e.who, n=self.n[e.who]))
"""


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def up_to(run: Following, epoch: int) -> None:
    run.until(lambda e: e.number >= epoch)


def files(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*"))


@pytest.mark.parametrize("late", ["side", "correct"])
@pytest.mark.parametrize("seed", range(deep(3)))
def test_it_has_what_the_run_has(tmp_path: Path, seed: int, late: str) -> None:
    """Begun at some epoch; late rows are corrected meanwhile; a moment is one epoch's."""
    rng, push, out = random.Random(seed), tl.Push(), tmp_path / "out"
    options: dict[str, Any] = {**FAST, "late": late, "correct_every": "50ms", "checkpoint": "100ms"}
    with tl.live(Adding, {Put: push}, out, idle=None, **options) as run:
        at, followed = 1_000, None
        for turn in range(30):
            rows = [
                Put(who=rng.randrange(4), size=rng.randrange(9), ts=at + rng.randrange(40)) for _ in range(9)
            ]
            if turn % 5 == 4:  # late
                rows.append(Put(who=1, size=100, ts=at - 60))
            push.send(sorted(rows, key=lambda e: e.ts))
            at += 40
            if turn == 10:
                followed = follow(out)
            if followed is not None:
                last = run.until(lambda e, rows=turn: sum(p.rows for p in e.partitions) >= 9 * rows)  # type: ignore[misc]
                up_to(followed, last.number)
                found, epoch = followed.look({"total": [0, 1, 2, 3]})
                assert epoch is not None
                if (mine := run.look({"total": [0, 1, 2, 3]}))[1] is not None and mine[
                    1
                ].number == epoch.number:
                    assert mine == (found, epoch)
        push.close()
        run.wait()
        assert followed is not None
        last_epoch = run.last
        assert last_epoch is not None
        up_to(followed, last_epoch.number)
        assert followed.state("total") == run.state("total")
        assert followed.outputs("Sum").equals(run.outputs("Sum"))
        assert followed.health.state == "following"
        followed.stop()
        assert followed.health.state == "stopped"
    assert Reading.open(out).parity().same


def test_a_correction_is_there_once_it_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for its epoch reads it, however long it takes to be followed."""
    begin = Recovery.begin

    def slowly(this: Any, *args: Any, **given: Any) -> Any:
        time.sleep(0.1)
        return begin(this, *args, **given)

    monkeypatch.setattr(Recovery, "begin", slowly)
    push, out = tl.Push(), tmp_path / "out"
    with (
        tl.live(Adding, {Put: push}, out, idle=None, **FAST, late="correct", correct_every="10ms") as run,
        follow(out) as found,
    ):
        push.send([Put(who=1, size=1, ts=1_000 + n) for n in range(9)])
        run.until(lambda e: e.end_seq >= 8)
        push.send([Put(who=1, size=100, ts=990)])
        last = run.until(lambda e: e.version > 0)
        up_to(found, last.number)
        assert found.get("total", 1) == run.get("total", 1) > 100


def test_it_changes_nothing_and_has_no_say(tmp_path: Path) -> None:
    push, out = tl.Push(), tmp_path / "out"
    with tl.live(Adding, {Put: push}, out, idle=None, **FAST) as run:
        push.send([Put(who=1, size=n, ts=1_000 + n) for n in range(9)])
        last = run.until(lambda e: e.end_seq >= 8)
        run.stop()
    before = files(out)
    with follow(out) as found:
        up_to(found, last.number)
        assert found.get("total", 1) == sum(range(8))
        for refused in (
            found.pause,
            found.resume,
            lambda: found.keep_out(),
            lambda: found.filter(),
            lambda: found.follow(print),
        ):
            with pytest.raises(UsageError, match="only reads the live run"):
                refused()
    assert files(out) == before
    with pytest.raises(RunError, match="not a live run"):
        follow(tmp_path / "nothing")


def test_it_goes_on_with_the_next_version_and_with_events_taken_out(tmp_path: Path) -> None:
    """The program is changed, with a state besides; then one fails, and its event is taken out."""
    out, data, rules = tmp_path / "out", tmp_path / "in", tmp_path / "rules.py"
    data.mkdir()

    def live(number: int, who: int, *more: str) -> None:
        """In a process of its own, as an operator would."""
        at = 1_000 * number
        rows = [{"ts": at + n, "who": who if n == 1 else n, "size": n} for n in range(4)]
        (data / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [
            sys.executable,
            "-m",
            "timelapse.cli.main",
            "live",
            f"{rules}:Watch",
            str(out),
            f"Hit={data}",
        ]
        done = subprocess.run(
            [*command, "--once", "--ahead", "any", *more], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    rules.write_text(RULES)
    live(1, 7)
    with follow(out) as found:
        up_to(found, 1)
        assert found.get("n", 7) == 1
        rules.write_text(RULES.replace("n: tl.Counter[int]\n", "n: tl.Counter[int]\n    m: tl.Counter[int]\n").replace(
            "        if", "        self.m[e.who] += 1\n        if"
        ))  # fmt: skip
        live(2, 8, "--evolve")
        found.until(lambda e: e.end_seq >= 8)
        assert (found.get("n", 8), found.get("m", 8), found.get("n", 7)) == (1, 1, 1)
        live(3, 13, "--quarantine")
        last = found.until(lambda e: e.end_seq >= 12)
        assert last.quarantined == 1
        assert (found.get("m", 2), found.get("m", 13)) == (2, 0)


def test_reads_while_the_program_changes(tmp_path: Path) -> None:
    """A read has the declaration and the states of one program, whichever is shown: keys are of another type in the next."""
    out, data, rules = tmp_path / "out", tmp_path / "in", tmp_path / "rules.py"
    data.mkdir()
    rules.write_text(RULES)
    (data / "1.jsonl").write_text(json.dumps({"ts": 1_000, "who": 7, "size": 5}) + "\n")

    def live(*more: str) -> None:
        command = [sys.executable, "-m", "timelapse.cli.main", "live", f"{rules}:Watch", str(out)]
        given = [f"Hit={data}", "--once", "--ahead", "any", *more]
        done = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    live()
    closed: list[OpenKernel] = []
    close = OpenKernel.close
    with follow(out) as found, pytest.MonkeyPatch.context() as patch:
        up_to(found, 1)
        first = found._loop.head
        assert first is not None

        def closing(this: OpenKernel) -> None:
            closed.append(this)
            close(this)

        patch.setattr(OpenKernel, "close", closing)
        before, meanwhile = first.kernel, list[Any]()

        def key(spec: Any) -> Any:
            """Another head takes the place of the first one while a key is made for it."""
            if not meanwhile:
                text = RULES.replace("n: tl.Counter[int]", "n: tl.Counter[str]").replace(
                    "self.n[e.who]", "self.n[str(e.who)]"
                )
                rules.write_text(text)
                live("--evolve", "--drop-state", "n")
                found.until(lambda e: e.change is not None)
                until(lambda: closed, found)
            meanwhile.append(spec.key.text)
            return "7" if spec.key.text == "str" else 7

        assert found.states.read("n", key)[0] == 0
        assert meanwhile == ["int", "str"]
        assert closed == [before], "who read it has gone on to the next one"
        assert found.get("n", "7") == 0


def test_what_the_run_works_on_is_left_to_it(tmp_path: Path) -> None:
    """The process that runs it may process epochs behind a checkpoint as slices, whose files lie with the run."""
    push, out = tl.Push(), tmp_path / "out"
    with tl.live(Adding, {Put: push}, out, idle=None, **FAST) as run:
        push.send([Put(who=1, size=n, ts=1_000 + n) for n in range(9)])
        last = run.until(lambda e: e.end_seq >= 8)
        staged = out / "staged" / f"{last.number:020d}-now"
        staged.mkdir(parents=True)
        with follow(out) as found:
            up_to(found, last.number)
        assert staged.exists()


@pytest.mark.parametrize("rows", [4, 9, 14])
def test_another_run_in_its_place(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run takes the directory between two looks: with fewer epochs, about as many or more."""
    out, looks, look = tmp_path / "out", threading.Lock(), following._Loop._newest

    def looking(this: Any) -> Any:
        with looks:
            return look(this)

    monkeypatch.setattr(following._Loop, "_newest", looking)

    def live(who: int, count: int) -> None:
        push = tl.Push()
        with tl.live(Adding, {Put: push}, out, idle=None, **FAST) as run:
            for n in range(count):
                push.send([Put(who=who, size=1, ts=1_000 + n)])
                run.until(lambda e, n=n: sum(p.rows for p in e.partitions) > n)  # type: ignore[misc]
            run.stop()

    live(1, 9)
    with follow(out) as found:
        up_to(found, 9)
        assert found.get("total", 1) > 0
        with looks:
            shown = found.last
            out.rename(tmp_path / "before")
            live(2, rows)
            last = Reading.open(out).last
        assert last is not None
        assert shown is not None
        if last.number != shown.number:  # else it is seen at the next epoch
            found.until(lambda e: e.run == last.run and e.number >= last.number)
            assert (found.get("total", 1), found.get("total", 2)) == (0, last.end_seq)


def test_a_run_that_is_gone_is_told(tmp_path: Path) -> None:
    push, out = tl.Push(), tmp_path / "out"
    with tl.live(Adding, {Put: push}, out, idle=None, **FAST) as run:
        push.send([Put(who=1, size=n, ts=1_000 + n) for n in range(9)])
        run.until(lambda e: e.end_seq >= 8)
        run.stop()
    found = follow(out)
    found.until(lambda e: e.end_seq >= 8)
    out.rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="not a live run"):
        found.wait(LONG)


def test_the_command(tmp_path: Path) -> None:
    """Beside `timelapse live`, which is killed and begun again; its own say is none."""
    out, data, rules = tmp_path / "out", tmp_path / "in", tmp_path / "rules.py"
    rules.write_text(RULES)
    data.mkdir()
    sent = 0

    def send() -> None:
        nonlocal sent
        rows = [{"ts": 1_000 + n, "who": n % 5, "size": 1} for n in range(sent, sent + 10)]
        (data / ".new").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (data / ".new").rename(data / f"{sent:04}.jsonl")
        sent += 10

    def begun(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "timelapse.cli.main", *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    run = [
        "live",
        f"{rules}:Watch",
        str(out),
        f"Hit={data}",
        "--ahead",
        "any",
        "--trigger",
        "20ms",
        "--idle",
        "never",
    ]
    send()
    live = begun(*run)
    serving = None
    try:
        until(lambda: (out / "live.json").exists(), live)
        serving = begun("serve", str(out), "--listen", "0")
        assert serving.stderr is not None
        said = [serving.stderr.readline()]
        while said[-1] and not said[-1].startswith("http://"):  # a slow machine tells what it is doing first
            said.append(serving.stderr.readline())
        line = said[-1]
        assert line, said

        class Given:
            address, tokens = line.split()[0], json.loads((out / "tokens.json").read_text())

        client = Client(Given())  # type: ignore[arg-type]

        def rows() -> int:
            return int(client.ask("/api/status")[1].get("rows", 0))

        until(lambda: rows() >= 9, live, serving)
        assert client.ask("/api/state/n?key=0")[1]["value"] == 2
        assert client.ask("/health", right="") == (200, {"state": "following", "ok": True})
        live.send_signal(signal.SIGKILL)
        live.communicate()
        assert client.ask("/api/state/n?key=0")[1]["value"] == 2
        send()
        live = begun(*run)
        until(lambda: rows() >= 19, live, serving)
        assert client.ask("/api/state/n?key=0")[1]["value"] == 4
        for path in ("/api/pause", "/api/stop", "/api/filters"):
            body = b'["Hit: who == 1"]' if path == "/api/filters" else b""
            code, told = client.ask(path, body, right="operate")
            assert (code, "only reads the live run" in told["error"]) == (400, True)
        assert client.ask("/push/Hit", b"", right="push")[0] == 409
        live.terminate()
        live.communicate(timeout=LONG)
        serving.terminate()
        _, told = serving.communicate(timeout=LONG)
        assert serving.returncode == 0, told
    finally:
        for process in (live, serving):
            if process is not None and process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.communicate()
    assert Reading.open(out).parity().same


def test_a_server_of_one_that_follows(tmp_path: Path) -> None:
    """In one process, for the routes that wait."""
    push, out = tl.Push(), tmp_path / "out"
    with tl.live(Doubling, {Put: push}, out, idle=None, **FAST) as run:
        push.send([Put(who=1, size=n, ts=1_000 + n) for n in range(9)])
        last = run.until(lambda e: e.end_seq >= 8)
        with follow(out) as found:
            server = Server(found, "127.0.0.1:0")
            up_to(found, last.number)
            client = Client(server)
            assert client.ask("/api/state/total?limit=5")[1]["rows"] == [{"key": 1, "value": 56}]
            assert 'timelapse_state{state="following"} 1' in client.ask("/metrics")[1]
            server.close()
