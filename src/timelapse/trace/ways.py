"""The ways of looking into a run, the quickest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from timelapse.env.garbage import memory_reused
from timelapse.trace import timed
from timelapse.trace.few import Few
from timelapse.trace.knowledge import Uncompiled, Unfocused
from timelapse.trace.moments import Past
from timelapse.trace.through import Through
from timelapse.trace.whole import WholePast

T = TypeVar("T")


@memory_reused()
def answered(
    past: Past,
    end: int,
    ask: Callable[[timed.Way], T],
    by_slices: Callable[[], T],
    *,
    most: int | None = None,
) -> T:
    """The answer of the first way that has one: the events that matter, alone, if that is soon done; the log gone through compiled; the
    events that matter, however long that takes; the serial loop.

    `end`: events from there on are not asked about. `by_slices`: what answers where nothing happens but log events. `most`: TooLong is
    raised where the serial loop would have to go through more events.
    """
    why = uncompiled = ""
    if isinstance(past, WholePast):
        try:
            return ask(Few(past, end))
        except Unfocused as reason:
            why = str(reason)
        try:
            return ask(Through(past, end))
        except Uncompiled as reason:
            uncompiled = str(reason)
    if not isinstance(past, WholePast) or past.looks_only:
        try:
            return by_slices()
        except Uncompiled as reason:
            uncompiled = str(reason)
    if isinstance(past, WholePast):
        try:
            return ask(Few(past, end, patient=True))  # beside the serial loop it is quick
        except Unfocused as reason:
            why = str(reason)
    if most is not None and past.run.events > most:
        raise TooLong(why)
    return ask(timed.All(past.run, past.progress, "; ".join(filter(None, [why, uncompiled])), end=end))


class TooLong(Exception):
    """Only the serial loop would tell, and the log is long."""


__all__ = ["TooLong", "answered"]
