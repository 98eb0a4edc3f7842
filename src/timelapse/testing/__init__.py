"""Tools for testing programs: a harness for handlers, an exact comparison of results.

from timelapse.testing import Harness, assert_same, compare_runs
"""

from timelapse.testing.compare import (
    NOTHING,
    Divergence,
    Result,
    Row,
    assert_same,
    compare_runs,
    identical,
    result_of,
)  # fmt: skip
from timelapse.testing.harness import Harness, KeyView, ValueView

__all__ = [
    "NOTHING", "Divergence", "Harness", "KeyView", "Result", "Row", "ValueView", "assert_same", "compare_runs",
    "identical", "result_of",
]  # fmt: skip
