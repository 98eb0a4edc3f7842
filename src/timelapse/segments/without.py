"""A log without some of its events: which, from a run that took them out, a file, or a list."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from timelapse.decoding import decoded
from timelapse.errors import LogError, Place
from timelapse.store.remote import place_path

_MARK, ONLY_MARK, PART_MARK = "-without-", "-only-", "-part-"
_END = re.compile(rf"({PART_MARK}[0-9]+)-[0-9]+$")
RUN_FILE = "run.json"


def seqs_of(what: Any, log_id: str, end: int) -> tuple[int, ...]:
    """The events to leave out, as rising seqs.

    `what` is a finished run or its folder (what it took out of the log, and what it was replayed without), a file
    (Parquet or CSV with a column `seq`; any other: one number per line), or numbers. `log_id` is the log's, `end`
    its number of events. Raises LogError (TL409) for a run over another log, and for numbers that are no events.
    """
    if isinstance(what, str | Path):
        path = place_path(what, "run or list of events")
        found = _of_folder(path, log_id) if path.is_dir() else _of_file(path)
        place = str(path)
    elif hasattr(what, "left_out"):
        found = _of_run(what.left_out, what.manifest.log_id, log_id, str(what.path))
        place = str(what.path)
    elif isinstance(what, Iterable):
        found, place = _numbers(list(what), "seqs"), "seqs"
    else:
        raise _unfit(f"{type(what).__name__} does not say which events to leave out", None)
    wrong = next((s for s in found if not 0 <= s < end), None)
    if wrong is not None:
        raise _unfit(f"the log has no event with seq {wrong}", place, f"seqs are 0 to {end - 1}")
    return tuple(sorted(set(found)))


def name_of(log_id: str, seqs: tuple[int, ...]) -> str:
    """The id of a log without these events."""
    if not seqs:
        return log_id
    digest = hashlib.blake2b(np.asarray(seqs, np.int64).tobytes(), digest_size=8).hexdigest()
    return f"{log_id}{_MARK}{digest}"


def base_of(log_id: str) -> str:
    """The id of the whole log."""
    for mark in (_MARK, ONLY_MARK, PART_MARK):
        log_id = log_id.split(mark, maxsplit=1)[0]
    return log_id


def read_as(log_id: str) -> str:
    """What of a log is read, whichever version it is: types, events that are left out, and where a part begins, but not where it ends."""
    return _END.sub(r"\1", log_id.removeprefix(base_of(log_id)))


def _of_run(seqs: Iterable[int], run_log: str | None, log_id: str, place: str) -> list[int]:
    if run_log is None or base_of(run_log) != base_of(log_id):
        raise _unfit("the run is over another log", place, "the numbers of its events mean nothing here")
    return list(seqs)


def _of_folder(path: Path, log_id: str) -> list[int]:
    try:
        run = decoded((path / RUN_FILE).read_bytes(), dict[str, Any])
        seqs = [int(s) for s in run.get("without", [])]
        for part in sorted((path / "quarantined").glob("part-*.parquet")):
            seqs += pq.read_table(part, columns=["seq"])["seq"].to_pylist()
    except (OSError, msgspec.MsgspecError, pa.ArrowException) as error:
        raise _unfit(f"the folder is no run that can be read: {error}", str(path)) from None
    return _of_run(seqs, run.get("log_id"), log_id, str(path))


def _of_file(path: Path) -> list[int]:
    try:
        if path.suffix == ".parquet":
            return _numbers(pq.read_table(path, columns=["seq"])["seq"].to_pylist(), str(path))
        if path.suffix == ".csv":
            return _numbers(pyarrow.csv.read_csv(path)["seq"].to_pylist(), str(path))
        return _numbers([int(line) for line in path.read_text(encoding="utf-8").split()], str(path))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise _unfit(f"no numbers of events can be read from it: {error}", str(path)) from None


def _numbers(values: list[Any], place: str) -> list[int]:
    found = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise _unfit(f"{value!r} is no number of an event", place)
        found.append(int(value))
    return found


def _unfit(message: str, place: str | None, hint: str = "") -> LogError:
    return LogError(
        message, place=Place(place), code="TL409",
        hint=hint or "give a run made with --quarantine, a file with a column seq, or one number per line",
    )  # fmt: skip


def kept(table: pa.Table, excluded: npt.NDArray[np.int64], lo: int, hi: int) -> pa.Table:
    """The rows of a table of events lo <= seq < hi that are not among the excluded ones, which rise."""
    first, last = np.searchsorted(excluded, [lo, hi])
    if first == last or not table.num_rows:
        return table
    return table.filter(pa.array(~np.isin(table["seq"].to_numpy(), excluded[first:last], assume_unique=True)))
