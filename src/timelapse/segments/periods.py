"""Segments by time: periods of UTC at whose ends a log's segments end, whatever their size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timelapse.errors import IngestError, UsageError
from timelapse.ids import DAY, HOUR

I64 = npt.NDArray[np.int64]

MOST = 10_000
"""An ingest that would write more segments is an error: each is a folder with a file per type."""
HINT = 'hours, days, weeks from Monday on, or months: "6h", "1d", "1w", "1mo"'


@dataclass(frozen=True)
class Period:
    """So many hours, days (`d`), weeks or months (`mo`) of UTC, counted from 1970-01-01; weeks begin on Monday."""

    count: int
    unit: str

    @classmethod
    def of(cls, text: str) -> Period:
        """A period as people write it: `1d`. Raises UsageError (TL808)."""
        found = re.fullmatch(r"([1-9][0-9]{0,3})(h|d|w|mo)", text) if isinstance(text, str) else None
        if found is None:
            raise UsageError(f"segment= (--segment) is {text!r}, which is no period", code="TL808", hint=HINT)
        return cls(int(found[1]), found[2])

    @property
    def text(self) -> str:
        return f"{self.count}{self.unit}"

    def numbers(self, ts: I64) -> I64:
        """The number of the period in which each time lies (microseconds UTC)."""
        if self.unit == "h":
            return ts // (HOUR * self.count)
        if self.unit == "mo":
            return ts.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) // self.count
        days = ts // DAY
        return days // self.count if self.unit == "d" else (days + 3) // (7 * self.count)

    def starts(self, ts: I64) -> list[int]:
        """The places among rising times at which another period begins than that of the time before."""
        return [int(n) + 1 for n in np.flatnonzero(np.diff(self.numbers(ts)))]

    def parts(self, ts: I64) -> list[tuple[int, int]]:
        """The ranges of rising times that lie in one period each."""
        starts = self.starts(ts)
        return list(zip([0, *starts], [*starts, len(ts)], strict=True)) if len(ts) else []


def ranges(ts: I64, period: Period | None, most: int) -> Iterator[tuple[int, int]]:
    """The ranges of rising times that are a segment each: of one period, and of `most` events at most."""
    for first, end in [(0, len(ts))] if period is None else period.parts(ts):
        for lo in range(first, end, most):
            yield lo, min(lo + most, end)


def check_number(period: Period | None, segments: Sequence[object]) -> None:
    """Raise IngestError (TL411) where an ingest has too many segments since they are cut by time."""
    if period is not None and len(segments) > MOST:
        raise IngestError(
            f"segment= (--segment) {period.text} makes {len(segments):,} segments of these events, more than {MOST:,}", code="TL411",
            hint="longer periods, such as 1d or 1mo; min_ts= (--min-ts) keeps out rows whose times are far from all others",
        )  # fmt: skip
