"""The type parameters of kinds: of a key, a value, a member and a field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with defaults: PEP 696
else:
    from typing import TypeVar as _TypeVar

    def TypeVar(name, default=None):  # noqa: N802 it stands in for typing's, which takes a default only from Python 3.13 on
        return _TypeVar(name)


K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
M = TypeVar("M", default=Any)
F = TypeVar("F", default=Any)
