"""The state at a cut: all that whoever goes on from there needs to know of what was before it.

That is a table per state (what is pending and what is dated are states too, program/pending.py), the rows of states that are looked
back on as far back as some view looks (tables/effectlog.py), where the log goes on, and the time up to which everything has
happened. Calls of `after=` handlers and ticks need nothing: they follow from the log and the calendar.

A `Boundary` is written as JSON and names its tables, Arrow files in a folder laid out as a job's scratch; the boundaries
of one run share theirs: what a slice did is one file, however many later slices look back on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from timelapse.decoding import decoded
from timelapse.engine.job import Job, rows_name, start_name
from timelapse.program.program import spec_of
from timelapse.program.times import kept
from timelapse.tables.effectlog import PRESENT

FORMAT = 1


class Rows(msgspec.Struct, frozen=True):
    """The rows of a state in one form, from slice `first` on up to the cut. `stood`: with them goes the state at the start of that
    slice, as what holds as of a time before the first of them is found there."""

    state: str
    form: str
    first: int
    stood: bool = False


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known where one slice ends and the next one begins."""

    format: int = FORMAT
    cut: int
    """So many slices lie before it."""
    seq: int
    """The first event behind it has this seq or a later one."""
    clock: int | None
    """Everything up to this time has happened (microseconds); None: nothing has."""
    states: tuple[str, ...]
    rows: tuple[Rows, ...] = ()

    @classmethod
    def of(cls, job: Job, cut: int) -> Boundary:
        """What a job's slice `cut` begins with, as its program looks back."""
        widths, rows = kept(job.program), []
        for state, forms in sorted(job.passes[-1].logs.items()):
            for form in forms:
                first = min(rows_before(job, cut, widths[state]), default=cut)
                rows.append(Rows(state, form, first, form == PRESENT and 0 < first < cut))
        return cls(
            cut=cut, seq=job.cuts[cut], clock=job.end_of(cut - 1), states=tuple(spec_of(job.program).states),
            rows=tuple(rows),
        )  # fmt: skip

    def goes_on_as(self, other: Boundary) -> bool:
        """Whether both stand at the same place, and have the same states."""
        return (self.cut, self.seq, self.clock, self.states) == (
            other.cut,
            other.seq,
            other.clock,
            other.states,
        )

    def names(self) -> Iterator[str]:
        """Its files, by their names in the folder."""
        for state in self.states:
            yield start_name(self.cut, state)
        for row in self.rows:
            if row.stood:
                yield start_name(row.first, row.state)
            for index in range(row.first, self.cut):
                yield rows_name(index, row.state, row.form)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Boundary:
        """Raises ValueError for what is none, or of another format."""
        found = decoded(data, cls)  # its errors are ValueErrors
        if found.format != FORMAT:
            raise ValueError(f"a boundary of format {found.format}")
        return found


def rows_before(job: Job, slice_id: int, width: int) -> Sequence[int]:
    """The slices before one whose rows a view that looks `width` back may still see in it, in order."""
    end = job.end_of(slice_id - 1) if slice_id else None
    if end is None:
        return ()
    first = slice_id
    while first:
        last = job.end_of(first - 1)
        if last is None or last <= end - width:
            break
        first -= 1
    return range(first, slice_id)


def boundaries(job: Job) -> list[Boundary]:
    """Those between a job's slices."""
    return [Boundary.of(job, cut) for cut in range(1, job.slices)]


def files_of(found: Sequence[Boundary], folder: Path) -> dict[str, Path] | None:
    """All files of boundaries in a folder, by name; None where one is missing."""
    files = {name: folder / name for boundary in found for name in boundary.names()}
    return files if all(path.is_file() for path in files.values()) else None
