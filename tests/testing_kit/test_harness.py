"""The harness runs handlers as the serial meaning does, and shows what they did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from tests.testing_kit.programs import Account, Bad, Big, Move, Reset
from timelapse import serial
from timelapse.errors import EventOrderError, HandlerError, TypeMismatch, UsageError
from timelapse.testing import Harness, assert_same


def test_state_persists_between_feeds() -> None:
    h = Harness(Account)
    h.feed(Move("a", 3))
    h.feed(Move("a", 4), Move("b", 1))
    assert h.state("moved") == {"a": 7, "b": 1}


def test_a_missing_key_reads_as_in_a_handler() -> None:
    h = Harness(Account)
    assert h.state("moved")["nobody"] == 0
    assert str(h.state("last")["nobody"]) == "-0.0"
    assert h.state("last").get("nobody", 7.0) == 7.0
    assert "nobody" not in h.state("moved")
    assert "nobody" not in h.state("seen")


def test_states_without_a_key_are_their_value() -> None:
    h = Harness(Account)
    assert (h.state("total"), h.state("best")) == (0, 0)
    h.feed(Move("a", 3), Move("a", 2))
    assert (h.state("total"), h.state("best")) == (5, 3)


def test_a_set_state_reads_as_a_set_in_key_order() -> None:
    h = Harness(Account)
    h.feed(Move("b", 1), Move("a", 1))
    assert h.state("seen") == {"a", "b"}
    assert list(h.state("seen")) == ["a", "b"]
    assert h.state("seen") - {"a"} == {"b"}


def test_a_key_of_the_wrong_type_is_an_error_not_a_miss() -> None:
    with pytest.raises(TypeMismatch, match="a key of moved"):
        Harness(Account).state("moved")[1]


def test_a_view_does_not_change_with_later_events() -> None:
    h = Harness(Account)
    h.feed(Move("a", 1))
    before = h.state("moved")
    h.feed(Move("a", 1))
    assert before["a"] == 1


def test_feed_returns_the_records_of_this_feed_only() -> None:
    h = Harness(Account(limit=0))
    assert h.feed(Move("a", 1)) == [Big(who="a", total=1)]
    assert h.feed(Move("a", 2)) == [Big(who="a", total=3)]
    assert h.outputs == [Big(who="a", total=1), Big(who="a", total=3)]
    assert h.outputs_of(Bad) == []


def test_a_rejected_event_is_listed_and_leaves_no_state() -> None:
    h = Harness(Account)
    h.feed(Move("a", 5))
    before = h.states
    assert h.feed(Move("a", -1)) == []
    assert h.states == before
    assert [(r.event, r.handler, r.reason) for r in h.rejected] == [("Move", "move", "negative")]


def test_a_rejection_with_a_record_emits_it() -> None:
    assert Harness(Account).feed(Move("a", 101)) == [Bad(who="a")]


def test_an_event_whose_handler_raises_has_no_effect_and_feeding_goes_on() -> None:
    h = Harness(Account)
    h.feed(Move("a", 5))
    before = h.states
    with pytest.raises(HandlerError, match="unlucky") as caught:
        h.feed(Move("a", 13))
    assert "raise ValueError" in caught.value.user_traceback
    assert h.states == before
    h.feed(Move("a", 1))
    assert h.state("moved")["a"] == 6


def test_times_default_to_one_step_after_the_last() -> None:
    h = Harness(Account, start=50, step=7)
    h.feed(Move("a", 1))
    assert h.now == 50
    h.feed(Move("a", 1), Move("a", 1, ts=100), Move("a", 1))
    assert h.now == 107


def test_at_puts_events_at_one_time_with_rising_seq() -> None:
    h = Harness(Account(limit=-1))
    h.feed(Move("a", 1), Move("a", 1), at=tl.HOUR)
    assert [(o.position.ts, o.position.seq) for o in h._loop.outcome.outputs] == [(tl.HOUR, 0), (tl.HOUR, 1)]


@pytest.mark.parametrize("late", [Move("a", 1, ts=9), Move("a", 1, ts=10, seq=3), Move("a", 1, ts=11, seq=2)])
def test_events_out_of_order_are_refused(late: Move) -> None:
    h = Harness(Account)
    h.feed(Move("a", 1, ts=10, seq=3))
    with pytest.raises(EventOrderError):
        h.feed(late)


def test_unknown_states_and_things_that_are_no_events_are_refused() -> None:
    h = Harness(Account)
    with pytest.raises(UsageError, match="no state 'move'"):
        h.state("move")
    with pytest.raises(UsageError, match="feed takes events"):
        h.feed("Move")  # type: ignore[arg-type]


events = st.lists(
    st.one_of(
        st.builds(Move, st.sampled_from("ab"), st.sampled_from([-1, 0, 3, 8, 101])),
        st.builds(Reset, st.sampled_from("ab")),
    ),
    max_size=12,
)


@given(events, st.integers(0, 12))
def test_feeding_in_two_parts_gives_what_the_serial_run_gives(given_events: list[tl.Event], cut: int) -> None:
    placed = [e._at(i // 2, i) for i, e in enumerate(given_events)]
    h = Harness(Account)
    # A ts of 0 means "none given", so the time is passed explicitly.
    for event in [*placed[:cut], *placed[cut:]]:
        h.feed(event, at=event.ts)
    assert_same(h._loop.outcome, serial.run(Account, placed))
