"""What nothing listens to: methods that take an event and that nothing calls, events that are sent and that nothing handles."""

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
from timelapse.program.program import Program


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


def unheard(functions: Functions) -> Iterator[Diagnostic]:
    """A warning (TL323) for each line that sends an event which no handler may take: a replay fails when it comes there.

    Only where the line says which type of event it is.
    """
    spec, told = functions.spec, set()
    for fn in functions.all:
        for sent in (s for vertex in fn.vertices for s in vertex.found.sends if s.told):
            place = Place(fn.file, getattr(sent.node, "lineno", fn.line), fn.name)
            for event in sent.events:
                listening = [h for h in spec.handlers if event in h.events]
                late = next((h.name for h in listening if h.after is not None), None)
                if (listening and late is None) or (place, event) in told:
                    continue
                told.add((place, event))
                name = event.__name__
                if late is None:
                    yield Diagnostic(
                        "TL323", Severity.WARNING, place,
                        f"{name} is sent, and no handler of {spec.name} listens to it: a replay that comes here fails",
                        f"write a handler with @tl.on({name}); to put something out, self.emit(...)",
                    )  # fmt: skip
                else:
                    yield Diagnostic(
                        "TL323", Severity.WARNING, place,
                        f"{name} is sent, and {late} waits for it with after=: a replay that comes here fails",
                        "after= follows the events of the log; send another event type with after= instead",
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
