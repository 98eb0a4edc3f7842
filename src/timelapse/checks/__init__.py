"""What may be wrong with a program, with its log, or with both together: `tl.check`.

Begin with `driver.py`. `fields.py`, `warmup.py`, `orders.py` and `reads.py` look at one thing each,
`findings.py` is what they tell.
"""

from timelapse.checks.driver import check
from timelapse.checks.findings import Check, Finding

__all__ = ["Check", "Finding", "check"]
