"""What one pass is rewritten with, and functions compiled from rewritten trees."""

from __future__ import annotations

import ast
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timelapse.code.functions import compiled_within, remade
from timelapse.code.source import FunctionNode, all_nodes
from timelapse.kernels.python.flat.infer import bound_names
from timelapse.kernels.python.flat.states import StateCode
from timelapse.model.events import Event, Record

_REFUSED = {"locals", "vars", "dir", "eval", "exec", "globals"}


class Unrewritable(Exception):
    """A function that has to stay as it is."""


@dataclass
class Pass:
    """What functions of one pass are rewritten with."""

    states: Mapping[str, StateCode]
    params: Mapping[str, Any]
    member: Callable[[str], Any]
    """What the class (or the pass) holds under a name; MISSING where there is nothing."""
    classes: Sequence[type]
    indexed: frozenset[str]
    """Grouped states of which an index may be kept."""
    final: bool
    numbers: Mapping[type[Event], int] = field(default_factory=dict)
    """Event types that handlers may send, by the number of what happens at one (loop.py); -1: nothing does in this pass."""
    loop: int = 0
    """How many events may derive from one."""
    functions: dict[Any, str] = field(default_factory=dict)
    """Methods by (function, types of the arguments): the name of what was made of each."""
    made: dict[str, Made] = field(default_factory=dict)
    kept: dict[str, types.FunctionType] = field(default_factory=dict)
    records: list[type[Record]] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    """The numbers of events that are sent by code which is written out."""
    rejects: bool = False
    """Whether events may be rejected."""
    counter: Any = field(default_factory=itertools.count)


@dataclass
class Made:
    """A rewritten function. `free` are the names that it takes from the pass."""

    code: types.CodeType
    source: types.FunctionType
    fields: tuple[str, ...] = ()
    """Handlers: the event's fields that are its arguments, in order."""
    event: bool = False
    """Handlers: whether it takes the event as well, as its last argument."""
    refuses: bool = False
    """Handlers: whether it returns True where it has rejected the event."""

    @property
    def free(self) -> tuple[str, ...]:
        return self.code.co_freevars

    def bind(self, cell: Callable[[str], types.CellType]) -> types.FunctionType:
        """The function, with what its names stand for."""
        source = self.source
        own = source.__code__.co_freevars
        return remade(source, self.code, {n: cell(n) for n in self.free if n not in own})


def can_be_rewritten(tree: FunctionNode, names: set[str]) -> bool:
    if not isinstance(tree, ast.FunctionDef):
        return False
    inner = ast.Module(list(tree.body), [])
    if names & set(bound_names(inner)):
        return False
    for node in all_nodes(inner):
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.Nonlocal | ast.Global):
            return False
        if isinstance(node, ast.Name) and (node.id in _REFUSED or node.id == "__class__"):
            return False
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name.startswith("__") and not name.endswith("__"):
            return False  # private to the class, where Python gives it another name
    return True


def compiled(
    function: types.FunctionType, tree: FunctionNode, arguments: list[str] | None, body: list[ast.stmt],
    nonlocals: set[str],
) -> types.CodeType:  # fmt: skip
    """The code of a function with this body. Names that start with `_tl_` and are not its own are free."""
    a = tree.args
    if arguments is None:
        args = ast.arguments(
            [], [ast.arg(x.arg) for x in a.args[1:]], a.vararg and ast.arg(a.vararg.arg),
            [ast.arg(x.arg) for x in a.kwonlyargs], [None for _ in a.kwonlyargs], a.kwarg and ast.arg(a.kwarg.arg), [],
        )  # fmt: skip
    else:
        args = ast.arguments([], [ast.arg(n) for n in arguments], None, [], [], None, [])
    if nonlocals:
        first: list[ast.stmt] = [ast.copy_location(ast.Nonlocal(sorted(nonlocals)), tree.body[0])]
        body = [*first, *body]
    made = ast.FunctionDef(function.__name__, args, body, [], None, None)
    made.lineno = made.end_lineno = tree.lineno
    made.col_offset = made.end_col_offset = 0
    own = {x.arg for x in all_nodes(args) if isinstance(x, ast.arg)}
    own |= {n for n in bound_names(ast.Module(body, [])) if n not in nonlocals}
    used = {n.id for n in all_nodes(made) if isinstance(n, ast.Name) and n.id.startswith("_tl_")} - own
    outer = sorted({*used, *nonlocals, *function.__code__.co_freevars})
    return compiled_within(made, outer, function)
