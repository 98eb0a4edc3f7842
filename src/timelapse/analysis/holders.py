"""Which fields of records hold what the program uses as a key: users, addresses, accounts, and not how many or how much."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from timelapse.analysis.analyse import Analysis
from timelapse.code.source import all_nodes

_IDS = ("_id", "Id", "ID")


def is_id(name: str) -> bool:
    """Whether a field is called as what identifies something."""
    return name == "id" or name.endswith(_IDS)


def key_fields(
    analysis: Analysis, records: Mapping[str, Sequence[str]]
) -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Names of what states' keys are made of (`sender` of `self.sent[e.sender]`), and by record type the fields in which
    such a value, or one that is called an id, is put out under another name (`account=e.source`, `txn=e.id`).

    `records`: the fields of each record type, in order. Found by the names in the text of handlers; what is computed on
    the way is not followed.
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
            for made in all_nodes(emit):
                if isinstance(made, ast.Call) and isinstance(made.func, ast.Name | ast.Attribute):
                    record = made.func.id if isinstance(made.func, ast.Name) else made.func.attr
                    placed = zip(records.get(record, ()), made.args, strict=False)
                    given = (*placed, *((k.arg, k.value) for k in made.keywords))
                    held = {
                        to for to, value in given if to and any(n in names or is_id(n) for n in _leaf(value))
                    }
                    if held:
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
        if isinstance(key, ast.Call) and child is key.func:
            # `e.name.lower()` is made of `e.name`; `math.floor(...)` and `floor(...)` name a function only.
            if isinstance(child, ast.Attribute) and not isinstance(child.value, ast.Name):
                yield from _names(child.value)
        elif isinstance(child, ast.expr):
            yield from _names(child)
