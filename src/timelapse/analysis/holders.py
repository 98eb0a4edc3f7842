"""Which fields of records hold what the program uses as a key: users, addresses, accounts, and not how many or how much."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from timelapse.analysis.analyse import Analysis


def key_fields(analysis: Analysis) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Names of what states' keys are made of (`sender` of `self.sent[e.sender]`), and by record type the fields in which
    such a value is put out under another name (`account=e.source`).

    Found by the names in the text of handlers; what is computed on the way is not followed.
    """
    vertices = [v for fn in analysis.functions.all for v in fn.vertices]
    names = frozenset(
        name
        for vertex in vertices
        for key in (*(r.key for r in vertex.found.reads), *(w.key for w in vertex.found.writes))
        if key is not None
        for name in _names(key)
    )
    fields: dict[str, set[str]] = {}
    for vertex in vertices:
        for emit in vertex.found.emits:
            for made in ast.walk(emit):
                if isinstance(made, ast.Call) and isinstance(made.func, ast.Name | ast.Attribute):
                    record = made.func.id if isinstance(made.func, ast.Name) else made.func.attr
                    held = {k.arg for k in made.keywords if k.arg and names & set(_leaf(k.value))}
                    fields.setdefault(record, set()).update(held)
    return names, {record: frozenset(held) for record, held in fields.items()}


def _leaf(node: ast.expr) -> tuple[str, ...]:
    """The name of a local, or of an attribute of one."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return (node.attr,)
    return ()


def _names(key: ast.expr) -> Iterator[str]:
    """The leaves of a key, without the functions that it calls and the times that it is made of."""
    if leaf := _leaf(key):
        yield from (name for name in leaf if name not in ("self", "ts", "now"))
        return
    for child in ast.iter_child_nodes(key):
        if isinstance(child, ast.expr) and not (isinstance(key, ast.Call) and child is key.func):
            yield from _names(child)
