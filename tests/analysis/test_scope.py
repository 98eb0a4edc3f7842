"""What names stand for."""

from __future__ import annotations

import ast
from typing import Any

import pytest

import timelapse as tl
from timelapse.analysis.scope import UNKNOWN, Scope


def test_names_that_the_package_imports_later_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tl.SECOND` in a handler is a number, whether or not anybody has asked for it before."""

    def handler() -> int:
        return tl.SECOND

    monkeypatch.delitem(vars(tl), "SECOND", raising=False)
    function: Any = handler
    scope = Scope.of(function)
    assert scope.resolve(ast.parse("tl.SECOND", mode="eval").body) == 1_000_000
    assert scope.resolve(ast.parse("tl.nothing", mode="eval").body) is UNKNOWN
