"""Views of the past, `self.x.last(W)` and `self.x.ago(L)`: reads of x, as far as dependence goes.

What a window holds follows from the writes of its state alone, so a view depends on what those depend on. A pass that needs
a view at a slice's start gets the rows of the state's log (tables/effectlog.py) for as long as a view looks back. A
pass that collects effects without knowing the state must know what each row says: so some effects are no scan where
there are views, and reads that idioms take out elsewhere stay reads.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from timelapse.kinds.base import StateSpec
from timelapse.program.pending import HANDLED, PENDING, WRITES, is_hidden
from timelapse.program.program import ProgramSpec, TimeUse

VIEWS = ("last", "ago")

LOOKING = (*VIEWS, "past")
"""Uses of other times that look back: the last one by `get(at=)`."""

NET, PRESENT, OPS = "net", "present", "ops"
"""What the rows of a log say (tables/effectlog.py)."""

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
        if use.what in LOOKING:
            found.setdefault(use.state, set()).add(use.what)
    return {name: frozenset(whats) for name, whats in found.items()}


def beyond_sums(spec: ProgramSpec, logs: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The states whose rows say more than how much was added, or whether a key is in a set."""
    plain = {name for name, state in spec.states.items() if state.value is None}
    return {n for n, forms in logs.items() if forms != (NET,) and not (forms == (PRESENT,) and n in plain)}


def log_forms(state: StateSpec, uses: frozenset[str], effects: frozenset[str] | None) -> tuple[str, ...]:
    """What the rows of the logs of a state say that is looked back on in these ways. `effects`: all that are done to it; None: nobody knows."""
    kind = state.kind
    values = NET if kind.log_form == NET else PRESENT
    found = []
    if uses & {"ago", "past"}:
        found.append(values)
    if "last" in uses:
        plain = bool(kind.log_form) and effects is not None and not effects & {*kind.unlogged, "opaque"}
        found.append(values if plain or kind.net_window else OPS)
    return tuple(dict.fromkeys(found))


def not_a_scan(state: StateSpec, uses: frozenset[str], effects: frozenset[str]) -> str | None:
    """Why a state that is looked back on cannot be a scan; None where it can."""
    if OPS in log_forms(state, uses, effects):
        return (
            f"what a window of {state.name} holds is made of its operations, which are found as they are done"
        )
    odd = sorted(effects - _KNOWN_AT_ONCE.get(state.kind.log_form, frozenset()))
    if not odd:
        return None
    return f"what {' and '.join(odd)} leaves in a window of {state.name} depends on what it held before"


def serial_only(spec: ProgramSpec) -> TimeUse | None:
    """The first use of another time that takes more than the log, a calendar, a transaction and rows of what was written.

    Such programs run one event after the other, by the serial loop.
    """
    for use in spec.times:
        if is_hidden(use) or use.what not in (*LOOKING, *HANDLED):
            return use
        if use.what in ("send", "cancel", "dated") and not {PENDING, WRITES} & spec.states.keys():
            return use  # what lies ahead is a state only where all of it can be one
    return None
