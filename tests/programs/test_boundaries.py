"""What feature programs say where an event stands exactly on the end of a window, and among events of one time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timelapse as tl
from tests.programs.catalogue import EXAMPLES
from timelapse import serial
from timelapse.program.load import load_events, load_program

START = 1_700_000_000_000_000
MESSAGES, DATING = EXAMPLES / "messages.py", EXAMPLES / "dating.py"


def _event(file: Path, name: str, ts: int, **fields: Any) -> tl.Event:
    made: Any = load_events(str(file))[name]
    event: tl.Event = made(**fields, ts=START + ts)
    return event


def _letter(number: int, ts: int, sender: int, recipient: int) -> tl.Event:
    given = {"id": number, "sender": sender, "recipient": recipient}
    return _event(MESSAGES, "Message", ts, **given, address="here", text="hello")


def _vote(number: int, ts: int, voter: int, receiver: int, score: float = 0.5) -> tl.Event:
    return _event(DATING, "Vote", ts, id=number, voter=voter, receiver=receiver, up=True, score=score)


def _last(place: str, events: list[tl.Event], *fields: str) -> Any:
    """Fields of the row at the last event."""
    found = serial.run(load_program(f"{EXAMPLES}/{place}")(), events).outputs[-1].record
    values = tuple(getattr(found, f) for f in fields)
    return values if len(values) > 1 else values[0]


def _message(events: list[tl.Event], *fields: str) -> Any:
    return _last("messages.py:MessageFeatures", events, *fields)


def test_thirty_days_of_silence_begin_a_conversation_and_a_microsecond_less_does_not() -> None:
    def begun(silence: int) -> Any:
        """2 writes to 1, 1 writes to 2 after the silence; meanwhile 3 has begun a conversation with 1."""
        events = [_letter(0, 0, 2, 1), _letter(1, silence - 1, 3, 1), _letter(2, silence, 1, 2)]
        return _message(events, "initiated")

    assert begun(30 * tl.DAY) == 0.5
    assert begun(30 * tl.DAY - 1) == 0.0


def test_of_the_conversations_those_count_that_began_less_than_seven_days_ago() -> None:
    """1 begins one with 2, 3 one with 1; then 1 goes on with 2."""

    def share(later: int) -> Any:
        return _message([_letter(0, 0, 1, 2), _letter(1, 1, 3, 1), _letter(2, later, 1, 2)], "initiated")

    assert share(7 * tl.DAY - 1) == 0.5
    assert share(7 * tl.DAY) == 0.0
    assert share(7 * tl.DAY + 1) is None


def test_at_one_time_the_earlier_event_begins_the_conversation() -> None:
    assert _message([_letter(0, 0, 1, 2), _letter(1, 0, 2, 1)], "initiated") == 0.0
    assert _message([_letter(0, 0, 1, 1), _letter(1, 0, 1, 1)], "initiated") == 1.0


def test_a_message_is_a_response_for_less_than_fourteen_days() -> None:
    def share(later: int) -> Any:
        return _message([_letter(0, 0, 1, 2), _letter(1, later, 2, 1)], "responses")

    assert share(0) == 1.0
    assert share(14 * tl.DAY - 1) == 1.0
    assert share(14 * tl.DAY) == 0.0


def test_friends_are_those_of_the_time_of_the_message() -> None:
    friends = _event(MESSAGES, "Friendship", 0, a=2, b=1)
    before = [_letter(0, -1, 1, 2), friends, _letter(1, 0, 1, 2)]
    assert _message(before, "to_friends") == 0.5
    assert _message([*before, _letter(2, 7 * tl.DAY - 1, 1, 3)], "to_friends") == 0.5  # the first has left
    assert _message([*before, _letter(2, 7 * tl.DAY, 1, 3)], "to_friends") == 0.0


def test_volume_is_of_the_last_day_and_half_of_the_week_is_not_more_than_half() -> None:
    def busy(gap: int, times: int = 1) -> Any:
        later = [_letter(i, gap, 2, 3) for i in range(1, times + 1)]
        return _message([_letter(0, 0, 1, 2), *later], "volume", "surge")

    assert busy(tl.DAY - 1) == (2, True)
    assert busy(tl.DAY) == (1, False)
    assert busy(tl.DAY, times=2) == (2, True)
    assert busy(7 * tl.DAY) == (1, True)


def test_an_answer_counts_for_all_that_came_before_it_and_for_seven_days() -> None:
    """Two messages to 2, one to 3; 2 answers; the next message of 1 tells."""

    def share(*times: int) -> Any:
        return _last("messages.py:AnsweredByNow", [
            _letter(0, 0, 1, 2), _letter(1, times[0], 1, 2), _letter(2, times[0], 1, 3),
            _letter(3, times[1], 2, 1), _letter(4, times[2], 1, 4),
        ], "answered")  # fmt: skip

    assert share(0, 0, 0) == 2 / 4
    assert share(1, 1, 7 * tl.DAY - 1) == 2 / 4
    assert share(1, 2, 7 * tl.DAY) == 1 / 3
    assert share(1, 7 * tl.DAY, 7 * tl.DAY) == 1 / 3  # answered when the first had just left
    assert share(1, 2, 7 * tl.DAY + 1) == 0.0


def test_recent_votes() -> None:
    def row(votes: list[tl.Event]) -> Any:
        return _last("dating.py:RecentVotes", votes, "outstanding", "mean_score", "lowest_score", "strong")

    # 2 and 3 vote for 1, 1 answers 2: one of two is outstanding. The answer's score does not count, 0.8 is not above 0.8.
    asked = [_vote(0, 0, 2, 1), _vote(1, 0, 3, 1), _vote(2, 0, 1, 2, 0.1), _vote(3, 0, 1, 4, 0.8)]
    assert row([*asked, _vote(4, 0, 1, 4)]) == (0.5, 800.0, 0.8, 0)
    # Asking again asks nothing new; what was asked seven days ago has left, answered or not.
    assert row([*asked, _vote(4, 1, 3, 1), _vote(5, 7 * tl.DAY - 1, 1, 5)])[0] == 0.5
    assert row([*asked, _vote(4, 1, 3, 1), _vote(5, 7 * tl.DAY, 1, 5)])[0] is None
    # After an answer a new vote asks again.
    assert row([*asked, _vote(4, 1, 2, 1), _vote(5, 7 * tl.DAY, 1, 5)])[0] == 1.0
    assert row([*asked, _vote(4, 30 * tl.DAY - 1, 1, 5)])[1:3] == (800.0, 0.8)
    assert row([*asked, _vote(4, 30 * tl.DAY, 1, 5)])[1:3] == (None, None)
