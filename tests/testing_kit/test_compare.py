"""The comparison finds the first difference, to the last bit, and says where it is."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.testing_kit.programs import Account, Big, Move
from timelapse import serial
from timelapse.errors import UsageError
from timelapse.moments import time_text
from timelapse.testing import NOTHING, Result, Row, assert_same, compare_runs, identical


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (0, False),
        ("1", 1),
        (b"a", "a"),
        (None, 0),
        ((1, 2), (1, 2, 3)),
        ((1, 2), Point(1, 2)),
        ((0.0,), (-0.0,)),
        ("é", "e\u0301"),
        (Big(who="a", total=1), Big(who="a", total=2)),
        ({1: 0.0}, {1: -0.0}),
        ({1: 2}, {True: 2}),
        ({1: 2}, {}),
    ],
)
def test_values_that_differ_in_type_or_bits_are_not_identical(a: Any, b: Any) -> None:
    assert not identical(a, b)
    assert not identical(b, a)


@pytest.mark.parametrize(
    "value",
    [math.nan, -math.nan, (1, (math.nan,)), -0.0, Big(who="a", total=1), {"a": math.nan}, None, Point(1, 2)],
)
def test_a_value_is_identical_to_its_copy(value: Any) -> None:
    assert identical(value, value)


def test_nan_is_identical_to_any_nan() -> None:
    assert identical(float("nan"), float("inf") - float("inf"))


def row(ts: int, seq: int, *values: Any, ordinal: int | None = 0, phase: int | None = 3) -> Row:
    return Row(ts, phase, seq, ordinal, values)


def test_equal_results_have_no_divergence() -> None:
    events = [Move("a", 5, ts=1, seq=0), Move("a", 6, ts=1, seq=1), Move("a", -1, ts=2, seq=2)]
    assert compare_runs(serial.run(Account, events), serial.run(Account, events)) is None


def test_the_first_difference_in_log_order_is_reported_across_record_types() -> None:
    a = Result({"A": [row(9, 9, 1)], "B": [row(1, 1, 1), row(5, 5, 1)]})
    b = Result({"A": [row(9, 9, 2)], "B": [row(1, 1, 1), row(5, 5, 2)]})
    found = compare_runs(a, b)
    assert found is not None
    assert (found.kind, found.name, found.ts, found.seq, found.row) == ("output", "B", 5, 5, 1)


def test_an_event_rejected_on_one_side_only_is_a_difference() -> None:
    a = Result(rejected=[row(1, 1, "Move", "move", "no")])
    found = compare_runs(a, Result())
    assert found is not None
    assert (found.kind, found.seq, found.b) == ("rejection", 1, NOTHING)


def test_a_missing_output_is_reported_at_the_missing_row_not_at_the_next_one() -> None:
    a = Result({"A": [row(1, 1, 1), row(2, 2, 1), row(3, 3, 1)]})
    b = Result({"A": [row(1, 1, 1), row(3, 3, 1)]})
    for left, right, mine in ((a, b, False), (b, a, True)):
        found = compare_runs(left, right)
        assert found is not None
        assert (found.ts, (found.a is NOTHING)) == (2, mine)


def test_outputs_are_compared_before_states() -> None:
    a = Result({"A": [row(1, 1, 1)]}, states={"s": {1: 1}})
    b = Result({"A": [row(1, 1, 2)]}, states={"s": {1: 2}})
    found = compare_runs(a, b)
    assert found is not None
    assert found.kind == "output"


def test_the_first_differing_state_key_is_reported_with_both_values() -> None:
    a = Result(states={"s": {3: 1, 2: 5, 1: 1}})
    b = Result(states={"s": {1: 1, 2: 6}})
    found = compare_runs(a, b, names=("serial", "replay"))
    assert found is not None
    assert (found.key, found.a, found.b) == (2, 5, 6)
    assert found.text == "the state s[2] differs at the end\n  serial  5\n  replay  6"


def test_a_key_on_one_side_only_is_a_difference() -> None:
    found = compare_runs(Result(states={"s": {}}), Result(states={"s": {None: 0}}))
    assert found is not None
    assert (found.key, found.a, found.b) == (None, NOTHING, 0)


def test_a_state_that_only_one_side_has_is_a_difference() -> None:
    assert compare_runs(Result(states={"s": {}}), Result()) is not None


def test_the_order_of_state_entries_does_not_matter() -> None:
    assert compare_runs(Result(states={"s": {1: 1, 2: 2}}), Result(states={"s": {2: 2, 1: 1}})) is None


def test_the_one_differing_field_is_named() -> None:
    fields = {"Big": ("who", "total")}
    a = Result({"Big": [row(1_000_001, 4, "x", 1)]}, fields=fields)
    b = Result({"Big": [row(1_000_001, 4, "x", 2)]}, fields=fields)
    found = compare_runs(a, b)
    assert found is not None
    assert found.text == (
        "first difference at 1970-01-01 00:00:01.000001, seq 4: Big, row 0, field total\n  a  1\n  b  2"
    )


def test_parts_of_a_place_that_one_side_does_not_know_are_not_compared() -> None:
    known = Result({"A": [row(1, 1, 5, ordinal=3)]})
    unknown = Result({"A": [row(1, 1, 5, ordinal=None, phase=None)]})
    assert compare_runs(known, unknown) is None
    assert compare_runs(known, Result({"A": [row(1, 1, 5, ordinal=4)]})) is not None


def test_assert_same_raises_with_the_text() -> None:
    with pytest.raises(AssertionError, match=r"the state s\[1\] differs"):
        assert_same(Result(states={"s": {1: 0.0}}), Result(states={"s": {1: -0.0}}))


def test_something_that_is_no_result_is_refused() -> None:
    with pytest.raises(UsageError, match="int is not a result"):
        compare_runs(1, Result())


def test_times_outside_the_calendar_have_a_text_too() -> None:
    assert time_text(-1) == "1969-12-31 23:59:59.999999"
    assert time_text(2**62) == f"{2**62} us"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, math.nan, 1.0])
    | st.text(max_size=1),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(values, values)
def test_identical_agrees_with_repr(a: Any, b: Any) -> None:
    """For these types two values have the same repr exactly when they are the same to the last bit."""
    assert identical(a, b) == (repr(a) == repr(b))
