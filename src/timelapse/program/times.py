"""Where a program reaches into another time: found in the text of its methods when the class is defined.

What keeps versions and what reads them is settled there, once, so that a state keeps no more of its
past than some reader can ask for.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Sequence
from typing import Any

from timelapse.code.source import all_nodes, function_source
from timelapse.errors import DefinitionError, LoopBound, Place, TimeRange, UsageError
from timelapse.ids import INT64_MAX
from timelapse.kinds.base import StateSpec
from timelapse.model.events import Event
from timelapse.moments import shown_time, time_text
from timelapse.program.calendar import Calendar
from timelapse.program.program import (
    HandlerSpec,
    ParamSpec,
    Program,
    ProgramSpec,
    Span,
    TimeUse,
    params_of,
    spec_of,
)

VIEWS = ("last", "ago")
_LATER = ("after", "send", "cancel", "dated")
"""Uses of other times by which something happens later that stems from an event."""


def times_of_handler(handler: HandlerSpec, params: dict[str, ParamSpec]) -> list[TimeUse]:
    """What a handler's decorator says. Raises DefinitionError for a parameter that is not there."""
    found = []
    for what, span in (("after", handler.after), ("every", handler.every)):
        if span is None:
            continue
        if isinstance(span, str) and (span not in params or params[span].text not in ("int", "Time")):
            raise DefinitionError(
                f"{what} names {span!r}, which is not a parameter of type int", place=handler.place,
                hint=f"declare it in the class: {span}: int = tl.HOUR", code="TL122",
            )  # fmt: skip
        found.append(TimeUse(what, handler.place))
    return found


def times_of_function(
    function: types.FunctionType, what: str, states: dict[str, StateSpec], params: dict[str, ParamSpec]
) -> list[TimeUse]:
    """Where a method sends, looks back, or dates a write. Raises DefinitionError for what cannot be."""
    source = function_source(function)
    if source.node is None:
        return [TimeUse(n, Place(source.file, source.line, what)) for n in _names(function)]
    arguments = source.node.args.posonlyargs + source.node.args.args
    receiver = arguments[0].arg if arguments else ""
    found = []
    derived = {id(n.func) for n in all_nodes(source.node) if isinstance(n, ast.Call) and is_derived(n)}
    for node in all_nodes(source.node):
        if not isinstance(node, ast.Attribute):
            continue
        place = Place(source.file, getattr(node, "lineno", source.line), what)
        if isinstance(node.value, ast.Name) and node.value.id == receiver and node.attr in ("send", "cancel"):
            at_once = node.attr == "send" and id(node) in derived
            found.append(TimeUse("derive" if at_once else node.attr, place))
    for node in all_nodes(source.node):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        place = Place(source.file, getattr(node, "lineno", source.line), what)
        state = _state(node.func.value, receiver, states)
        if state is not None:
            found += _use_of_state(node, node.func.attr, state, receiver, function, place, params)
    return found


def is_derived(call: ast.Call) -> bool:
    """Whether a call of `self.send` surely derives an event, to be handled within the same transaction."""
    return len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred)


def _names(function: types.FunctionType) -> list[str]:
    """What a function without readable text may do, by the names in its code. How far it looks back is not known."""
    code = function.__code__
    named = any(isinstance(c, tuple) and "at" in c for c in code.co_consts)
    return [name for name in ("send", "cancel") if name in code.co_names] + ["dated"] * named


def _state(node: ast.expr, receiver: str, states: dict[str, StateSpec]) -> StateSpec | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == receiver:
        return states.get(node.attr)
    return None


def _use_of_state(
    node: ast.Call, method: str, state: StateSpec, receiver: str, function: types.FunctionType, place: Place,
    params: dict[str, ParamSpec],
) -> list[TimeUse]:  # fmt: skip
    plain = state.key is None and state.kind.attribute_style
    dated = any(k.arg == "at" for k in node.keywords)
    if plain and (method in VIEWS or dated):
        raise DefinitionError(
            f"self.{state.name} has no key, and is a plain value in handlers", place=place,
            hint=f"give it a key to look back or ahead: {state.name}: tl.{state.kind.__name__}[int], with key 0",
            code="TL121",
        )  # fmt: skip
    if method in VIEWS and method not in state.kind.ops:
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
            raise DefinitionError(
                f"self.{state.name}.{method} takes one length of time", place=place,
                hint=f"self.{state.name}.{method}(7 * tl.DAY)[key]", code="TL120",
            )  # fmt: skip
        own = {*function.__code__.co_varnames, *function.__code__.co_cellvars} - {receiver}
        _check_constant(node.args[0], receiver, own, params, f"self.{state.name}.{method}", place)
        text = ast.unparse(node.args[0])
        return [TimeUse(method, place, state.name, text, receiver, function)]
    if not dated:
        return []
    op = state.kind.ops.get(method)
    known = getattr(state.kind, method, None)
    if op is None or known is None or "at" not in inspect.signature(known).parameters:
        others = sorted(
            n for n, o in state.kind.ops.items()
            if (f := getattr(state.kind, n, None)) is not None and "at" in inspect.signature(f).parameters
        )  # fmt: skip
        raise DefinitionError(
            f"self.{state.name}.{method} takes no at=", place=place, code="TL121",
            hint=f"operations of {state.kind.__name__} with a time: {', '.join(others) or 'none'}",
        )  # fmt: skip
    if op.effect is None and state.history is None:
        raise DefinitionError(
            f"self.{state.name} is read in the past, but keeps no history", place=place, code="TL121",
            hint=f"declare how far back: {state.name}: tl.{state.text} = tl.state(history=7 * tl.DAY); "
            f"or, for a fixed distance, self.{state.name}.ago(...)",
        )  # fmt: skip
    return [TimeUse("past" if op.effect is None else "dated", place, state.name)]


def _check_constant(
    node: ast.expr, receiver: str, own: set[str], params: dict[str, ParamSpec], what: str, place: Place
) -> None:
    """A view's length is made of numbers, names of the module and parameters, so that it is the same always."""
    for part in all_nodes(node):
        fine = isinstance(
            part, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.expr_context
        )
        fine |= isinstance(part, ast.Attribute) or (isinstance(part, ast.Name) and part.id not in own)
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == receiver:
            fine = part.attr in params
        if not fine:
            raise DefinitionError(
                f"{what}: {ast.unparse(node)} is not made of constants and parameters", place=place,
                hint="use a number, a constant of the module or a parameter; for other distances "
                "tl.state(history=...) and get(k, at=...)", code="TL120",
            )  # fmt: skip


def sent_types(functions: Sequence[types.FunctionType]) -> frozenset[type[Event]]:
    """Event types that functions name in their code, if one of them sends."""
    if not any("send" in f.__code__.co_names for f in functions):
        return frozenset()
    found: list[Any] = []
    for function in functions:
        scope: dict[str, Any] = function.__globals__
        found += [scope.get(n) for n in function.__code__.co_names]
        if function.__closure__:
            found += list(inspect.getclosurevars(function).nonlocals.values())
    return frozenset(v for v in found if isinstance(v, type) and issubclass(v, Event))


# --- for a program with its parameters ------------------------------------------------------------


def span_of(program: Program, span: Span) -> int:
    """A length of time in microseconds. Raises UsageError for a parameter that is none."""
    value = params_of(program)[span] if isinstance(span, str) else span
    return _length(value, f"{spec_of(program).name}.{span}")


def calendar_of(program: Program, handler: HandlerSpec) -> Calendar:
    """The ticks of a handler of `@tl.every`."""
    assert handler.every is not None
    return Calendar(span_of(program, handler.every), handler.zone)


def width_of(program: Program, use: TimeUse) -> int:
    """The length of a view in microseconds. Raises UsageError when it is none."""
    function: Any = use.function
    values = types.SimpleNamespace(**params_of(program))
    cells = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    scope = {**function.__globals__, **cells, use.receiver: values}
    try:
        value = eval(use.text, scope)  # noqa: S307 the program's own expression, of names and numbers only
    except Exception as error:
        raise UsageError(
            f"{use.text}, in {use.place}, cannot be computed: {error}",
            hint="use a number, a constant of the module or a parameter", code="TL207",
        ) from error  # fmt: skip
    return _length(value, f"{use.text}, in {use.place},")


def _length(value: Any, what: str) -> int:
    if type(value) is not int or not 0 < value <= INT64_MAX:
        raise UsageError(
            f"{what} is {value!r}, which is no length of time", code="TL207",
            hint="lengths of time are positive int microseconds, such as 7 * tl.DAY",
        )  # fmt: skip
    return value


def kept(program: Program) -> dict[str, int]:
    """How far back the past of each state is read, in microseconds, where it is read at all."""
    spec = spec_of(program)
    found: dict[str, int] = {}
    for use in spec.times:
        if use.what in VIEWS:
            found[use.state] = max(found.get(use.state, 0), width_of(program, use))
    for name, state in spec.states.items():
        if state.history is not None:
            found[name] = max(found.get(name, 0), state.history)
    return found


def windowed(program: Program) -> set[str]:
    """States of which `last(W)` is asked that are not numbers to subtract: their operations are kept."""
    spec = spec_of(program)
    return {
        u.state for u in spec.times if u.what == "last" and not spec.states[u.state].kind.net_window
    }  # fmt: skip


def acts_later(program: Program | type[Program]) -> bool:
    """Whether something that stems from an event may happen, and fail, after its own step."""
    return any(use.what in _LATER for use in spec_of(program).times)


def has_own_times(program: Program | type[Program]) -> bool:
    """The same, or ticks: whether anything happens at other times than those of the log's events."""
    return acts_later(program) or any(use.what == "every" for use in spec_of(program).times)


def refuse_times(program: Program | type[Program], what: str) -> None:
    """Raise UsageError where something does not go with programs that reach into other times."""
    uses = spec_of(program).times
    if uses:
        raise UsageError(
            f"{what} does not go with {uses[0].text_of_what} in this version", place=uses[0].place, code="TL208",
            hint="docs/time.md says what programs that reach into other times can do",
        )  # fmt: skip


# --- while events are processed --------------------------------------------------------------------


def check_sent(spec: ProgramSpec, event: Any) -> type[Event]:
    """The type of an event that is sent. Raises UsageError for what cannot be."""
    cls = type(event)
    if not isinstance(event, Event):
        raise UsageError(
            f"send takes an event, not {cls.__name__}", hint="self.send(Timeout(user=1), after=tl.HOUR)",
            code="TL207",
        )  # fmt: skip
    listening = [h for h in spec.handlers if cls in h.events]
    late = [h for h in listening if h.after is not None]
    if late:
        raise UsageError(
            f"{cls.__name__} is sent, and {spec.name}.{late[0].name} waits for it with after=", code="TL207",
            hint="after= follows the events of the log; send another event type with after= instead",
        )  # fmt: skip
    if not listening:
        raise UsageError(
            f"{cls.__name__} is sent, and no handler of {spec.name} listens to it", code="TL207",
            hint=f"@tl.on({cls.__name__}); to put something out, self.emit(...)",
        )  # fmt: skip
    return cls


def due_at(now: int, after: Any, at: Any) -> int:
    """The time of an event that is sent. Raises TimeRange when it lies before now."""
    if after is not None and at is not None:
        raise UsageError("send takes after= or at=, not both", code="TL207")
    if after is None and at is None:
        return now
    given = at if after is None else after
    due = at if after is None else (now + after if type(after) is int else None)
    if type(given) is not int or type(due) is not int or not now <= due <= INT64_MAX:
        what = "after" if at is None else "at"
        raise TimeRange(
            f"an event is sent with {what}={shown_time(given) if after is None else repr(given)}, and it is {time_text(now)}",
            hint="at= is a time in microseconds that is not before self.now, after= a length of time",
        )
    return due


def not_a_type() -> UsageError:
    """The error for `cancel` of something that is no event type."""
    return UsageError("cancel takes an event type", hint="self.cancel(Timeout, key=k)", code="TL207")


def timer_of(cls: type[Event], key: Any) -> tuple[Any, ...]:
    """What identifies a timer. Keys that Python takes for equal are not: 1 and True."""
    return (cls, _timer_key(key))


def _timer_key(key: Any) -> tuple[Any, ...]:
    if type(key) in (int, str, bool, bytes):
        return (type(key).__name__, key)
    if isinstance(key, tuple):
        return ("tuple", *(_timer_key(k) for k in key))
    raise UsageError(
        f"{key!r} cannot be the key of a timer", hint="keys are int, str, bool, bytes, or tuples of them",
        code="TL207",
    )  # fmt: skip


def loop_bound(spec: ProgramSpec) -> LoopBound:
    """The error for more derived events than a transaction may have."""
    return LoopBound(
        f"more than {spec.loop} events derive from one event",
        hint=f"does the loop end? If it is meant to be long: class {spec.name}(tl.Program, loop={spec.loop * 10})",
    )


def unseen(state: str, what: str) -> UsageError:
    """The error for a look back that was not found when the class was defined."""
    return UsageError(
        f"{state}: {what} was not found when the program was defined, or goes back further than what was",
        hint=f"write self.{state}.last(...) in a method of the program whose file can be read, with constants and "
        "parameters", code="TL207",
    )  # fmt: skip
