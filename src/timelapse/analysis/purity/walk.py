"""The purity check: what handlers read or do that a replay cannot reproduce.

Walks the handlers and all user code that they reach (methods, helpers, helper classes), resolves names through
the functions' actual globals and closures (so that `from datetime import datetime as dt; dt.now()` is found), and
asks every rule of `purity.rules.RULES` about every use. Code of installed libraries is not walked: what it does is
known to the rules by name, or trusted.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from timelapse.analysis.purity.names import CODE_TYPES, Reference, is_installed, resolve_chain, root_of
from timelapse.analysis.purity.rules import RULES, Finding
from timelapse.analysis.result import Diagnostic
from timelapse.code.source import FunctionNode, all_nodes, function_source, wrapped
from timelapse.errors import Place
from timelapse.model.events import Event, Record
from timelapse.program.program import Program, ProgramSpec, spec_of


@dataclass(frozen=True)
class Unit:
    """One function to look at, and what it is called in messages."""

    function: types.FunctionType
    what: str
    receiver: str | None = None
    """The name of its first parameter, where that is the program."""


@dataclass
class Scope:
    """A function's names, as a rule needs them."""

    unit: Unit
    node: FunctionNode
    spec: ProgramSpec
    file: str
    events: dict[str, tuple[type[Event], ...]] = field(default_factory=dict)
    """Event parameters, with the types that they may have."""
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    _bound: dict[ast.AST, frozenset[str]] = field(default_factory=dict)
    _imports: dict[str, Reference] = field(default_factory=dict)

    def is_local(self, node: ast.AST, name: str) -> bool:
        """Whether `name`, used at `node`, is bound in the function or in a function or comprehension inside it."""
        at: ast.AST | None = node
        while at is not None:
            if name in self._bound.get(at, ()):
                return True
            at = self.parents.get(at)
        return False

    def resolve(self, node: ast.expr) -> Reference | None:
        """What a chain of names (`dt.now`, `np.random.rand`) stands for; None for what is not known."""
        root = root_of(node)
        if root is None:
            return None
        if root.id in self._imports:
            return resolve_chain(node, self._imports[root.id])
        if self.is_local(node, root.id):
            return None
        function = self.unit.function
        found = _free_variable(function, root.id)
        if found is _MISSING:
            found = function.__globals__.get(root.id, _MISSING)
        if found is _MISSING:
            found = getattr(sys.modules["builtins"], root.id, _MISSING)
        return None if found is _MISSING else resolve_chain(node, Reference.of(found))


_MISSING: Any = object()


def _free_variable(function: types.FunctionType, name: str) -> Any:
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:  # not filled yet
            return _MISSING
    return _MISSING


def purity_findings(program: Program | type[Program]) -> tuple[Diagnostic, ...]:
    """All findings about a program's handlers and the user code that they reach, in the order of the code's discovery."""
    cls = program if isinstance(program, type) else type(program)
    spec = spec_of(cls)
    todo = [Unit(h.function, f"{spec.name}.{h.name}", _first_parameter(h.function)) for h in spec.handlers]
    listens = {h.function.__code__: h.events for h in spec.handlers}
    seen: set[tuple[types.FunctionType, str | None]] = (
        set()
    )  # closures of one code may reach different functions
    found: dict[tuple[str, str | None, int | None, str], Diagnostic] = {}
    for unit in todo:  # grows while it is walked
        if (unit.function, unit.receiver) in seen:
            continue
        seen.add((unit.function, unit.receiver))
        scope = scope_of(unit, spec, listens.get(unit.function.__code__, ()))
        if scope is None:
            continue
        for finding in _findings(scope):
            place = Place(scope.file, finding.line, unit.what)
            diagnostic = Diagnostic(finding.code, finding.severity, place, finding.message, finding.remedy)
            found.setdefault((finding.code, scope.file, finding.line, finding.message), diagnostic)
        todo.extend(_reached(scope, cls))
    return tuple(found.values())


def _findings(scope: Scope) -> Iterator[Finding]:
    for node in [scope.node, *scope.parents]:
        for rule in RULES:
            yield from rule.check(node, scope)


# --- scopes -------------------------------------------------------------------------------------


def scope_of(unit: Unit, spec: ProgramSpec, events: tuple[type[Event], ...] = ()) -> Scope | None:
    """The names of a function; None when its source is not known."""
    source = function_source(unit.function, lambdas=True)
    if source.node is None:
        return None
    scope = Scope(unit, source.node, spec, source.file)
    _link(source.node, scope.parents)
    for node in [source.node, *scope.parents]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            scope._bound[node] = frozenset(_bound_names(node))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            targets = [n for g in node.generators for n in all_nodes(g.target)]
            scope._bound[node] = frozenset(n.id for n in targets if isinstance(n, ast.Name))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                scope._imports[alias.asname or name] = Reference(name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                scope._imports[alias.asname or alias.name] = Reference.named(f"{node.module}.{alias.name}")
    parameters = [a.arg for a in source.node.args.args]
    if unit.receiver is not None and len(parameters) > 1 and events:
        scope.events[parameters[1]] = events
    return scope


def _link(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> None:
    """Parents of all nodes of a function, but for its decorators and all annotations, which do not run with it."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, CODE_TYPES):
                parents[child] = node
                _link(child, parents)


def _bound_names(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[str]:
    args = node.args
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None:
            yield arg.arg
    todo: list[ast.AST] = list(node.body) if isinstance(node.body, list) else [node.body]
    while todo:
        at = todo.pop()
        if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Store | ast.Del):
            yield at.id
        elif isinstance(at, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and at.name is not None:
            yield at.name
        elif isinstance(at, ast.MatchMapping) and at.rest is not None:
            yield at.rest
        elif isinstance(at, ast.Import | ast.ImportFrom):
            yield from ((a.asname or a.name).split(".")[0] for a in at.names)
        if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield at.name
        elif isinstance(at, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            # A comprehension's targets are its own; what `:=` binds inside is the function's.
            yield from (n.target.id for n in all_nodes(at) if isinstance(n, ast.NamedExpr))
        elif not isinstance(at, ast.Lambda):
            todo.extend(ast.iter_child_nodes(at))


def _first_parameter(function: types.FunctionType) -> str | None:
    code = function.__code__
    return code.co_varnames[0] if code.co_argcount else None


# --- what is reached ----------------------------------------------------------------------------


def _reached(scope: Scope, cls: type[Program]) -> Iterator[Unit]:
    """The user's functions that a function refers to."""
    receiver = scope.unit.receiver
    for node in scope.parents:
        if isinstance(node, ast.Attribute) and _is_program(node.value, receiver):
            yield from _methods(cls, node.attr)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            if isinstance(scope.parents[node], ast.Attribute):
                continue  # only whole chains
            found = scope.resolve(node)
            if found is not None and found.has_value:
                given = _given(scope.parents[node], node, receiver)
                for unit in _functions_of(found.value, cls):
                    yield (
                        replace(unit, receiver=_parameter(unit.function, given))
                        if given is not None
                        else unit
                    )


def _given(call: ast.AST, callee: ast.AST, receiver: str | None) -> int | None:
    """At which place a call is given the program."""
    if not isinstance(call, ast.Call) or call.func is not callee or receiver is None:
        return None
    return next((n for n, a in enumerate(call.args) if isinstance(a, ast.Name) and a.id == receiver), None)


def _parameter(function: types.FunctionType, place: int) -> str | None:
    code = function.__code__
    return code.co_varnames[place] if place < code.co_argcount else None


def _is_program(node: ast.expr, receiver: str | None) -> bool:
    if isinstance(node, ast.Name):
        return receiver is not None and node.id == receiver
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _methods(cls: type[Program], name: str) -> Iterator[Unit]:
    for base in cls.__mro__:
        if base in (Program, object) or name not in base.__dict__:
            continue
        member = base.__dict__[name]
        what = f"{spec_of(cls).name}.{name}"
        if isinstance(member, staticmethod):
            function, receiver = _plain(member.__func__), False
        elif isinstance(member, classmethod):
            function, receiver = _plain(member.__func__), True
        else:
            function, receiver = _plain(member.fget if isinstance(member, property) else member), True
        if function is not None:
            yield Unit(function, what, _first_parameter(function) if receiver else None)


def _plain(value: Any) -> types.FunctionType | None:
    """The function inside decorators that keep it as `__wrapped__` (functools.lru_cache, wraps)."""
    for _ in range(10):
        inner = wrapped(value)
        if inner is None:
            break
        value = inner
    return value if isinstance(value, types.FunctionType) else None


def _functions_of(value: Any, cls: type[Program]) -> Iterator[Unit]:
    function = _plain(value)
    if function is not None:
        if is_user_code(function.__module__, function.__code__.co_filename, cls):
            yield Unit(function, function.__qualname__)
    elif isinstance(value, types.MethodType):
        yield from _functions_of(value.__func__, cls)
    elif isinstance(value, type) and not issubclass(value, Event | Record | Program):
        for name, member in vars(value).items():
            inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
            made = _plain(inner.fget if isinstance(inner, property) else inner)
            if made is not None and is_user_code(value.__module__, made.__code__.co_filename, cls):
                yield Unit(made, f"{value.__qualname__}.{name}")


def is_user_code(module: str | None, file: str, cls: type[Program]) -> bool:
    """Whether a function is the user's own: of the program's package, or from outside the installed libraries."""
    top = (module or "").split(".")[0]
    if top == "timelapse":
        return module == cls.__module__  # the programs of the demo
    if top == cls.__module__.split(".")[0]:
        return True
    if file.startswith("<"):
        return False
    return not is_installed(file)
