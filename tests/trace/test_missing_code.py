"""Questions while machine code is missing: what they go through as Python is bounded."""

from __future__ import annotations

import pytest

from tests.native.fuzz.emulate import emulated
from tests.trace.programs import Antispam, Friendship, Message
from tests.trace.test_event import messages
from timelapse.kernels import choose
from timelapse.kernels.native import build
from timelapse.kernels.walk import Moment
from timelapse.log import MemoryLog
from timelapse.run import replay
from timelapse.trace.moments import Past


def test_the_compiler_is_waited_for_once_much_ran_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that goes the same way again and again would else take as many times as long."""
    run = replay(Antispam, MemoryLog(messages(120, seed=2), [Message, Friendship]), slices=1, spark=False)
    compiled: list[bool] = []
    kernel = choose.SliceKernel.__init__

    def watched(self: choose.SliceKernel, *args: object, **given: object) -> None:
        kernel(self, *args, **given)  # type: ignore[arg-type]
        compiled.append(self.compiled)

    monkeypatch.setattr(choose.SliceKernel, "__init__", watched)
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text) if compile_it else None)
    monkeypatch.setattr(choose, "FLAT_EVENTS", 20)
    monkeypatch.setattr(choose, "WARM_EVENTS", 40)
    monkeypatch.setattr(choose, "COLD_EVENTS", 3 * 250)
    past, found = Past(run), list[object]()

    def visit(moment: Moment) -> bool:
        found.append(moment.value("total", ()))
        return False

    for _ in range(4):
        past.walk(0, [120], visit)
    assert compiled == [False, False, True, True]
    assert len(set(map(repr, found))) == 1
