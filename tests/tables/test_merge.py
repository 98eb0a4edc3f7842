"""Merging state tables range by range gives what merging them in one piece gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.tables import merge, table
from timelapse.tables.apply import NO_CHANGE, Change, apply, changes_table, empty, net
from timelapse.tables.rowhash import row_hashes
from timelapse.tables.table import effect_table, read_table, state_table, to_dict

COUNTER: StateSpec = tl.Counter.declare("n", (int,), StateOptions(ABSENT), None)
LAST: StateSpec = tl.Value.declare("last", (str, int), StateOptions(0), None)
PAIRS: StateSpec = tl.Set.declare("pairs", (tuple[int, str],), StateOptions(ABSENT), None)
TOTAL: StateSpec = tl.Counter.declare("total", (), StateOptions(ABSENT), None)
BEST: StateSpec = tl.Max.declare("best", (int, float), StateOptions(0.0), None)


def effects_of(spec: StateSpec, seed: int, count: int = 40) -> pa.Table:
    """Random effects on about thirty keys, in the state's own form."""
    rng = random.Random(seed)
    delta: Any = spec.kind.delta(spec, None)
    for _ in range(rng.randrange(count)):
        k = rng.randrange(30)
        if spec is COUNTER:
            delta._e_set(k, rng.randrange(3)) if rng.random() < 0.1 else delta._e_add(k, rng.randrange(-1, 3))
        elif spec is LAST:
            delta._e_del(f"k{k}") if rng.random() < 0.3 else delta._e_set(f"k{k}", rng.randrange(4))
        elif spec is PAIRS:
            (delta._e_del if rng.random() < 0.4 else delta._e_set)((k, "x" * (k % 3)))
        elif spec is TOTAL:
            delta._e_add((), rng.randrange(-1, 3))
        else:
            delta._e_top(k, rng.choice([0.0, -0.0, 1.5]))
    return effect_table(delta)


def one_by_one(spec: StateSpec, effects: list[pa.Table]) -> tuple[list[pa.Table], list[Change]]:
    state, states, changes = empty(spec), [], []
    for one in effects:
        state, change = apply(spec, state, one)
        states.append(state)
        changes.append(change)
    return states, changes


def parts_of(changes: list[list[Change]]) -> list[Change]:
    return [sum(of_slice[1:], of_slice[0]) for of_slice in zip(*changes, strict=True)]


@pytest.mark.parametrize("spec", [COUNTER, LAST, PAIRS, TOTAL, BEST], ids=lambda s: s.name)
@settings(max_examples=deep(12))
@given(seed=st.integers(0, 10**6), rows=st.sampled_from([1, 3, 7, 1000]), parts=st.sampled_from([1, 2, 5]))
def test_prefix_in_ranges_and_parts_equals_one_piece(
    tmp_path_factory: pytest.TempPathFactory, spec: StateSpec, seed: int, rows: int, parts: int
) -> None:
    """The state after each slice, sorted; what each slice changed; from ranges of a few rows."""
    folder = tmp_path_factory.mktemp("merge")
    effects = [effects_of(spec, seed + i) for i in range(3)]
    states, changes = one_by_one(spec, effects)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "RANGE_ROWS", rows)
        found: list[list[Path]] = []
        said = []
        for part in range(parts):
            found.append([folder / f"{i}-{part}.arrow" for i in range(3)])
            said.append(merge.prefix(spec, empty(spec), effects, found[-1], (part, parts)))
        for i, state in enumerate(states):
            merge.join([paths[i] for paths in found], folder / "whole")
            merged = read_table(folder / "whole")
            assert merged.schema == state.schema
            assert repr(merged.to_pylist()) == repr(state.to_pylist())
        assert parts_of(said) == changes
        later = folder / "later.arrow"
        own = [effects_of(spec, seed + 7)]
        assert merge.prefix(spec, states[-1], own, [later]) == [apply(spec, states[-1], own[0])[1]]
        assert repr(read_table(later).to_pylist()) == repr(apply(spec, states[-1], own[0])[0].to_pylist())


@settings(max_examples=deep(40))
@given(seed=st.integers(0, 10**6), rows=st.sampled_from([1, 5, 1000]), clash=st.booleans())
def test_fold_of_changes(tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, clash: bool) -> None:
    """Changes of many slices in one go; also where different keys have one hash."""
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "RANGE_ROWS", rows)
        if clash:
            patch.setattr(table, "row_hashes", lambda *args: row_hashes(*args) >> 62 << 62)
        state: dict[str, int] = {}
        changes = []
        for _ in range(rng.randrange(5)):
            before: dict[str, Any] = {}
            for _ in range(rng.randrange(12)):
                key = f"k{rng.randrange(8)}"
                before.setdefault(key, state.get(key, ABSENT))
                if rng.random() < 0.3:
                    state.pop(key, None)
                else:
                    state[key] = rng.randrange(3)
            changes.append(changes_table(LAST, before, state, ABSENT)[0])
        start = state_table(LAST, ())
        assert to_dict(LAST, merge.fold(LAST, start, changes)) == state
        path = tmp_path_factory.mktemp("fold") / "state.arrow"
        merge.fold_to(LAST, start, changes, path)
        assert to_dict(LAST, read_table(path)) == state


@settings(max_examples=deep(60))
@given(seed=st.integers(0, 10**6), rows=st.sampled_from([1, 5, 1000]), clash=st.booleans())
def test_what_changes_come_to_over_a_start(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, clash: bool
) -> None:
    """Of the start, which is a table and changes of it in files, only keys are looked at that change; also where different keys have one hash."""
    rng, folder = random.Random(seed), tmp_path_factory.mktemp("net")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "RANGE_ROWS", rows)
        if clash:
            patch.setattr(table, "row_hashes", lambda *args: row_hashes(*args) >> 62 << 62)
        state: dict[str, int] = {}
        tables = []
        for number in range(2 + rng.randrange(4)):
            before: dict[str, Any] = {}
            for _ in range(rng.randrange(30) if number < 2 else 1 + rng.randrange(4)):
                key = f"k{rng.randrange(40)}"
                before.setdefault(key, state.get(key, ABSENT))
                if rng.random() < 0.3:
                    state.pop(key, None)
                else:
                    state[key] = rng.randrange(3)
            tables.append(changes_table(LAST, before, state, ABSENT)[0])
        at = rng.randrange(len(tables))
        first, levels, later = empty(LAST), tables[: at + 1], tables[at + 1 :] or [tables[-1]]
        merge.fold_to(LAST, first, levels[:1], folder / "base.arrow")
        start = [read_table(folder / "base.arrow"), *levels[1:]]
        held: list[int] = []
        together = merge.together(LAST, later)
        expected, change = net(LAST, merge.fold(LAST, first, levels), together)

        def counted(spec: StateSpec, own: pa.Table, effects: pa.Table) -> tuple[pa.Table, Change]:
            held.append(own.num_rows)
            return net(spec, own, effects)

        patch.setattr(merge, "net", counted)
        found, _ = merge.net_to(LAST, start, later, folder / "net.arrow")
        assert found == change
        assert read_table(folder / "net.arrow").to_pylist() == expected.to_pylist()
        if not clash:
            assert sum(held) <= together.num_rows


def test_a_merge_that_is_stopped_leaves_no_file(tmp_path: Path) -> None:
    """What was not finished has no name, and goes."""
    with (
        pytest.raises(KeyboardInterrupt),
        merge.writing(tmp_path / "x.arrow", empty(COUNTER).schema) as write,
    ):
        write(state_table(COUNTER, [(1, 2)]))
        assert not (tmp_path / "x.arrow").exists()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_merge(tmp_path: Path) -> None:
    """No effects: an empty state."""
    assert merge.prefix(COUNTER, empty(COUNTER), [effects_of(COUNTER, 0, 1)], [tmp_path / "a"]) == [NO_CHANGE]
    assert read_table(tmp_path / "a").num_rows == 0
    assert merge.fold(COUNTER, empty(COUNTER), []).num_rows == 0
