"""How many random examples tests try: few enough in the usual run that it stays short.

`TIMELAPSE_DEPTH=10` tries ten times as many, everywhere that `deep` is asked.
"""

from __future__ import annotations

import os

DEPTH = float(os.environ.get("TIMELAPSE_DEPTH", "1"))


def deep(examples: int) -> int:
    """The number of examples to try, where the usual run tries `examples`."""
    return max(1, round(examples * DEPTH))
