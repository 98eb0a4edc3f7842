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
    found: dict[types.FunctionType, None] = {}
    left = [function, *fixtures]
    while left:
        one = _itself(left.pop())
        if one not in found and one.__module__.startswith("tests."):
            found[one] = None
            left += _look(one)[3]
    looks = [_look(one) for one in found]
    return any(p for p, *_ in looks), any(n for _, n, *_ in looks), any(e for *_, e, _ in looks)


@cache
def _look(function: types.FunctionType) -> tuple[bool, bool, bool, list[types.FunctionType]]:
    """The same of one function of the tests alone; and the functions that it names."""
    named = {name: function.__globals__.get(name) for name in _names(function.__code__)}
    return (
        any(map(_is_process, named.values())),
        "native" in _texts(function.__code__),
        _EMULATED in named,
        [value for value in named.values() if isinstance(value, types.FunctionType)],
    )


def _is_process(value: Any) -> bool:
    if value is None:
        return False
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return module in ("subprocess", "multiprocessing")


def _itself(function: types.FunctionType) -> types.FunctionType:
    """A function without what decorators and hypothesis put around it."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return getattr(getattr(function, "hypothesis", None), "inner_test", function)


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
