"""Views of the past, `self.x.last(W)` and `self.x.ago(L)`: reads of x, as far as dependence goes.

What a window holds follows from the writes of its state alone, so a view depends on what those depend on. A pass that needs
a view at a slice's start gets the rows of the state's log (tables/effectlog.py) for as long as a view looks back. A
pass that collects effects without knowing the state must know what each row says: so some effects are no scan where
there are views, and reads that idioms take out elsewhere stay reads.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from timelapse.kinds.base import StateSpec
from timelapse.model.pending import HANDLED, PENDING
from timelapse.model.program import ProgramSpec, TimeUse

if TYPE_CHECKING:
    from timelapse.analysis.analyse import Analysis

VIEWS = ("last", "ago")

_KNOWN_AT_ONCE = {"net": frozenset({"add", "more", "less"}), "present": frozenset({"set", "del"})}
"""Effects that say by themselves what their row says."""


def is_view(node: ast.AST) -> bool:
    """Whether it is `something.last(W)` or `something.ago(L)`, with one argument."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in VIEWS
        and len(node.args) == 1
        and not node.keywords
        and not isinstance(node.args[0], ast.Starred)
    )


def viewed(node: ast.expr) -> ast.expr:
    """What a view is of; anything else is itself."""
    if is_view(node):
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        return node.func.value
    return node


def length_of(node: ast.expr) -> ast.expr | None:
    """How far a view looks back, as it is written."""
    return node.args[0] if is_view(node) and isinstance(node, ast.Call) else None


def viewed_states(spec: ProgramSpec) -> dict[str, frozenset[str]]:
    """The states that are looked back on, and how."""
    found: dict[str, set[str]] = {}
    for use in spec.times:
        if use.what in VIEWS:
            found.setdefault(use.state, set()).add(use.what)
    return {name: frozenset(whats) for name, whats in found.items()}


def not_a_scan(state: StateSpec, effects: frozenset[str]) -> str | None:
    """Why a state that is looked back on cannot be a scan; None where it can."""
    odd = sorted(effects - _KNOWN_AT_ONCE.get(state.kind.log_form, frozenset()))
    if not odd:
        return None
    return f"what {' and '.join(odd)} leaves in a window of {state.name} depends on what it held before"


def serial_only(analysis: Analysis) -> TimeUse | None:
    """The first use of another time that takes more than the log, a calendar, a transaction and rows of what was written.

    Such programs run one event after the other, by the serial loop.
    """
    for use in analysis.spec.times:
        if use.what in VIEWS:
            if not _from_rows(analysis, use):
                return use
        elif use.what not in HANDLED:
            return use
        elif use.what not in ("after", "every", "derive") and PENDING not in analysis.spec.states:
            return use  # what lies ahead is a state only where nothing else reaches into other times
    return None


def _from_rows(analysis: Analysis, use: TimeUse) -> bool:
    """Whether a view follows from rows of what was done to stored keys."""
    state = analysis.spec.states[use.state]
    if state.history is not None:
        return False
    if state.kind.net_window:
        return True
    if analysis.opaque:
        return False
    if use.what == "ago":
        return state.kind.log_form == "net"
    return bool(state.kind.log_form) and not analysis.facts[use.state].effects & state.kind.unlogged
