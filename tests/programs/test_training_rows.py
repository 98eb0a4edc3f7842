"""Rows for training from the feature programs: a labelled event gets what the oracle knows from the log up to that event."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import timelapse as tl
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make

KEYS = {
    "VoteFeatures": {"Row": "vote"},
    "RecentVotes": {"RecentRow": "vote"},
    "SearchFeatures": {"Row": "shown"},
    "AccountFeatures": {"LoginRow": "login", "MessageRow": "message"},
    "MessageFeatures": {"Row": "message"},
    "AnsweredByNow": {"AnswerRow": "message"},
}
"""By program and record: the field that names the event, which is the first."""


@pytest.mark.parametrize("entry", [e for e in CATALOGUE if e.name in KEYS], ids=lambda e: e.name)
def test_a_labelled_event_gets_what_was_known_then(entry: Entry, tmp_path: Path) -> None:
    made = make(entry.mix(5), 300, seed=6)
    log = made.log(tmp_path / "log", entry.classes())
    rows = made.rows()
    known = {}
    for end in range(1, len(rows) + 1, 7):
        for _, kind, values in entry.oracle(rows[:end])[-1:]:  # the rest of the log is not there
            known[kind, values[0]] = values
    for record, key in KEYS[entry.name].items():
        wanted = [values for (kind, _), values in known.items() if kind == record]
        assert len(wanted) > 5
        labels = pa.table({key: [values[0] for values in wanted], "label": [True] * len(wanted)})
        found = tl.features(entry.program(), log, labels, record=record, spark=False, slices=3, cache=False)
        assert found.missing == 0
        columns = [found.table.column(f).to_pylist() for f in found.table.column_names if f != "label"]
        assert list(zip(*columns, strict=True)) == wanted
