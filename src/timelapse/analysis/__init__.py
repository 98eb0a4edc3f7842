"""Analysis: from source to what each state depends on, and to the part of a program that a pass runs."""

from __future__ import annotations

from timelapse.analysis.analyse import Analysis, analyse
from timelapse.analysis.keys import NotByKey
from timelapse.analysis.result import (
    ByKey,
    Dependency,
    Diagnostic,
    PassHandler,
    PassProgram,
    Severity,
    StateFacts,
    Write,
)
from timelapse.analysis.slicing import build_pass, final_pass, share_out, share_out_all

__all__ = [
    "Analysis", "ByKey", "Dependency", "Diagnostic", "NotByKey", "PassHandler", "PassProgram", "Severity",
    "StateFacts", "Write", "analyse", "build_pass", "final_pass", "share_out", "share_out_all",
]  # fmt: skip
