"""How looking into a run tells what it is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from timelapse.kernels.base import Tick
from timelapse.progress import Progress

_SURE = 0.25
"""Seconds after which it is said how long something will take. They begin with the first events done: before that, files are opened and
a first batch is decoded, which happens once."""


@contextmanager
def going(progress: Progress, name: str, total: int, *, slowly: str = "") -> Iterator[Tick]:
    """Going through so many events. `slowly`: why that takes long; then it is said early on about how long."""
    began, done, said = time.monotonic(), 0, not slowly
    since: tuple[float, int] | None = None

    def tick(events: int) -> None:
        nonlocal done, said, since
        done += events
        if said:
            pass
        elif since is None:
            since = time.monotonic(), done
        elif (passed := time.monotonic() - since[0]) > _SURE:
            said = True
            left = passed * (total - done) / (done - since[1])
            if left > 1:
                progress.note(
                    f"{slowly}: about {left:,.0f} s for up to {total:,} events, each time they are gone through"
                )
        progress.advance(name, min(done, total), total)

    progress.stage(name, total)
    yield tick
    progress.finish(name, time.monotonic() - began)


__all__ = ["going"]
