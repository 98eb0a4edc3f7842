"""Which columns the sources of a log had, from which day to which: as files were read, whatever became of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from timelapse.segments.days import day_number, day_text


class Layout(msgspec.Struct, frozen=True):
    """Files with the same columns. `columns`: the type of each, by name, as the files have it. `days`: the first and the last day (UTC, ISO
    8601) of each run of days that they are of; none where no day is known."""

    columns: dict[str, str]
    days: list[tuple[str, str]]
    files: int


class Days(NamedTuple):
    """The first and the last of some days. `all`: whether all files of these days have the column, or only some."""

    first: str
    last: str
    all: bool


class Column(NamedTuple):
    """A column of the sources of an event type. A column that has one type here and another there stands for two."""

    name: str
    type: str
    used: bool
    """Whether fields are made of it."""
    days: tuple[Days, ...]
    """None where no day of its files is known."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "used": self.used,
            "days": [day._asdict() for day in self.days],
        }


def layouts_of(files: Iterable[tuple[dict[str, str], tuple[int, int] | None]]) -> list[Layout]:
    """Files' columns with their days (since 1970), put together by layout, in the order in which layouts occur."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[int, int] | None]] = {}
    for columns, days in files:
        found.setdefault(tuple(columns.items()), []).append(days)
    return [
        Layout(
            dict(columns),
            [(day_text(first), day_text(last)) for first, last in _runs([d for d in days if d is not None])],
            len(days),
        )
        for columns, days in found.items()
    ]


def columns_of(layouts: Sequence[Layout], unused: Iterable[str] = ()) -> list[Column]:
    """All columns of some layouts, in the order in which they occur, with the days of the files that have them."""
    changes: dict[int, list[int]] = {}
    for n, one in enumerate(layouts):
        for first, last in one.days:
            changes.setdefault(day_number(first), []).append(n)
            changes.setdefault(day_number(last) + 1, []).append(~n)
    open_ = [0] * len(layouts)
    pieces = []  # of days on which the same layouts occur
    for day, end in pairwise([*sorted(changes), 0]):
        for n in changes[day]:
            open_[max(n, ~n)] += 1 if n >= 0 else -1
        if there := [n for n, count in enumerate(open_) if count]:
            pieces.append((day, end - 1, there))
    names = dict.fromkeys(item for one in layouts for item in one.columns.items())
    skipped = set(unused)
    return [
        Column(name, kind, name not in skipped, tuple(_days(name, kind, layouts, pieces)))
        for name, kind in names
    ]


def _days(
    name: str, kind: str, layouts: Sequence[Layout], pieces: Sequence[tuple[int, int, list[int]]]
) -> list[Days]:
    """Where a column is, as few stretches: days without files end none."""
    found: list[Days] = []
    goes_on = False
    for first, last, there in pieces:
        has = [layouts[n].columns.get(name) == kind for n in there]
        if any(has) and goes_on and found[-1].all == all(has):
            found[-1] = found[-1]._replace(last=day_text(last))
        elif any(has):
            found.append(Days(day_text(first), day_text(last), all(has)))
        goes_on = any(has)
    return found


def _runs(days: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches of days that follow one another or overlap, as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(days):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
