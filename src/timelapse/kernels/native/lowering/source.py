"""The source of a unit's function, put together from the code of its events."""

from __future__ import annotations

from collections.abc import Sequence

from timelapse.kernels.native.lowering.decided import numbered_decisions
from timelapse.kernels.native.lowering.form import (
    Assign,
    Continue,
    For,
    If,
    Node,
    Return,
    While,
    chain,
    names_in,
    names_used,
)
from timelapse.kernels.native.lowering.literals import with_names
from timelapse.kernels.native.lowering.printing import printed
from timelapse.kernels.native.lowering.records import record_columns
from timelapse.kernels.native.lowering.rejecting import going_back
from timelapse.kernels.native.lowering.touches import numbered
from timelapse.kernels.native.lowering.unit import LISTED, Unit
from timelapse.kernels.native.lowering.values import number_of, spelled
from timelapse.kernels.native.lowering.wide import WIDTHS, wide


def arguments(unit: Unit, columns: Sequence[int] | None = None) -> list[tuple[str, str]]:
    """Names and Numba types of the function's arguments. `columns`: the numbers that code knows columns by."""
    found = [("kind", "KINDS"), ("lo", "int64"), ("hi", "int64"), ("pos", "INTS"), ("counts", "INTS"),
             ("emitted", "INTS"), ("undo", "TABLE"), ("refused", "TABLE"), ("budget", "int64")]  # fmt: skip
    for i in range(len(unit.events)):
        found += [(f"ts{i}", "RINTS"), (f"seq{i}", "RINTS")]
    for i, column in zip(columns or range(len(unit.columns)), unit.columns, strict=True):
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
        found += [("sent", "TABLE"), ("paused", "INTS")]
    if unit.keeps >= 0:
        found.append(("kept", "TABLE"))
    if unit.goes_back:
        found += [(name, "INTS") for name in ("noted", "rows", "earlier", "latest", "again", "back")]
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


def source_of(unit: Unit, steps: Sequence[Node], heads: Sequence[list[Node]]) -> str:
    """The source. `steps`: what is done with one event; `heads`: for each type of event what finds its key, where they are
    shared out. The unit keeps the columns that the code reads alone."""
    body = _function(unit, steps, heads)
    with_names(body)
    used = _used_columns(unit, body)
    unit.touches = numbered(unit.touches, used, len(unit.events))
    unit.decided = numbered_decisions(unit.decided, used, len(unit.events))
    if not isinstance(unit.deciding, str):
        adds = numbered(unit.deciding.adds, used, len(unit.events))
        assert not isinstance(adds, str)
        unit.deciding = unit.deciding._replace(adds=adds)
    given = arguments(unit, used)
    lines = [f"def run({', '.join(name for name, _ in given)}):", *printed(body, 1), ""]
    numbers = {n for name in names_used(body) if (n := number_of(name)) is not None}
    widths = sorted({layout.width for layout in unit.layouts.values() if layout.width > WIDTHS})
    return "\n".join([
        *(f"{spelled(n)} = np.int64({n})" for n in sorted(numbers, key=lambda n: (n < 0, abs(n)))), "",
        *(wide(width) for width in widths),
        "SIGNATURE = (" + ", ".join(kind for _, kind in given) + ",)", "", "",
        *lines,
    ])  # fmt: skip


def _used_columns(unit: Unit, body: Sequence[Node]) -> list[int]:
    """The numbers of the columns that code reads. Those are what the unit has then."""
    adds = unit.deciding.adds if not isinstance(unit.deciding, str) else ()
    names = names_used(body) | {
        name for own in adds for add in own for key in add.key for name in names_in(key)
    }
    used = {int(name[3:]) for name in names if name[:3] == "col" and name[3:].isdigit()}
    unit.columns = [unit.columns[n] for n in sorted(used)]
    return sorted(used)


def _function(unit: Unit, steps: Sequence[Node], heads: Sequence[list[Node]]) -> list[Node]:
    """The body of the function."""
    once: list[Node] = [Assign("k", "kind[j]"), Assign("ordinal", "0")]
    if unit.undo:
        once.append(Assign("u", "np.int64(0)"))
    if unit.loops:
        once.append(Assign("rounds", "budget"))
    if unit.lists:
        once.append(Assign("listing", "np.int64(0)"))
    if unit.sends:
        once.append(Assign("queued", "np.int64(0)"))
    for i, record in enumerate(unit.records):
        if record.__reads__:  # nothing in their rows says which event they are of
            once.append(Assign(f"emitted[{len(unit.records) + 1 + i}]", f"emitted[{i}]"))
    each = [*once, *steps]
    loop: list[Node] = [For("j", "lo, hi", each)]
    if unit.goes_back:
        loop = going_back(unit, each)
    events, last = range(len(unit.events)), "end" if unit.shared else "q"
    return [
        Assign("u", "np.int64(0)"),
        *(Assign(f"q{i}", f"np.uint64(pos[{i}])") for i in events),
        *(_shared(heads, each) if unit.shared else loop),
        *(Assign(f"pos[{i}]", f"{last}{i}") for i in events),
        Return("0"),
    ]


def _shared(heads: Sequence[list[Node]], each: list[Node]) -> list[Node]:
    """The loop over the worker's own events, which are listed first, a few at a time, each with its row among those of
    its type: without a branch that nobody can predict, and so that what is looked up ahead is for events that are its own.
    """
    types = range(len(heads))
    own = [
        (f"k == {i}", [
            *head, Assign("mine[turns, 0]", "j"), Assign("mine[turns, 1]", f"np.int64(q{i})"),
            Assign("turns", "np.int64(whose == worker)", "+="), Assign(f"q{i}", "ONE", "+="),
        ])
        for i, head in enumerate(heads)
    ]  # fmt: skip
    listed = [
        Assign("turn", "0"),
        Assign("turns", "0"),
        Assign("last", f"min(first + {LISTED}, hi)"),
        *(Assign(f"q{i}", f"end{i}") for i in types),
        For("j", "first, last", [Assign("k", "kind[j]"), *chain(own)]),
        *(Assign(f"end{i}", f"q{i}") for i in types),
        Assign("first", "last"),
        Continue(),
    ]
    taken = [
        Assign("j", "mine[turn, 0]"),
        Assign("own", "np.uint64(mine[turn, 1])"),
        Assign("turn", "1", "+="),
    ]
    return [
        Assign("turn", "0"),
        Assign("turns", "0"),
        Assign("first", "lo"),
        *(Assign(f"end{i}", f"q{i}") for i in types),
        While("turn < turns or first < hi", [If("turn == turns", listed), *taken, *each]),
    ]
