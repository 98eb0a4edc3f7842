"""Looking into a run says what it is doing, and how long that will take."""

from __future__ import annotations

from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.trace.test_few import Hours, Paid, payments
from tests.trace.ways import by_the_loop
from timelapse.cli import progress_view
from timelapse.kernels.walk import counted
from timelapse.progress import Silent
from timelapse.run import replay
from timelapse.trace import focus, telling, timed
from timelapse.trace.knowledge import Uncompiled


class Shops(tl.Program):
    """Nothing of it reaches into other times."""

    paid: tl.Counter[int]

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        self.paid[e.who] += e.amount


class Listening(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.far = 0

    def stage(self, name: str, total: int) -> None:
        self.said.append(f"{name} {total}")
        self.far = 0

    def advance(self, name: str, done: int, total: int) -> None:
        assert self.far <= done <= total
        self.far = done

    def note(self, text: str) -> None:
        self.said.append(text)


def test_how_long_it_takes_is_said_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """From what the first events took, without what came before them; nothing is said of what is over at once."""
    now = 0.0
    monkeypatch.setattr("timelapse.trace.telling.time.monotonic", lambda: now)
    heard = Listening()
    with telling.going(heard, "x", 1000, slowly="by the loop") as tick:
        now = 7.0  # a first batch is decoded
        tick(1)
        assert heard.said == ["x 1000"]
        now = 7.5
        tick(9)
        assert heard.said[1:] == [
            "by the loop: about 55 s for up to 1,000 events, each time they are gone through"
        ]
        now = 20.0
        tick(500)
    assert len(heard.said) == 2
    assert heard.far == 510
    with telling.going(heard, "y", 100, slowly="by the loop") as tick:
        tick(1)
        now += 0.5
        tick(98)
    assert heard.said[2:] == ["y 100"]


def test_it_is_said_how_long_a_slice_takes_that_runs_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled it takes little, so nothing is said."""
    now = 0.0

    def later() -> float:
        nonlocal now
        now += 0.5
        return now

    monkeypatch.setattr("timelapse.trace.telling.time.monotonic", later)
    monkeypatch.setattr("timelapse.kernels.walk._TOLD", 10)
    monkeypatch.setattr(focus, "MOST", -1)
    run = replay(Shops, payments(3, 160), spark=False)
    heard = Listening()
    run.why_not(150, progress=heard)
    assert heard.said[0] == "through slice 0 151"
    assert heard.said[1].startswith(
        "the slice is gone through as Python, for the program does not run compiled: about "
    )


def test_the_serial_loop_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time that it goes through the log."""
    run = replay(Hours, payments(3, 160), spark=False)
    monkeypatch.setattr("timelapse.kernels.walk._TOLD", 10)
    by_the_loop(monkeypatch)
    heard = Listening()
    run.why_not(150, progress=heard)
    assert heard.said == ["the serial loop 151"] * 2  # what comes after the event is not gone through
    heard = Listening()
    run.why_not(3, progress=heard)
    assert heard.said == ["the serial loop 4"] * 2
    heard = Listening()
    run.history("by_hour", (1, 2), progress=heard)
    assert heard.said == ["the serial loop 160"]
    assert heard.far == 160


def test_a_command_says_that_it_is_at_work(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """After a moment, on stderr; a quick one says nothing."""
    monkeypatch.chdir(str(tmp_path))
    text = (
        "import timelapse as tl\n\n\nclass E(tl.Event):\n    k: int\n\n\nclass P(tl.Program):\n    n: tl.Counter[int]\n\n"
        "    @tl.on(E)\n    def f(self, e):\n        self.n[e.k] += 1\n"
    )
    with open("p.py", "w") as file:
        file.write(text)
    from timelapse.program.load import load_events

    event: Any = load_events("p.py")["E"]
    tl.Log.from_events("log", [event(k=1, ts=n) for n in range(5)], [event])
    assert cli("replay", "p.py:P", "log", "--out", "run", "--local").code == 0
    assert "looking into the run" not in cli("why-not", "run", "3").err
    monkeypatch.setattr(progress_view, "_PATIENCE", 0.0)
    monkeypatch.setattr("timelapse.trace.why_not", _slowly)
    shown = cli("why-not", "run", "3")
    assert "looking into the run" in shown.err


def _slowly(*_: object, **__: object) -> None:
    import time

    from timelapse.errors import RunError

    time.sleep(0.3)
    raise RunError("no", code="TL606")


def test_slow_events_are_told_from_the_first_on() -> None:
    """Else nothing would be said of how long it takes before a thousand of them are done."""
    told: list[int] = []
    seen = 0
    for seen, _ in enumerate(
        counted((Paid(who=n, shop=1, amount=1, ts=n) for n in range(3000)), told.append), 1
    ):
        assert seen // 2 <= sum(told) <= seen or seen > 1024
    assert told[:4] == [1, 1, 2, 4]
    assert sum(told) == 2048
    assert seen == 3000


class EveryKey(tl.Program):
    """A tick that reads all keys."""

    paid: tl.Counter[int]

    @tl.on(Paid)
    def pay(self, e: Paid) -> None:
        self.paid[e.who] += e.amount

    @tl.every(tl.SECOND)
    def look(self) -> None:
        for who, paid in self.paid.items():
            if paid > 3:
                del self.paid[who]


def test_why_nothing_quicker_tells_is_no_failure_of_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events that matter alone cannot do such a tick: that is said, not that a handler failed."""
    run = replay(
        EveryKey, [Paid(who=n % 5, shop=1, amount=1, ts=n * tl.SECOND // 4) for n in range(60)], spark=False
    )
    whys: list[str] = []
    plain = timed.All.__init__

    def heard(
        self: timed.All, run: tl.Run, progress: Silent | None = None, why: str = "", *, end: int | None = None
    ) -> None:
        whys.append(why)
        plain(self, run, progress, why, end=end)

    monkeypatch.setattr(timed.All, "__init__", heard)
    run.why_not(50)
    assert whys
    assert all(why.endswith("; for so few events machine code is not worth loading") for why in whys)
    whys.clear()
    monkeypatch.setattr("timelapse.trace.ways.Through", _no_way)
    run.why_not(50)
    assert whys == [why for why in whys if "paid" in why and "fail" not in why and "TL" not in why]
    assert whys
    assert all(
        why.endswith("; ticks are in the way") for why in whys
    )  # and not that it does not run compiled


def _no_way(*_: object) -> None:
    raise Uncompiled("ticks are in the way")
