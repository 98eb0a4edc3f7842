"""Analysis: from source to what each state depends on, and to the part of a program that a pass runs."""

from __future__ import annotations

from timelapse.analysis.analyse import Analysis, analyse
from timelapse.analysis.result import (
    Dependency,
    Diagnostic,
    PassHandler,
    PassProgram,
    Severity,
    StateFacts,
    Write,
)
from timelapse.analysis.slicing import build_pass, final_pass

__all__ = [
    "Analysis", "Dependency", "Diagnostic", "PassHandler", "PassProgram", "Severity", "StateFacts", "Write",
    "analyse", "build_pass", "final_pass",
]  # fmt: skip
