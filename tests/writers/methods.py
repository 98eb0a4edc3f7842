"""Writes by method: `x[k] = v` and `del x[k]` in the text of random programs, put as `x.set(k, v)` and `x.discard(k)`."""

from __future__ import annotations

import ast
import random
import re
import zlib

_KINDS = ("Counter", "Sum", "Value", "MapOf")
"""Kinds with `set`; Max and Min have `discard` alone."""
_DECLARED = re.compile(r"^    (\w+): tl\.(Counter|Sum|Value|MapOf|Max|Min)(?:\[(.*?)\](?= = |$)|(?= = |$))", re.MULTILINE)  # fmt: skip


def by_method(text: str, share: float = 0.3) -> str:
    """A program's source with so large a share of its assignments and `del` of keyed states made calls.

    What is chosen follows from the text, so a seed still gives one program.
    """
    kinds = {name: kind for name, kind, key in _DECLARED.findall(text) if _keyed(kind, key)}
    rng = random.Random(zlib.crc32(text.encode()))
    lines = text.splitlines(keepends=True)
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Attribute() as state, slice=key)], value=value):
                called = f"{ast.unparse(state)}.set({_key(key)}, {ast.unparse(value)})"
            case ast.Delete(targets=[ast.Subscript(value=ast.Attribute() as state, slice=key)]):
                called = f"{ast.unparse(state)}.discard({_key(key)})"
            case _:
                continue
        kind = kinds.get(state.attr)
        fits = kind in _KINDS or (kind is not None and isinstance(node, ast.Delete))
        if fits and node.lineno == node.end_lineno and not isinstance(key, ast.Slice):
            found.append((node, called))
    for node, called in sorted(found, key=lambda one: (one[0].lineno, one[0].col_offset), reverse=True):
        if rng.random() < share:
            line = lines[node.lineno - 1].encode()
            assert node.end_col_offset is not None
            made = line[: node.col_offset] + called.encode() + line[node.end_col_offset :]
            lines[node.lineno - 1] = made.decode()
    return "".join(lines)


def _keyed(kind: str, key: str) -> bool:
    """Whether a declaration has a key: `Counter[int]` has, `Counter` and `Value[int]` have none."""
    if kind == "Counter":
        return bool(key)
    inner = re.sub(r"\[[^\[\]]*(\[[^\[\]]*\])*[^\[\]]*\]", "", key)
    return "," in inner


def _key(key: ast.expr) -> str:
    """The key as an argument: a tuple in brackets."""
    text = ast.unparse(key)
    return f"({text})" if isinstance(key, ast.Tuple) and not text.startswith("(") else text
