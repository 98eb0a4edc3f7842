"""Rows that are known are not looked up again, and what is read and written stays the same."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import timelapse as tl
from tests.native.nodes import nodes
from tests.native.oracle import passes
from tests.native.test_oracle import PROGRAMS
from timelapse.kernels.native.lowering.lower import lowered
from timelapse.kernels.native.lowering.printing import printed
from timelapse.kernels.native.lowering.rows import share_rows, written_out

SIZE = 16


def shared(text: str) -> str:
    return "\n".join(printed(written_out(share_rows(nodes(text))), 0))


def test_what_follows_a_look_up_uses_its_row() -> None:
    body = """
        r1 = claim1(t0, m0, counts, 0, a)
        if x:
            r2 = find1(t0, m0, a)
            r3 = find1(t1, m1, a)
        r4 = claim1(t0, m0, counts, 0, a)
        r5 = find1(t1, m1, a)
    """
    lines = shared(body).splitlines()
    assert [line.strip() for line in lines[2:]] == [
        "r2 = r1", "r3 = find1(t1, m1, a)", "r4 = r1", "r5 = find1(t1, m1, a)"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("between", "again"),
    [
        ("pass", False),
        ("put(t0, r1, 2, x, True)", False),
        ("r2 = find1(t0, m0, b)", False),
        ("r2 = claim1(t1, m1, counts, 1, b)", False),
        ("r2 = claim1(t0, m0, counts, 0, b)", True),  # it may take the free row that `a` would get
        ("if x:\n    r2 = claim1(t0, m0, counts, 0, b)", True),
        ("while True:\n    r2 = claim1(t0, m0, counts, 0, b)\n    break", True),
        ("r2 = look1(t0, m0, s0, b0, 0, b)", True),
        ("a = b", True),
        ("if x:\n    a = b", True),
        ("r1 = b", True),
        ("while True:\n    a += 1\n    break", True),
        ("if x:\n    return 1\nelse:\n    pass", False),
        ("if x:\n    a = b\n    return 1", False),
    ],
)
def test_until_the_row_or_the_key_may_be_another(between: str, again: bool) -> None:
    found = shared(f"r1 = find1(t0, m0, a)\n{between}\nr9 = find1(t0, m0, a)".replace("\n    ", "\n    "))
    assert ("r9 = find1(t0, m0, a)" in found) == again
    assert ("r9 = r1" in found) != again


def test_a_loop_does_not_use_what_one_of_its_rounds_changes() -> None:
    found = shared("""
        r1 = find1(t0, m0, a)
        r2 = find1(t0, m0, b)
        while True:
            r3 = find1(t0, m0, a)
            r4 = find1(t0, m0, b)
            b = b + 1
            if x:
                break
        r5 = find1(t0, m0, a)
        r6 = find1(t0, m0, b)
    """)
    assert "r3 = r1" in found
    assert "r5 = r1" in found
    assert "r4 = find1" in found
    assert "r6 = find1" in found


class Writer:
    """Random code over two tables, of which the second has a mapped start state."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = 0
        self.lines: list[str] = []

    def block(self, indent: int, depth: int) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.statement("    " * indent, indent, depth)

    def statement(self, pad: str, indent: int, depth: int) -> None:
        roll, key = self.rng.random(), self.rng.choice("abc")
        if roll < 0.6 or depth == 0:
            t = self.rng.randrange(2)
            self.names += 1
            row = f"r{self.names}"
            find, claim = ("look", "own") if t else ("find", "claim")
            if self.rng.random() < 0.6:
                given = f"s1, b1, N1, {key}" if t else key
                self.lines += [
                    f"{pad}{row} = {find}1(t{t}, m{t}, {given})",
                    f"{pad}trace.append(int(t{t}[{row}, 2]))",
                ]
            else:
                given = f"s1, b1, N1, {key}" if t else f"counts, N0, {key}"
                self.lines += [
                    f"{pad}{row} = {claim}1(t{t}, m{t}, {given})",
                    f"{pad}t{t}[{row}, 2] += {self.names}",
                ]
        elif roll < 0.75:
            self.lines.append(f"{pad}if more() < 5:")
            self.block(indent + 1, depth - 1)
            if self.rng.random() < 0.6:
                self.lines.append(f"{pad}else:")
                self.block(indent + 1, depth - 1)
        elif roll < 0.85:
            self.lines.append(f"{pad}while True:")
            self.lines += [f"{pad}    if more() < 4:", f"{pad}        break"]
            self.block(indent + 1, depth - 1)
            if self.rng.random() < 0.3:
                self.lines.append(f"{pad}    {self.rng.choice(['continue', 'break', 'return 1'])}")
        else:
            self.lines.append(f"{pad}{key} = {self.rng.choice(['more()', self.rng.choice('abc')])}")


def run(lines: list[str], seed: int) -> tuple[Any, ...]:
    """What is read, and what the tables hold afterwards."""
    rng = random.Random(seed)
    tables = [np.zeros((SIZE, 3), np.int64) for _ in range(2)]
    counts = [0, 0]
    trace: list[int] = []
    start = {k: 100 + k for k in range(0, 8, 2)}

    def find1(table: Any, mask: int, key: int) -> int:
        i = key * 7 & 3  # few places: rows of several keys lie behind each other
        while table[i, 0] != 0 and table[i, 1] != key:
            i = (i + 1) % SIZE
        return i

    def claim1(table: Any, mask: int, counts: list[int], t: int, key: int) -> int:
        i = find1(table, mask, key)
        if table[i, 0] == 0:
            table[i, :2] = 1, key
            counts[t] += 1
        return i

    def take(state: Any, table: Any, base: Any, i: int, width: int) -> int:
        key = int(table[i, 1])
        if key not in start:
            return 0
        table[i] = 3, key, start[key]
        return 1

    functions: dict[str, Callable[..., Any]] = {"find1": find1, "claim1": claim1, "take": take}
    scope: dict[str, Any] = {
        **functions, "t0": tables[0], "t1": tables[1], "m0": 0, "m1": 0, "s1": np.ones(1), "b1": None, "N0": 0, "N1": 1, "counts": counts,
        "trace": trace, "more": lambda: rng.randrange(8), "left": lambda j, u, why: why, "j": 0, "u": 0,
    }  # fmt: skip
    text = "def go(a, b, c):\n" + textwrap.indent("\n".join(lines), "    ")
    exec(text, scope)
    for _ in range(3):
        scope["go"](rng.randrange(8), rng.randrange(8), rng.randrange(8))
    held = [sorted(map(tuple, t[t[:, 0] != 0].tolist())) for t in tables]
    return trace, held, counts


def test_random_code_reads_and_writes_the_same() -> None:
    changed = 0
    for seed in range(200):
        writer = Writer(seed)
        writer.block(0, 3)
        text = "\n".join(writer.lines)
        plain = printed(written_out(nodes(text)), 0)
        made = printed(written_out(share_rows(nodes(text))), 0)
        changed += made != plain
        for again in range(3):
            assert run(made, again) == run(plain, again), f"seed {seed}"
    assert changed > 60


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_every_row_that_is_made_is_counted_for_the_room(program: type[tl.Program]) -> None:
    """In a table without a free row a look-up would go round for ever."""
    for work, final in passes(program):
        unit = lowered(program(), work, final=final)
        for number, names in enumerate(unit.tables):
            makes = re.findall(rf"= claim\d+\(t{number}\b|\bt{number}\[\w+, 0\] = 1\b", unit.source)
            takes = re.findall(rf"\+= take\(\w+, t{number}\b", unit.source)
            first = next(n for n in names if n in unit.states)
            assert bool(makes) == bool(unit.claims[first]), (names, makes)
            assert bool(takes) == bool(unit.finds[first]), (names, takes)
