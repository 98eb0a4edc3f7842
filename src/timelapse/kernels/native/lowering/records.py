"""How records, and events that are sent, are laid out in arrays and words."""

from __future__ import annotations

from typing import Any

from timelapse.kernels.native.lowering.values import kind_of
from timelapse.model.events import Event, Record
from timelapse.model.types import OptionalType, ScalarType

LATER = 1 << 40
"""Added to the ordinals of what later events put out (`Unit.later`)."""


def record_columns(cls: type[Record | Event]) -> list[tuple[str, str]]:
    """The arrays, or words, that a record's fields go to: part of the name, kind. Before an optional's, its presence."""
    found: list[tuple[str, str]] = []
    for place, field in enumerate(cls.__fields__):
        inner = field.type.inner if isinstance(field.type, OptionalType) else field.type
        if isinstance(field.type, OptionalType):
            found.append((f"{place}v", "bool"))
        found.append((str(place), kind_of(inner) or "int"))
    return found


def scalar(kind: Any) -> str:
    """The name of a scalar type; "" for others."""
    return kind.name if isinstance(kind, ScalarType) else ""


def sent_word(number: int, at: int) -> str:
    """The variable for a word of an event that was sent, of the type of this number."""
    return f"d{number}_{at}_"
