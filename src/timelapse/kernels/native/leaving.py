"""How a compiled pass ends before its slice does."""

from __future__ import annotations

from timelapse.errors import HandlerError


class TooOften(Exception):
    """So many events ran as Python that the rest should too, from `seq` on: see `NativeKernel.hand_over`."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


class Failed(Exception):
    """A handler raised at an event."""

    def __init__(self, seq: int, failure: HandlerError) -> None:
        super().__init__(seq)
        self.seq, self.failure = seq, failure
