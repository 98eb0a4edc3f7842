"""Output parts of other programs that run beside a pass, on what it reads of its states.

Versions that share their states (analysis/outputs.py tells) differ in what they put out alone. So while one of them is
replayed, the output parts of the others are given, chunk by chunk, the events and what is read for them: then
all have run when it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timelapse.analysis.result import PassProgram
from timelapse.program.program import Program


@dataclass(frozen=True)
class Companion:
    """A program, and its output part as a pass that takes what it reads of states as further fields of its events.

    `columns`: for an event type and such a field the recorded column that it is.
    """

    program: Program
    work: PassProgram
    columns: Mapping[tuple[str, str], str]
