"""What fails in Timelapse while a handler uses a state is not told as the handler's own error, and no event is taken out for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import timelapse as tl
from timelapse.errors import HandlerError
from timelapse.run import Run, replay, run_serial
from timelapse.tables.table import read_table


class Hit(tl.Event):
    who: int


class Broken(tl.Program):
    """Its state's file is gone, as far as the handler can tell."""

    seen: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.seen[e.who] += 1
        if e.who == 2:
            read_table(Path("/not/there.arrow"))


EVENTS: list[tl.Event] = [Hit(who=n, ts=n) for n in range(4)]


def _serial() -> Run:
    return run_serial(Broken, EVENTS, quarantine=True)


def _replay() -> Run:
    return replay(Broken, EVENTS, slices=2, spark=False, allow_impure=True, quarantine=True)


@pytest.mark.parametrize("kernel", ["interpreted", "python", "native"])
@pytest.mark.parametrize("run", [_serial, _replay])
def test_the_two_are_told_apart(run: object, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    assert callable(run)
    with pytest.raises(HandlerError) as raised:
        run()
    assert raised.value.code == "TL516"
    assert raised.value.seq == 2
    assert "Timelapse failed where the handler uses a state: FileNotFoundError" in str(raised.value)
    assert not raised.value.reproducible
