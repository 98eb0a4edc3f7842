"""Times in the forms in which people have them: one moment, or an error that names the argument."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pytest

import timelapse as tl
from timelapse.errors import UsageError
from timelapse.moments import micros

DAY = 1_790_899_200_000_000
"""2 October 2026."""


class Seen(tl.Event):
    user: int


class Counting(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Seen)
    def see(self, e: Seen) -> None:
        self.seen[e.user] += 1


@pytest.mark.parametrize(
    "given",
    [
        DAY, np.int64(DAY), str(DAY), "2026-10-02", "2026-10-02T02:00+02:00", date(2026, 10, 2),
        datetime(2026, 10, 2, tzinfo=UTC), pd.Timestamp("2026-10-02"), pd.Timestamp("2026-10-02T02:00", tz="Europe/Berlin"),
    ],
)  # fmt: skip
def test_one_moment(given: object) -> None:
    found = micros(given)  # type: ignore[arg-type]
    assert (found, type(found)) == (DAY, int)


@pytest.mark.parametrize("given", [pd.NaT, True, 1.5, np.float64(1), "noon", "20261002", " 19991231 ", 2**63, np.uint64(2**63)])  # fmt: skip
def test_what_is_no_moment_is_an_error(given: object) -> None:
    """Eight digits may be a day and are a number: nobody is given the first minute of 1970 for a day in 2026."""
    with pytest.raises(UsageError, match=r"at= .* (no time|may be a day|outside)"):
        micros(given, "at=")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="until="):
        tl.replay(Counting, [Seen(user=1, ts=1)], until=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [[{"user": 1, "ts": 1}], [1, 2], pd.Series([1, 2]), np.zeros(2)])
def test_events_that_are_none_are_named(given: object) -> None:
    with pytest.raises(UsageError, match="a list of events is needed"):
        tl.replay(Counting, given)
    with pytest.raises(UsageError, match="a list of events is needed"):
        tl.run_serial(Counting, given)
