"""What is said in JSON: keys that are asked for, values, rows."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.types import OptionalType, TupleType, ValueType


def plain(value: Any) -> Any:
    """A value as JSON has it. Integers beyond 2**53 and what JSON has no number for become texts."""
    if value is ABSENT or value is None or isinstance(value, bool | str):
        return None if value is ABSENT else value
    if isinstance(value, int):
        return value if abs(value) <= 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def key_of(spec: StateSpec, given: Any) -> Any:
    """A key from JSON. Raises ValueError."""
    if spec.key is None:
        raise ValueError(f"{spec.name} has no key")
    return _typed(spec.outer or spec.key, given)


def _typed(kind: ValueType, given: Any) -> Any:
    if isinstance(kind, OptionalType):
        return None if given is None else _typed(kind.inner, given)
    if isinstance(kind, TupleType):
        if not isinstance(given, list) or len(given) != len(kind.items):
            raise ValueError(f"a key is a list of {len(kind.items)} values: {kind.text}")
        return tuple(_typed(k, v) for k, v in zip(kind.items, given, strict=True))
    name = kind.text
    if not isinstance(given, str | int | float) or isinstance(given, bool) != (name == "bool"):
        raise ValueError(f"{given!r:.60} is no {name}")
    try:
        if name in ("int", "Time"):
            return _whole(given)
        if name == "bytes":
            return base64.b64decode(str(given), validate=True)
        if name == "bool":
            return given
        if name == "str":
            return str(given)
        return Decimal(str(given))
    except (ValueError, ArithmeticError):
        raise ValueError(f"{given!r:.60} is no {name}") from None


def _whole(given: str | float) -> int:
    if isinstance(given, float):
        raise ValueError
    return int(given)
