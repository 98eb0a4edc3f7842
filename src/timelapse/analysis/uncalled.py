"""Methods that take an event and that nothing calls: most often `@tl.on` was forgotten."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

from timelapse.analysis.result import Diagnostic, Severity
from timelapse.analysis.world import Functions
from timelapse.errors import Place
from timelapse.model.events import Event
from timelapse.model.program import Program


def uncalled(cls: type[Program], functions: Functions) -> Iterator[Diagnostic]:
    """A warning (TL322) for each method with an event as its only parameter that no handler comes to.

    Nothing is said where some code may call anything, as far as analysis can tell.
    """
    if functions.opaque:
        return
    called = {fn.function.__code__ for fn in functions.all}
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if not isinstance(method, types.FunctionType) or name.startswith("__") or method.__code__ in called:
            continue
        event = _event(method)
        if event is not None:
            code = method.__code__
            yield Diagnostic(
                "TL322", Severity.WARNING, Place(code.co_filename, code.co_firstlineno, f"{cls.__name__}.{name}"),
                f"{name} takes an event and is never called",
                f"write @tl.on({event}) above it, or call it from a handler",
            )  # fmt: skip


def _event(method: types.FunctionType) -> str | None:
    """The name of the event type that a method takes, if that is all it takes."""
    parameters = list(inspect.signature(method).parameters.values())
    if len(parameters) != 2:
        return None
    given: Any = parameters[1].annotation
    if isinstance(given, str):
        found: Any = method.__globals__
        try:
            for n, part in enumerate(given.split("|")[0].strip().split(".")):
                found = found[part] if n == 0 else inspect.getattr_static(found, part)
        except (KeyError, AttributeError):
            return None
        given = found
    given = next(iter(typing.get_args(given)), given)
    return (
        given.__name__
        if isinstance(given, type) and issubclass(given, Event) and given is not Event
        else None
    )
