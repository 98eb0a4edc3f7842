"""Looking ahead: the rows asked for are those that the later event looks up, where its keys are known."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

from tests.native.nodes import nodes
from timelapse.kernels.native.lowering.lookahead import distance, look_ahead
from timelapse.kernels.native.lowering.printing import printed

PAIR = """
    x1 = c0[q0]
    x2 = c1[q0]
    if x1 < x2:
        a = x1
        b = x2
    else:
        a = x2
        b = x1
    r3 = claim2(t0, m0, counts, 0, np.int64(a), np.int64(b))
"""
OVERFLOWING = """
    x1 = c0[q0]
    x2 = x1 + p_n
    if ((x2 ^ x1) & (x2 ^ p_n)) < 0:
        return 1
    r3 = find1(t0, m0, np.int64(x2))
"""
NESTED = """
    r1 = find1(t0, m0, np.int64(c0[q0]))
    x = t0[r1, 2]
    k = c1[q0]
    if x > 0:
        k = k * (2)
        r2 = find1(t1, m1, np.int64(k))
    r3 = find1(t2, m2, np.int64(k))
    r4 = find1(t0, m0, np.int64(x))
"""
LOOP = """
    k = c0[q0]
    i = 0
    while i < 3:
        k = k + 1
        i = i + 1
        r1 = find1(t0, m0, np.int64(k))
    r2 = find1(t0, m0, np.int64(k))
    r3 = find1(t1, m1, np.int64(c1[q0]))
"""
GROWING = "\n".join(["    x = c0[q0]", *["    x = x * x + x"] * 40, "    r = find1(t0, m0, np.int64(x))"])


def ahead(body: str, event: int = 0) -> list[str]:
    """What is asked for."""
    return printed(look_ahead(nodes(body), event), 0)


@pytest.mark.parametrize("body", [PAIR, OVERFLOWING])
def test_what_is_asked_for_is_looked_up_later(body: str) -> None:
    """Run as Python: the keys asked for at event q are those looked up some events later."""
    asked: dict[int, list[Any]] = {}
    looked: dict[int, list[Any]] = {}
    at = 0

    def note(into: dict[int, list[Any]], table: str, *key: Any) -> int:
        into.setdefault(at, []).append((table, *map(int, key)))
        return 0

    values = [5, 1, 2, 9, 3, 3, 0, 7] * 4
    n, ahead = len(values), distance(1)
    names = {
        "np": np, "p_n": 10, "t0": "t0", "m0": 0, "counts": None, "ts0": values,
        "c0": values, "c1": values[::-1],
        "fetch1": lambda t, m, *k: note(asked, t, *k), "fetch2": lambda t, m, *k: note(asked, t, *k),
        "find1": lambda t, m, k: note(looked, t, k), "claim2": lambda t, m, c, i, *k: note(looked, t, *k),
    }  # fmt: skip
    code = "\n".join(
        [
            "def go(q0):",
            *printed(look_ahead(nodes(body), 0), 1),
            textwrap.indent(textwrap.dedent(body), "    "),
        ]
    )
    exec(code, names)
    go: Any = names["go"]
    for at in range(n):
        go(np.uint64(at))
    assert len(looked) == n
    assert asked == {q - ahead: keys for q, keys in looked.items() if q >= ahead}


def test_keys_that_depend_on_states_are_left_out() -> None:
    """And so are variables that were assigned on a way that depends on one, but nothing else."""
    assert ahead(NESTED)[2:] == [
        "    fetch1(t0, m0, np.int64(c0[later]))",
        "    fetch1(t1, m1, np.int64(c1[later] * 2))",
    ]


def test_loops_are_not_followed() -> None:
    assert ahead(LOOP)[2:] == ["    fetch1(t1, m1, np.int64(c1[later]))"]


def test_long_expressions_are_given_up() -> None:
    """Not written out to a size that doubles with each line."""
    assert ahead(GROWING) == []


def test_other_events_rows_are_not_taken_for_this_ones() -> None:
    assert ahead("r1 = find1(t0, m0, np.int64(c0[q1]))") == []
    assert len(ahead("r1 = find1(t0, m0, np.int64(c0[q1]))", 1)) == 3


def test_the_more_rows_an_event_looks_up_the_nearer_it_is() -> None:
    found = [distance(n) for n in (1, 2, 3, 6, 12)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[2] > found[4] == 3
