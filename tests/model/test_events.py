"""Events and records: typed, immutable, never mistaken for sequences."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import timelapse as tl
from timelapse.errors import BadString, IntRange, TypeMismatch
from timelapse.model.events import arrow_schema


class Both(tl.Event):
    n: int
    tags: list[str]
    share: float | None
    when: tl.Time


class Out(tl.Record, key=("a", "b")):
    a: int
    b: str


class Wider(Both):
    more: bytes


def make(**changes: object) -> Both:
    fields: dict[str, object] = {"n": 1, "tags": ["x"], "share": 2, "when": 5, "ts": 7, "seq": 3, **changes}
    return Both(**fields)  # type: ignore[arg-type]


def test_values_are_stored_as_declared() -> None:
    """Lists become tuples, ints in float places become floats; ts and seq are there."""
    event = make()
    assert tuple(event.tags) == ("x",)
    assert type(event.tags).__name__ == "tuple"
    assert isinstance(event.share, float)
    assert (event.ts, event.seq, event.when) == (7, 3, 5)
    assert repr(event) == "Both(n=1, tags=('x',), share=2.0, when=5, ts=7, seq=3)"


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"n": "1"}, TypeMismatch, "Both.n must be int"),
        ({"n": True}, TypeMismatch, "bool is not int"),
        ({"n": 2**63}, IntRange, "outside int64"),
        ({"tags": "x"}, TypeMismatch, "Both.tags"),
        ({"tags": [1]}, TypeMismatch, "element of Both.tags"),
        ({"tags": ["\ud800"]}, BadString, "surrogate"),
        ({"share": "x"}, TypeMismatch, "Both.share"),
        ({"ts": 1.5}, TypeMismatch, "ts must be"),
        ({"no": 1}, TypeMismatch, "no field 'no'"),
    ],
)
def test_wrong_values_name_the_field(changes: dict[str, object], error: type[Exception], text: str) -> None:
    """A wrong value raises at construction and says which field."""
    with pytest.raises(error, match=text):
        make(**changes)


def test_rows_are_immutable_and_not_sequences() -> None:
    """No assignment, no iteration, no indexing, no length, no order."""
    event: Any = make()
    with pytest.raises(AttributeError):
        event.n = 2
    for wrong in (
        lambda: list(event),
        lambda: event[0],
        lambda: len(event),
        lambda: event < event,
        lambda: event + event,
    ):
        with pytest.raises(TypeError):
            wrong()


def test_equality_is_by_class_and_all_fields() -> None:
    """Two events are equal when class, fields, ts and seq are."""
    assert make() == make()
    assert make() != make(seq=4)
    assert make() != (1, ("x",), 2.0, 5, 7, 3)
    assert hash(make()) == hash(make())


def test_inherited_fields_come_first() -> None:
    """A subclass adds fields after its base's."""
    assert [f.name for f in Wider.__fields__] == ["n", "tags", "share", "when", "more"]
    assert Wider(n=1, tags=[], share=None, when=0, more=b"").more == b""


def test_records_know_their_key_and_schema() -> None:
    """`key=` is kept; the Arrow schema has the declared types."""
    assert Out.__key__ == ("a", "b")
    schema = arrow_schema(Both)
    assert schema.names == ["n", "tags", "share", "when"]
    assert schema.field("share").nullable
    assert not schema.field("n").nullable


def test_rows_survive_pickling() -> None:
    """They travel between processes."""
    event = make()
    assert pickle.loads(pickle.dumps(event)) == event
