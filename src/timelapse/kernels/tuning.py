"""Thresholds of kernels, handed down from who asks for a replay to whatever runs one of its passes.

No result depends on them: they say when a way is worth its preparation, how much is done at a time, and how large tables are at
first. They travel to workers with the job. Each has the value that measured best; tests hand in others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableTuning:
    """How tables of compiled passes grow, and what of them is copied for readers."""

    first_rows: int = 1024
    """Rows of an empty table."""
    gradual_rows: int = 1 << 15
    """A table of so many rows, or more, can be moved into a larger array part by part"""
    gradual_part: int = 16
    """once there is room left for so small a part of its rows,"""
    moved_rows: int = 1 << 14
    """and so many rows at a time,"""
    moved_each: int = 16
    """or so many for each event that comes next."""
    first_copies: int = 1024
    """Rows that there is room to copy at first."""
    copied_bytes: int = 1 << 26
    """Bytes that copies take at most: an epoch that writes more rows than that is read when it is over."""


TABLES = TableTuning()


@dataclass(frozen=True)
class FindingTuning:
    """How compiled code finds the events from which something fails after their own time."""

    piece_steps: int = 16_384
    """Steps that the part which decides goes through at a time, ahead of the others,"""
    again_steps: int = 8192
    """and how many of them it may do again before tables are given more room."""
    again_each: int = 1
    """So many steps may be done again for each step there was,"""
    again_more: int = 1 << 17
    """and so many more."""
    most_added: float = 2.0**62
    """If the absolute values of all that is added to a table are less than this in sum, no sum leaves int64. It may only be lowered."""
    most_passes: int = 8
    """The most steps that are done many at a time, in passes over the whole log. Events that are left then are found one after the other."""
    most_ties: int = 32
    """The most rounds in which events are put into groups."""
    step_seconds: float = 5e-7
    """About so many seconds takes a step of such a pass;"""
    failure_seconds: float = 1e-3
    """an event that is found alone;"""
    again_seconds: float = 1e-7
    """each step that is done again for it."""
    least_spacing: int = 64
    """Steps between two moments that are noted to go back to: the least,"""
    first_spacing: int = 4096
    """and the number until something fails late."""
    most_moments: int = 128
    """So many are noted at most."""
    most_again: int = 16
    """The steps that are done again may be at most so many times all steps. As Python it takes about 40 times as long as one compiled pass."""


FINDING = FindingTuning()


@dataclass(frozen=True)
class TakingTuning:
    """How the serial loop takes out events from which something fails after their own time."""

    spacing_events: int = 32
    """Events between two copies of the loop, at least."""
    copy_share: int = 8
    """Copying takes at most about one second in so many."""
    most_copies: int = 16
    """So many are kept at most."""
    most_steps: int = 1 << 21
    """So many steps are kept at most, to undo what they did."""
    unasked_steps: int = 1 << 17
    """So many at most as long as nothing has failed late. Most logs have nothing that does: they are not to take much memory for it."""
    most_restarts: int = 4
    """So often the loop begins again where it kept too few."""
    few_steps: int = 1024
    """So many more steps are kept before it is looked for some to forget."""
    forgotten_part: int = 4
    """At least one in so many is forgotten, if any."""


TAKING = TakingTuning()


@dataclass(frozen=True)
class NativeTuning:
    """How compiled passes run."""

    piece_events: int = 32_768
    """Events between two calls of the compiled function: tables are made large enough before each."""
    watched_events: int = 4096
    """The same where readers may look in between."""
    burst: float = 64.0
    """So many events may run as Python one after the other before the rest of the slice does so too."""
    tables: TableTuning = TABLES
    finding: FindingTuning = FINDING


NATIVE = NativeTuning()


@dataclass(frozen=True)
class KernelTuning:
    """When passes are compiled or written anew, and how they then run."""

    times: int = 1
    """About so often a pass runs: the compiler is worth waiting for with fewer events."""
    warm_events: int = 200_000
    """From this many events on a pass runs compiled if its machine code is on disk: loading it takes as long as these take as Python."""
    cold_events: int = 2_000_000
    """From this many events on it is worth waiting for the compiler: 3 to 12 seconds, at 2 to 6 microseconds an event."""
    slower: int = 4
    """So many times as long programs that reach into other times take as Python, whose handlers are not rewritten. Measured in
    November 2026: 10 to 40 microseconds an event."""
    flat_events: int = 20_000
    """From this many events on it is worth rewriting handlers that run as Python."""

    native: NativeTuning = NATIVE
    taking: TakingTuning = TAKING

    @property
    def too_few(self) -> str:
        """What is said of a pass over fewer than `warm_events`."""
        return f"for fewer than {self.warm_events:,} events machine code is not worth loading"


USUAL = KernelTuning()
"""What holds where nobody says otherwise."""
