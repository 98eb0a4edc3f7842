"""The source of a unit's function, put together from the code of its events."""

from __future__ import annotations

import re
from collections.abc import Sequence

from timelapse.kernels.native.lowering.records import record_columns
from timelapse.kernels.native.lowering.wide import WIDTHS, wide
from timelapse.kernels.native.unit import LISTED, Unit

_NUMBER = re.compile(r"\bN(\d+)\b")
_NEGATIVE = re.compile(r"\bM(\d+)\b")
_LITERAL = re.compile(r"(?<![\w\])])\((-?)(\d+)\)|(?<=[(\s])(-?)(\d+)(?=[,)])|(?<=[(\s])(True|False)(?=[,)])")
"""An integer in parentheses, and one or a bool that is an argument or the last operand in parentheses."""


def numbered(line: str) -> str:
    """A line with names for its literals: Numba compiles a function anew for each literal that it is given; these are numbers
    like others."""
    return _LITERAL.sub(_name, line)


def _name(found: re.Match[str]) -> str:
    if found[5]:
        return found[5].upper()
    return ("M" if found[1] or found[3] else "N") + (found[2] or found[4])


def arguments(unit: Unit) -> list[tuple[str, str]]:
    """Names and Numba types of the function's arguments."""
    found = [("kind", "KINDS"), ("lo", "int64"), ("hi", "int64"), ("pos", "INTS"), ("counts", "INTS"),
             ("emitted", "INTS"), ("undo", "TABLE"), ("refused", "TABLE"), ("budget", "int64")]  # fmt: skip
    for i in range(len(unit.events)):
        found += [(f"ts{i}", "RINTS"), (f"seq{i}", "RINTS")]
    for i, column in enumerate(unit.columns):
        found.append((f"col{i}", {"float": "RFLOATS", "bool": "RBOOLS"}.get(column.kind, "RINTS")))
    for i in range(len(unit.tables)):
        found += [(f"t{i}", "TABLE"), (f"m{i}", "uint64"), (f"s{i}", "INTS"), (f"b{i}", "TABLE")]
    for name in unit.windows:
        log = unit.states.index(name)
        found += [(f"w{log}", "TABLE"), (f"k{log}", "INTS")]
    for index in map(unit.states.index, unit.indexed):
        found += [(f"nodes{index}", "TABLE"), (f"linked{index}", "INTS")]
    if unit.lists:
        found += [("listed", "TABLE"), ("starts", "INTS"), ("spelt", "BYTES")]
    if unit.ticking:
        found.append(("ticked", "INTS"))
    if unit.sends:
        found.append(("sent", "TABLE"))
    if unit.keeps >= 0:
        found.append(("kept", "TABLE"))
    if unit.takes:
        found += [("takes", "INTS"), ("gone", "INTS")]
    found += [(f"p_{n}", {"float": "float64", "bool": "boolean"}.get(k, "int64")) for n, k in unit.params]
    for i, record in enumerate(unit.records):
        found.append((f"o{i}_place", "TABLE"))
        for name, kind in record_columns(record):
            found.append((f"o{i}_{name}", {"float": "FLOATS", "bool": "BOOLS"}.get(kind, "INTS")))
    if unit.shared:
        found += [("mine", "TABLE"), ("worker", "int64"), ("workers", "int64")]
    return found


def source_of(unit: Unit, steps: Sequence[str], heads: Sequence[Sequence[str]]) -> str:
    """The source. `steps`: what is done with one event; `heads`: for each type of event what finds its key, where they are
    shared out."""
    given = arguments(unit)
    widths = sorted({layout.width for layout in unit.layouts.values() if layout.width > WIDTHS})
    lines = [
        *(wide(width) for width in widths),
        "SIGNATURE = (" + ", ".join(kind for _, kind in given) + ",)",
        "", "",
        f"def run({', '.join(name for name, _ in given)}):",
        "    u = np.int64(0)",
    ]  # fmt: skip
    for i in range(len(unit.events)):
        lines.append(f"    q{i} = np.uint64(pos[{i}])")
    lines += _sharing(heads) if unit.shared else ["    for j in range(lo, hi):"]
    lines += ["        k = kind[j]", "        ordinal = 0"]
    if unit.undo:
        lines.append("        u = np.int64(0)")
    if unit.loops:
        lines.append("        rounds = budget")
    if unit.lists:
        lines.append("        listing = np.int64(0)")
    if unit.sends:
        lines.append("        queued = np.int64(0)")
    for i, record in enumerate(unit.records):
        if record.__reads__:  # nothing in their rows says which event they are of
            lines.append(f"        emitted[{len(unit.records) + 1 + i}] = emitted[{i}]")
    lines += steps
    last = "end" if unit.shared else "q"
    lines += [f"    pos[{i}] = {last}{i}" for i in range(len(unit.events))]
    lines += ["    return 0", ""]
    lines = [numbered(line) for line in lines]
    numbers = sorted({int(n) for line in lines for n in _NUMBER.findall(line)})
    less = sorted({int(n) for line in lines for n in _NEGATIVE.findall(line)})
    named = [*(f"N{n} = np.int64({n})" for n in numbers), *(f"M{n} = np.int64(-{n})" for n in less)]
    return "\n".join([*named, "", *lines])


def _sharing(heads: Sequence[Sequence[str]]) -> list[str]:
    """The loop over the worker's own events, which are listed first, a few at a time, each with its row among those of
    its type: without a branch that nobody can predict, and so that what is looked up ahead is for events that are its own.
    """
    lines = ["    turn = turns = 0", "    first = lo"]
    lines += [f"    end{i} = q{i}" for i in range(len(heads))]
    lines += [
        "    while turn < turns or first < hi:",
        "        if turn == turns:",
        "            turn = turns = 0",
    ]
    lines += [f"            last = min(first + {LISTED}, hi)"]
    lines += [f"            q{i} = end{i}" for i in range(len(heads))]
    lines += ["            for j in range(first, last):", "                k = kind[j]"]
    for i, head in enumerate(heads):
        lines += [
            f"                {'if' if i == 0 else 'elif'} k == {i}:", *("        " + line for line in head),
            "                    mine[turns, 0] = j", f"                    mine[turns, 1] = np.int64(q{i})",
            "                    turns += np.int64(whose == worker)", f"                    q{i} += ONE",
        ]  # fmt: skip
    lines += [f"            end{i} = q{i}" for i in range(len(heads))]
    return [
        *lines,
        "            first = last",
        "            continue",
        "        j = mine[turn, 0]",
        "        own = np.uint64(mine[turn, 1])",
        "        turn += 1",
    ]
