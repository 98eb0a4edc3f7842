"""Claims about event types as a log declares them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.errors import LogError
from timelapse.model.types import BOOL, BYTES, FLOAT, INT, STR, TIME, ListType, OptionalType, ValueType
from timelapse.segments.types import EventType, bind, event_types, parse_type, readable_as


class Message(tl.Event):
    id: int
    at: tl.Time
    text: str | None
    tags: list[int]


def _optional(kind: ValueType) -> ValueType:
    return kind if isinstance(kind, OptionalType) else OptionalType(kind)


SCALARS: st.SearchStrategy[ValueType] = st.sampled_from([INT, FLOAT, BOOL, STR, BYTES, TIME])
TYPES = st.recursive(
    SCALARS, lambda inner: st.one_of(inner.map(ListType), inner.map(_optional)), max_leaves=4
)


@given(kind=TYPES)
def test_every_type_survives_its_text(kind: ValueType) -> None:
    assert parse_type(kind.text) == kind


def test_an_unknown_type_text_is_an_error() -> None:
    with pytest.raises(LogError, match="dict"):
        parse_type("list[dict]")


def test_event_types_can_be_pickled_after_use() -> None:
    """They travel to Spark workers."""
    kind = EventType.of(Message)
    assert kind.schema.names == ["id", "at", "text", "tags"]
    assert pickle.loads(pickle.dumps(kind)) == kind
    assert EventType.parse(kind.name, kind.texts) == kind


def test_two_classes_of_one_name_are_refused() -> None:
    def another() -> type[tl.Event]:
        class Message(tl.Event):
            x: int

        return Message

    with pytest.raises(LogError, match="two event types are named Message"):
        event_types([Message, another()])


@pytest.mark.parametrize(
    ("stored", "wanted", "fits"),
    [
        (INT, OptionalType(INT), True),
        (OptionalType(INT), INT, False),
        (INT, TIME, True),
        (TIME, INT, True),
        (INT, FLOAT, False),
        (ListType(INT), ListType(OptionalType(INT)), True),
        (ListType(OptionalType(INT)), ListType(INT), False),
        (STR, BYTES, False),
        (INT, ListType(INT), False),
    ],
)
def test_what_can_be_read_as_what(stored: ValueType, wanted: ValueType, fits: bool) -> None:
    """Only readings that change no value and drop no null."""
    assert readable_as(stored, wanted) is fits


def test_bind_lists_every_difference() -> None:
    """One error names missing types, missing fields and differing types, and what the log holds."""
    kinds = [EventType.parse("Message", [("id", "str"), ("at", "int"), ("more", "float")])]

    class Absent(tl.Event):
        x: int

    with pytest.raises(LogError) as caught:
        bind(kinds, [Message, Absent], log="logs/oct")
    text = str(caught.value)
    for part in ("TL402", "logs/oct", "Message.id: str in the log, int in the program", "Message.text: not a field",
                 "Message.tags: not a field", "Absent: not a type", "Message(id: str, at: int, more: float)"):  # fmt: skip
        assert part in text
    assert "Message.at" not in text


def test_bind_allows_more_types_and_fields() -> None:
    kinds = [
        EventType.parse("Message", [*EventType.of(Message).texts, ("more", "float")]),
        EventType.parse("Other", []),
    ]
    assert bind(kinds, [Message]) == {"Message": Message}
