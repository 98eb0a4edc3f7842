"""Trees are gone through as by `ast.walk`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from timelapse.code import source


@pytest.mark.parametrize(
    "text",
    [Path(source.__file__).read_text(encoding="utf-8"), "match x:\n    case {1: 2, **y} | [1, *y]: pass"],
)
def test_all_but_contexts_in_the_same_order(text: str) -> None:
    tree = ast.parse(text)
    expected = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    assert list(source.all_nodes(tree)) == expected


def test_what_is_put_into_a_node_that_was_given_is_not_gone_into() -> None:
    """Nor is it by `ast.walk`: who writes anew what it goes through ends."""
    tree = ast.parse("f(x)", mode="eval")
    seen = []
    for node in source.all_nodes(tree):
        seen.append(type(node))
        if isinstance(node, ast.Call):
            node.args = [ast.Call(node.func, [], [])]
    assert seen == [ast.Expression, ast.Call, ast.Name, ast.Name]
