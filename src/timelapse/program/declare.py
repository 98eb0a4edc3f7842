"""Reading and checking a program class. What cannot be replayed is refused here, with the line."""

from __future__ import annotations

import ast
import dis
import inspect
import sys
import types
import typing
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

from timelapse.code.source import all_nodes, function_source, statements, tree_of
from timelapse.depth import roomy
from timelapse.errors import DefinitionError, Place, TimelapseError
from timelapse.ids import DAY
from timelapse.kinds import registry
from timelapse.kinds.base import State as StateBase
from timelapse.kinds.base import StateAlias, StateOptions, StateSpec
from timelapse.model import decimals
from timelapse.model.events import Event, Record
from timelapse.model.resource import Resource
from timelapse.model.types import TupleType, parse_value
from timelapse.program.pending import pending_states
from timelapse.program.program import RUNTIME_NAMES, HandlerSpec, Listens, ParamSpec, Program, ProgramSpec

_RESERVED = {*RUNTIME_NAMES, *(n for n in dir(Program) if not n.startswith("__"))}


def declare_program(cls: type, options: dict[str, Any]) -> ProgramSpec:
    """The declarations of a program class. Raises DefinitionError naming class, line and remedy."""
    loop, gap = options.pop("loop"), options.pop("gap")
    if options:
        raise _error(cls, None, f"unknown class option {next(iter(options))!r}", "TL105",
                     "class P(tl.Program, loop=1000, gap=400 * tl.DAY): how many events one may derive, and how long "
                     "a log may be silent while there are ticks")  # fmt: skip
    if type(loop) is not int or loop < 1:
        raise _error(cls, None, f"loop is {loop!r}", "TL105",
                     "class P(tl.Program, loop=1000): the number of events that one event may derive")  # fmt: skip
    if type(gap) is not int or gap < DAY:
        raise _error(cls, None, f"gap is {gap!r}", "TL105",
                     "class P(tl.Program, gap=400 * tl.DAY): how long a log may be silent while there are ticks, a "
                     "day at least")  # fmt: skip
    params: dict[str, ParamSpec] = {}
    states: dict[str, StateSpec] = {}
    for base in reversed(cls.__mro__):
        if not isinstance(base, type) or base in (object, Program):
            continue
        _declare_names(cls, base, params, states)
    for base in cls.__mro__:
        for name in RUNTIME_NAMES:
            if base not in (object, Program) and name in base.__dict__:
                raise _error(cls, _line_of(base, name), f"the name {name!r} is taken by tl.Program", "TL105",
                             "rename it: in handlers self." + name + " is what the run supplies")  # fmt: skip
    handlers = _handlers(cls)
    for name in _method_names(cls):
        function = _function(cls, name)
        if function is not None:
            _check_function(cls, name, function, params, states)
    from timelapse.program.times import sent_types, times_of_function, times_of_handler

    times = [use for handler in handlers for use in times_of_handler(handler, params)]
    functions = _functions(cls)
    for function in functions:
        times += times_of_function(function, f"{cls.__qualname__}.{function.__name__}", states, params)
    states |= pending_states(times)
    return ProgramSpec(
        cls.__qualname__, params, states, handlers, tuple(times), loop, sent_types(functions), gap
    )


# --- names: parameters and states ---------------------------------------------------------------


def _declare_names(cls: type, base: type, params: dict[str, ParamSpec], states: dict[str, StateSpec]) -> None:
    annotations = base.__dict__.get("__annotations__", {})
    lines = _annotation_lines(base)
    for name in annotations:
        line = lines.get(name)
        annotation = _resolve(base, name, annotations[name], line)
        if typing.get_origin(annotation) is ClassVar or annotation is ClassVar:
            continue
        _check_name(base, name, line)
        default = base.__dict__.get(name, _MISSING)
        alias = _as_state(annotation)
        if alias is not None:
            made = _declare_state(base, name, alias, default, line)
            known = states.get(name)
            if known is not None and (known.kind, known.key, known.value) != (
                made.kind,
                made.key,
                made.value,
            ):
                raise _error(base, line, f"{cls.__name__} has two states {name!r} that differ: a {made.kind.__name__} "
                             f"here, a {known.kind.__name__} in another base class", "TL105",
                             "handlers would meet the wrong one: rename one of them")  # fmt: skip
            states[name] = made
            params.pop(name, None)
        elif isinstance(default, StateOptions):
            raise _error(base, line, f"{name!r} has tl.state(...) but is not a state", "TL105",
                         "annotate it with a state kind, for example tl.Value[int, int]")  # fmt: skip
        elif not isinstance(default, property):
            params[name] = _declare_param(base, name, annotation, default, line)
            states.pop(name, None)
    for name, value in base.__dict__.items():
        if name.startswith("__") or name in annotations:
            continue
        if name in params and not isinstance(value, types.FunctionType | property):
            # `ratio = 3.0` in a subclass: a new default for an inherited parameter
            old = params[name]
            params[name] = _declare_param(base, name, None, value, None, old)
        elif isinstance(value, list | dict | set | bytearray):
            raise _error(base, _line_of(base, name), f"{name!r} is a mutable {type(value).__name__} shared "
                         "by every event", "TL101", "make it a state, a tuple, or a frozenset")  # fmt: skip


_MISSING: Any = object()


def _as_state(annotation: Any) -> StateAlias | None:
    if isinstance(annotation, StateAlias):
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, StateBase):
        return StateAlias(annotation, ())
    return None


def _declare_state(base: type, name: str, alias: StateAlias, default: Any, line: int | None) -> StateSpec:
    if default is _MISSING:
        options = StateOptions()
    elif isinstance(default, StateOptions):
        options = default
    else:
        raise _error(base, line, f"the state {name!r} has a plain default", "TL107",
                     f"write `{name}: ... = tl.state(default=...)`")  # fmt: skip
    if isinstance(options.default, list | dict | set | bytearray):
        raise _error(base, line, f"the default of {name!r} is mutable", "TL107", "use a tuple")
    _check_literal_default(base, name, line)
    history = options.history
    if history is not None and (type(history) is not int or history < 1):
        raise _error(base, line, f"the history of {name!r} is {history!r}", "TL121",
                     "a positive number of microseconds, such as 7 * tl.DAY")  # fmt: skip
    if history is not None and not _reads_back(alias.kind):
        raise _error(base, line, f"{name!r} keeps a history that nothing reads: {alias.kind.__name__} has no get(at=)", "TL121",
                     "leave history= out; `ago` and `last` need none")  # fmt: skip
    try:
        return replace(alias.kind.declare(name, alias.args, options, line), history=history)
    except TimelapseError as error:
        code = error.code if isinstance(error, DefinitionError) and error.code != "TL100" else "TL102"
        hint = error.hint or f"it is declared as {alias.kind.__name__}[...]: give a value of that type"
        raise _error(base, line, f"state {name!r}: {error.message}", code, hint) from None


def _reads_back(kind: type[StateBase]) -> bool:
    """Whether some operation of a kind reads what stood at a time."""
    reads = [getattr(kind, name, None) for name, op in kind.ops.items() if op.effect is None]
    return any("at" in inspect.signature(read).parameters for read in reads if callable(read))


def _check_literal_default(base: type, name: str, line: int | None) -> None:
    """A state's default must be a literal: what a name stands for may differ from run to run."""
    node = _class_node(base)
    for statement in node.body if node is not None else ():
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == name
            and isinstance(statement.value, ast.Call)
        ):
            for keyword in statement.value.keywords:
                if keyword.arg == "default" and not _is_literal(keyword.value):
                    raise _error(base, line, f"the default of {name!r} is not a literal", "TL107",
                                 "write the value itself: tl.state(default=0)")  # fmt: skip


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp | ast.BinOp):  # -2**63 and the like, of plain numbers
        return not any(isinstance(n, ast.Name | ast.Call | ast.Attribute) for n in all_nodes(node))
    if isinstance(node, ast.Call):  # a NamedTuple of literals
        return not node.keywords and all(_is_literal(a) for a in node.args)
    try:
        ast.literal_eval(node)
    except ValueError:
        return isinstance(node, ast.Tuple) and all(_is_literal(e) for e in node.elts)
    return True


def _declare_param(
    base: type, name: str, annotation: Any, default: Any, line: int | None, inherited: ParamSpec | None = None
) -> ParamSpec:
    if isinstance(default, Resource):
        return ParamSpec(name, "resource", _is_resource, default)
    if isinstance(default, list | dict | set | bytearray):
        raise _error(base, line, f"the parameter {name!r} has a mutable default", "TL101",
                     "use a tuple or a frozenset")  # fmt: skip
    if inherited is not None:
        text, check = inherited.text, inherited.check
    elif annotation is Decimal:  # of whatever scale its value is written with
        text, check = "Decimal", decimals.parameter(f"the parameter {name}")
    else:
        try:
            parsed = parse_value(annotation)
        except DefinitionError as error:
            origin = typing.get_origin(annotation)
            if annotation is tuple or origin in (tuple, frozenset) or annotation is frozenset:
                text, check = str(annotation), _check_frozen(name)
            else:
                raise _error(
                    base, line, f"{name!r} is neither a parameter nor a state: {error.message}", "TL102",
                    f"{error.hint}; states are {', '.join(f'tl.{kind}' for kind in registry.MODULES)}",
                ) from None  # fmt: skip
        else:
            text = parsed.text
            check = parsed.checker(f"the parameter {name}")
            if isinstance(parsed, TupleType) and parsed.cls is None and isinstance(default, list):
                check = _check_frozen(name)
    if default is _MISSING:
        return ParamSpec(name, text, check, None, required=True)
    try:
        return ParamSpec(name, text, check, check(default))
    except TimelapseError as error:
        raise _error(base, line, error.message, "TL102", error.hint) from None


def _is_resource(value: Any) -> Any:
    if not isinstance(value, Resource):
        raise DefinitionError("a resource parameter takes a tl.resource(...)", code="TL102")
    return value


def _check_frozen(name: str) -> Any:
    plain = (int, float, bool, str, bytes, type(None), Decimal)

    def check(value: Any) -> Any:
        if isinstance(value, plain):
            return value
        if isinstance(value, tuple | frozenset):
            for item in value:
                check(item)
            return value
        raise DefinitionError(
            f"the parameter {name} holds a {type(value).__name__}", hint="use tuples of plain values",
            code="TL102",
        )  # fmt: skip

    return check


def _check_name(base: type, name: str, line: int | None) -> None:
    if name in _RESERVED:
        raise _error(base, line, f"the name {name!r} is taken by tl.Program", "TL105", "rename it")
    if name.startswith("__"):
        raise _error(base, line, f"the name {name!r} would be mangled", "TL105", "use one underscore")


def _resolve(base: type, name: str, annotation: Any, line: int | None) -> Any:
    if not isinstance(annotation, str):
        return annotation
    module = vars(sys.modules.get(base.__module__, typing))
    scope: dict[str, Any] = {}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == base.__module__:
            for key, value in frame.f_locals.items():
                scope.setdefault(key, value)
        frame = frame.f_back
    try:
        return eval(annotation, dict(module), scope)  # noqa: S307 the user's own annotation
    except TimelapseError as error:
        raise _error(base, line, f"{name!r}: {error.message}", "TL102", error.hint) from None
    except Exception as error:
        raise _error(base, line, f"the annotation of {name!r} cannot be resolved: {annotation} ({error})",
                     "TL102", "import the names it uses before the class") from None  # fmt: skip


# --- handlers -----------------------------------------------------------------------------------


def _handlers(cls: type) -> tuple[HandlerSpec, ...]:
    """Base classes first; an override takes its base's place; `name = None` takes a handler out."""
    found: dict[str, Listens] = {}
    for base in reversed(cls.__mro__):
        for name, value in base.__dict__.items():
            listens = getattr(value, "__tl_listens__", None)
            if listens is not None:
                found[name] = listens
    handlers = []
    for name, listens in found.items():
        function = _function(cls, name)
        if function is None:
            if getattr(cls, name, None) is None:
                continue
            raise _error(cls, None, f"the handler {name!r} is not a plain method", "TL105",
                         "define it with def; put other decorators on helpers")  # fmt: skip
        own = getattr(function, "__tl_listens__", listens)
        _check_signature(cls, name, function, ticks=own.every is not None)
        place = _place(function, f"{cls.__qualname__}.{name}")
        handlers.append(HandlerSpec(name, own.events, function, place, own.after, own.every, own.zone))
    return tuple(handlers)


def _check_signature(cls: type, name: str, function: types.FunctionType, *, ticks: bool) -> None:
    code = function.__code__
    place = _place(function, f"{cls.__qualname__}.{name}")
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise DefinitionError("an async handler has no place in log order", place=place,
                              hint="write it as a plain def", code="TL104")  # fmt: skip
    if code.co_flags & inspect.CO_GENERATOR:
        raise DefinitionError("a handler cannot be a generator", place=place,
                              hint="use self.emit(...) instead of yield", code="TL104")  # fmt: skip
    plain = code.co_argcount == (1 if ticks else 2) and not code.co_kwonlyargcount
    wrong = not plain or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if wrong and ticks:
        raise DefinitionError("a tick has no event: its handler takes self, nothing else", place=place,
                              hint=f"def {name}(self):  # the time is self.now", code="TL105")  # fmt: skip
    if wrong:
        raise DefinitionError("a handler takes self and the event, nothing else", place=place,
                              hint=f"def {name}(self, e):", code="TL105")  # fmt: skip


def _method_names(cls: type) -> list[str]:
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        if base in (object, Program):
            continue
        for name, value in base.__dict__.items():
            if isinstance(value, types.FunctionType | property | staticmethod | classmethod):
                names[name] = None
    return list(names)


def _functions(cls: type) -> list[types.FunctionType]:
    """All functions in the bodies of the class and its bases: overridden ones too, which `super()` reaches."""
    found: dict[types.FunctionType, None] = {}
    for base in reversed(cls.__mro__):
        if base not in (object, Program):
            for value in base.__dict__.values():
                inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if isinstance(inner, types.FunctionType):
                    found[inner] = None
    return list(found)


def _function(cls: type, name: str) -> types.FunctionType | None:
    value = inspect.getattr_static(cls, name, None)
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    return value if isinstance(value, types.FunctionType) else None


def _check_function(
    cls: type, name: str, function: types.FunctionType,
    params: dict[str, ParamSpec], states: dict[str, StateSpec],
) -> None:  # fmt: skip
    place = _place(function, f"{cls.__qualname__}.{name}")
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if isinstance(default, list | dict | set | bytearray):
            raise DefinitionError("a mutable default argument is hidden state", place=place,
                                  hint="use a declared state, or a tuple", code="TL102")  # fmt: skip
    source = function_source(function)
    if source.node is None:
        for instruction in dis.get_instructions(function):
            if instruction.opname == "STORE_GLOBAL":
                raise _global(place, "global", str(instruction.argval))
        return
    is_static = isinstance(inspect.getattr_static(cls, name, None), staticmethod | classmethod)
    args = source.node.args.posonlyargs + source.node.args.args
    receiver = args[0].arg if args and not is_static else None
    known = {*params, *states, *_RESERVED, *_class_names(cls)}
    for node in all_nodes(source.node):
        at = Place(source.file, getattr(node, "lineno", source.line), place.what)
        if isinstance(node, ast.Global | ast.Nonlocal):
            raise _global(at, "global" if isinstance(node, ast.Global) else "nonlocal", node.names[0])
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == receiver
            and not node.attr.startswith("__")
        ):
            _check_attribute(at, node, known, states, params)
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node):
            raise DefinitionError("this catches self.reject too", place=at,
                                  hint="catch Exception or something narrower", code="TL106")  # fmt: skip


def _check_attribute(
    at: Place,
    node: ast.Attribute,
    known: set[str],
    states: dict[str, StateSpec],
    params: dict[str, ParamSpec],
) -> None:
    if isinstance(node.ctx, ast.Store | ast.Del):
        spec = states.get(node.attr)
        if (
            spec is not None
            and spec.key is None
            and (isinstance(node.ctx, ast.Del) or spec.kind.attribute_style)
        ):
            return
        if node.attr in states:
            hint = f"write to a key: self.{node.attr}[...] = ..."
            message = f"self.{node.attr} is a keyed state and cannot be assigned"
        elif node.attr in params:
            hint = "parameters never change; declare a state"
            message = f"self.{node.attr} is a parameter and cannot be assigned"
        else:
            hint = f"declare it as a state, for example `{node.attr}: tl.Value[int] = tl.state(default=0)`"
            message = f"self.{node.attr} is not declared"
        raise DefinitionError(message, place=at, hint=hint, code="TL103")
    if node.attr not in known:
        raise DefinitionError(f"self.{node.attr} is not declared", place=at,
                              hint="declare it as a state or parameter of the class", code="TL103")  # fmt: skip


def _catches_everything(node: ast.ExceptHandler) -> bool:
    if node.type is None:
        return True
    names = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(isinstance(n, ast.Name) and n.id == "BaseException" for n in names)


def _global(place: Place, word: str, name: str) -> DefinitionError:
    return DefinitionError(f"`{word} {name}` is state that Timelapse does not see", place=place,
                           hint=f"declare {name} as a state of the program", code="TL106")  # fmt: skip


def _class_names(cls: type) -> set[str]:
    return {n for base in cls.__mro__ if base is not object for n in base.__dict__}


# --- places -------------------------------------------------------------------------------------


def _place(function: types.FunctionType, what: str) -> Place:
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno, what)


@roomy
@lru_cache(maxsize=8)
def _classes(file: str, text: str) -> tuple[ast.ClassDef, ...]:
    """The class statements of a file. Kept, because every declaration in it asks for them."""
    try:
        return tuple(n for n in statements(tree_of(file, text)) if isinstance(n, ast.ClassDef))
    except SyntaxError:
        return ()


def _class_node(cls: type) -> ast.ClassDef | None:
    """The class statement: found through one of its functions, else by name in its module's file."""
    import linecache

    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    for value in cls.__dict__.values():
        if isinstance(value, types.FunctionType):
            file = value.__code__.co_filename
            break
    classes = _classes(file, "".join(linecache.getlines(file))) if file else ()
    lines = {v.__code__.co_firstlineno for v in cls.__dict__.values() if isinstance(v, types.FunctionType)}
    for node in (n for n in classes if n.name == cls.__name__):
        if all(node.lineno <= line <= (node.end_lineno or line) for line in lines):
            return node
    return None


def _annotation_lines(cls: type) -> dict[str, int]:
    node = _class_node(cls)
    return {
        s.target.id: s.lineno
        for s in (node.body if node is not None else ())
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    }


def _line_of(cls: type, name: str) -> int | None:
    node = _class_node(cls)
    for s in node.body if node is not None else ():
        if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in s.targets):
            return s.lineno
    return None


def _error(cls: type, line: int | None, message: str, code: str, hint: str | None = None) -> DefinitionError:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    for value in cls.__dict__.values():
        if isinstance(value, types.FunctionType):
            file = value.__code__.co_filename
            break
    return DefinitionError(message, place=Place(file, line, cls.__qualname__), hint=hint, code=code)


__all__ = ["Event", "Record", "declare_program"]
