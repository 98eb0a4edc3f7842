"""Analysis: from source to what each state depends on, and to the part of a program that a pass runs.

Begin with `analyse.py`. `build.py` lowers statements to a control-flow graph (`ir.py`, `code/cfg.py`);
`depend.py` finds dependences through locals, calls, states and rejects; `facts.py` says on which states
each state's writes depend. `idioms/` knows reads that are no dependence. `keys.py` finds what is all under
one key. `slicing.py` cuts handlers down to a pass. `purity/` finds what cannot be replayed.
"""

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
