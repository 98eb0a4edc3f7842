"""JSON into declared classes, in any thread.

msgspec looks at a class when it first decodes one, and runs Python meanwhile. Another thread that decodes the class then, or one that has it as a field, uses what is
not there yet, and the process dies (msgspec 0.22). So one thread at a time has it look at a class, and never again.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_LOCK = threading.Lock()
_DECODERS: dict[Any, Any] = {}


@overload
def decoded(data: bytes | memoryview | str, kind: type[T]) -> T: ...
@overload
def decoded(data: bytes | memoryview | str, kind: Any) -> Any: ...
def decoded(data: bytes | memoryview | str, kind: Any) -> Any:
    """What JSON says, as a class or type. Raises msgspec.MsgspecError, which is a ValueError."""
    found = _DECODERS.get(kind)
    if found is None:
        with _LOCK:
            found = _DECODERS.setdefault(kind, msgspec.json.Decoder(kind))
    try:
        return found.decode(data)
    except UnicodeDecodeError as error:  # of a text in it
        raise msgspec.DecodeError(f"a text in it is not UTF-8: {error}") from None
