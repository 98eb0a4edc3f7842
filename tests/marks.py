"""Marks that follow from what a test takes: nobody has to think of them.

`spark`: it takes the session, or the module or the case says so. `process`: it, or what it calls in the tests, uses `subprocess`.
`compiled`: it has passes compiled to machine code. `slow` follows from what was measured (`tests/times.py`).
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

_EMULATED = "emulated"
"""Who takes this from `tests/native/fuzz/emulate.py` compiles nothing."""


def takes_session(item: pytest.Item) -> bool:
    """Whether a test takes the `spark` fixture, or its case is marked so: it will ask for it by name."""
    case = getattr(item, "callspec", None)
    if case is None:
        return "spark" in getattr(item, "fixturenames", ())
    marked = any(mark.name == "spark" for mark in case.marks)
    return marked or ("spark" in getattr(item, "fixturenames", ()) and "spark" not in case.params)


def derived(item: pytest.Item) -> Iterator[str]:
    """The names of the marks that a test gets."""
    if takes_session(item):
        yield "spark"
    function = getattr(item, "function", None)
    if not isinstance(function, types.FunctionType):
        return
    info: Any = getattr(item, "_fixtureinfo", None)
    fixtures = [d.func for found in info.name2fixturedefs.values() for d in found[-1:]] if info else []
    process, native, emulated = _found(
        function, tuple(f for f in fixtures if isinstance(f, types.FunctionType))
    )
    if process:
        yield "process"
    case = getattr(item, "callspec", None)
    if (native or "native" in map(str, case.params.values() if case else ())) and not emulated:
        yield "compiled"


@cache
def _found(function: types.FunctionType, fixtures: tuple[types.FunctionType, ...]) -> tuple[bool, bool, bool]:
    """Of what a test reaches: whether it uses processes, names compiled passes, and emulates. All cases of a test have the same."""
    reached = _reached(function, fixtures)
    names = {name for f in reached for name in _names(f.__code__)}
    process = any(_is_process(f.__globals__.get(name)) for f in reached for name in _names(f.__code__))
    native = any(text == "native" for f in reached for text in _texts(f.__code__))
    return process, native, _EMULATED in names


def _is_process(value: Any) -> bool:
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return module in ("subprocess", "multiprocessing")


def _reached(
    function: types.FunctionType, fixtures: tuple[types.FunctionType, ...]
) -> list[types.FunctionType]:
    """A test, its fixtures, and the functions of the tests that they name."""
    found: dict[types.FunctionType, None] = {}
    left = [function, *fixtures]
    while left:
        one = left.pop()
        while (inner := getattr(one, "__wrapped__", None)) is not None:
            one = inner
        one = getattr(getattr(one, "hypothesis", None), "inner_test", one)
        if one in found or not one.__module__.startswith("tests."):
            continue
        found[one] = None
        left += [
            v for n in _names(one.__code__) if isinstance(v := one.__globals__.get(n), types.FunctionType)
        ]
    return list(found)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)


def _texts(code: types.CodeType) -> Iterator[str]:
    for const in code.co_consts:
        if isinstance(const, str):
            yield const
        elif isinstance(const, tuple):
            yield from (c for c in const if isinstance(c, str))
        elif isinstance(const, types.CodeType):
            yield from _texts(const)
