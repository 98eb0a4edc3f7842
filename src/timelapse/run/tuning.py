"""Thresholds of a replay, handed down with its settings. No result depends on them."""

from __future__ import annotations

from dataclasses import dataclass

from timelapse.kernels.tuning import USUAL as KERNELS
from timelapse.kernels.tuning import KernelTuning


@dataclass(frozen=True)
class Tuning:
    """When a replay goes which way, and how much of it is done at a time."""

    kernels: KernelTuning = KERNELS
    interpreted_events: int = 1_000_000
    """Events per slice whose handlers run as Python: what it puts out is Python objects until its end."""
    compiled_events: int = 16_000_000
    """Events per slice of a compiled pass. A boundary costs the hashing, sorting and writing of all keys that a slice wrote
    (0.3 s of 1.9 s for each 3 million events of the anti-spam log), and is where `why` and `state --at` can start from."""
    uneven_events: int = 100_000
    """From this many events on the sizes of slices are chosen, and how many lead."""
    sampled_events: int = 50_000
    """Shorter logs are not looked at for what guess and repair would meet: slices gain nothing there."""
    begun_again: int = 8
    """So often at least a replay begins again without an event that failed late, before these events are looked for at once."""
    in_process_events: int = 200_000
    """Logs up to this size are replayed in this process when no Spark session is there already."""
    spark_start_seconds: float = 8.0
    """What it takes to start a local session and to run its first job (measured: 6 to 9 s)."""


USUAL = Tuning()
"""What holds where nobody says otherwise."""
