"""What names stand for."""

from __future__ import annotations

import ast
from typing import Any

import pytest

import timelapse as tl
from timelapse.code.scope import UNKNOWN, Scope
from timelapse.kinds.smoothed import Smoothed


def test_names_that_the_package_imports_later_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tl.Smoothed` in a handler is the kind, whether or not anybody has asked for it before."""

    def handler() -> object:
        return tl.Smoothed

    monkeypatch.delitem(vars(tl), "Smoothed", raising=False)
    function: Any = handler
    scope = Scope.of(function)
    assert scope.resolve(ast.parse("tl.Smoothed", mode="eval").body) is Smoothed
    assert scope.resolve(ast.parse("tl.nothing", mode="eval").body) is UNKNOWN
