"""Calls that analysis cannot see through: trusted to depend on their arguments alone."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any

from timelapse.analysis.library import Library
from timelapse.analysis.mutability import Kind, Mutability
from timelapse.analysis.purity.rules import is_refused
from timelapse.analysis.tables import PURE_BUILTINS, READING_METHODS, builtin_name, is_math
from timelapse.code.scope import UNKNOWN, Scope
from timelapse.code.source import all_nodes, function_source
from timelapse.model.events import Event, Record

Trusted = tuple[ast.AST, str, str]
"""Where, what is called, what kind of thing it is."""


def trusted_calls(
    scope: Scope,
    node: ast.Call,
    mutability: Mutability | None,
    library: Library,
    seen: frozenset[types.FunctionType] = frozenset(),
) -> Iterator[Trusted]:
    """What has to be trusted for one call; helper functions with source are looked into."""
    target: Any = scope.resolve(node.func)
    name = ast.unparse(node.func)
    if builtin_name(target) in PURE_BUILTINS or is_math(target) or library.call(node) is not None:
        return
    if isinstance(target, type):
        if not issubclass(target, Event | Record | tuple | BaseException):
            yield node, name, "a class"
        return
    if isinstance(target, types.FunctionType):
        source = function_source(target, lambdas=True)
        if source.node is None:
            yield node, name, source.problem or "no source"
        elif target not in seen:  # closures of one code may call each other
            if _is_library(scope.function, target):
                yield node, name, f"a function of {target.__module__}"
                return
            inner = Scope.of(target)
            its = Library(inner, source.node.body)
            for call in all_nodes(source.node):
                if isinstance(call, ast.Call) and call not in source.node.decorator_list:
                    for _, what, why in trusted_calls(inner, call, None, its, seen | {target}):
                        yield node, f"{name}: {what}", why
        return
    if target is UNKNOWN and isinstance(node.func, ast.Attribute):
        if _reads_plain(scope.resolve(node.func.value), node.func.attr):
            return
        known = node.func.attr in READING_METHODS or node.func.attr in _CHANGING
        if known and (mutability is None or mutability.kind(node.func.value) <= Kind.CONTAINER):
            return
        yield node, name, "a method of an object that analysis does not know"
        return
    if target is not UNKNOWN and is_refused(target, node):
        return
    yield node, name, "a library function" if target is not UNKNOWN else "not known before it runs"


def _reads_plain(value: object, method: str) -> bool:
    """Whether a method of an object of the module only reads it, and depends on it and its arguments alone.

    That the program changes the object is refused elsewhere (purity/shared.py).
    """
    plain = type(value) in (dict, list, set, frozenset, tuple, str, bytes, int, float, types.MappingProxyType)
    return plain and method in READING_METHODS


_CHANGING = frozenset({
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update",
})  # fmt: skip


def _is_library(user: types.FunctionType, target: types.FunctionType) -> bool:
    """Whether a function belongs to an installed package or the standard library, not to the user's code."""
    file = target.__code__.co_filename
    return ("site-packages" in file or "/lib/python" in file) and file != user.__code__.co_filename
