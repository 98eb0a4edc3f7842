"""Tools for testing programs: a harness for handlers, random logs, replay against the serial meaning.

from timelapse.testing import Harness, check_replay, random_log, assert_same, compare_runs
"""

from timelapse.divergence import (
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
from timelapse.testing.oracle import check_replay, random_log

__all__ = [
    "NOTHING", "Divergence", "Harness", "KeyView", "Result", "Row", "ValueView", "assert_same", "check_replay",
    "compare_runs", "identical", "random_log", "result_of",
]  # fmt: skip
