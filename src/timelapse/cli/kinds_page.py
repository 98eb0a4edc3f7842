"""docs/kinds.md, written from the kinds themselves: `python -m timelapse.cli.kinds_page > docs/kinds.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from timelapse.kernels.native.lowering.states import compiled
from timelapse.kinds.base import Op, State
from timelapse.kinds.registry import kinds

_HEAD = """\
# State kinds

A state is declared in a program's class, with its types: `sent: tl.Counter[int]`. Keys are int, str, bool, bytes,
`tl.Time`, decimals, or tuples of those; without a key a state is a single value. This page is written by
`python -m timelapse.cli.kinds_page` from the kinds in `src/timelapse/kinds/`.

An operation *reads* when its result depends on the state. What it *writes* is an effect: a function of what is stored under the key.
If all effects on a state compose exactly, slices run without knowing their start (strategy scan). If one does not, the state runs by key, or
slice after slice. Compiled kinds run as machine code; a pass that touches another kind runs as ordinary Python, with the same result.

`Money` below stands for a decimal with a declared scale: `Money = Annotated[Decimal, tl.scale(2)]`
([semantics.md](semantics.md)). It goes where an int goes: `tl.Sum[int, Money]`, `tl.Value[int, Money]`, `tl.Mean[int, Money]`.

`Run.state(name)` gives a table with the columns `key` and `value`, in key order, if nothing else is said below. A write with
`at` among its parameters can be dated: it takes effect at that time ([time.md](time.md)).
"""

_SIGNS = {
    "getitem": "x[k]", "setitem": "x[k] = v", "delitem": "del x[k]", "contains": "k in x", "iadd": "x[k] += n",
    "isub": "x[k] -= n",
}  # fmt: skip


def page() -> str:
    """The page's text."""
    modules: dict[str, list[type[State]]] = {}
    for kind in kinds().values():
        modules.setdefault(kind.__module__, []).append(kind)
    parts = [*_tables(), *(part for own in modules.values() for part in _section(own))]
    return _HEAD + "".join(f"\n{part}" for part in parts)


def _tables() -> Iterator[str]:
    """All kinds in short."""
    rows = [(_declared(kind), kind.__name__, kind.short) for kind in kinds().values()]
    yield "| kind | writes | reads | a missing key reads as |\n|---|---|---|---|\n" + "".join(
        f"| `{declared}` | {short.writes} | {short.reads} | {short.missing} |\n"
        for declared, _, short in rows
    )
    yield (
        "Each operation is a function from (presence, value) to (presence, value); what a slice does to a key (its *delta*) is the "
        "composition\nof its operations, which is again such a function of one of a few forms:\n"
    )
    yield "| kind | what a slice does to a key | composed exactly |\n|---|---|---|\n" + "".join(
        f"| `{name}` | {short.effects} | {short.exact} |\n" for _, name, short in rows
    )


def _declared(kind: type[State]) -> str:
    """A kind with its parameters, as its description begins: `Counter[K]`."""
    return (inspect.getdoc(kind) or "").split("`")[1].partition(" = ")[0].removeprefix("tl.")


def _section(own: list[type[State]]) -> Iterator[str]:
    """What one module's kinds are; what its docstring says of their effects stands once."""
    about, _, table = inspect.cleandoc(sys.modules[own[0].__module__].__doc__ or "").partition("\n\n")
    yield f"## {' and '.join(kind.__name__ for kind in own)}\n"
    for kind in own:
        yield f"{inspect.getdoc(kind)}\n"
    yield f"{table.strip()}\n" if table else f"{about}\n"
    for kind in own:
        yield _operations(kind, named=len(own) > 1)


def _operations(kind: type[State], *, named: bool) -> str:
    """The operations by what they do."""
    by: dict[str, list[str]] = {"reads": [], "reads every key": [], "writes": [], "reads and writes": []}
    for name, op in kind.ops.items():
        by[_does(op)].append(f"`{_written(kind, name)}`")
    rows = "".join(f"| {does} | {', '.join(written)} |\n" for does, written in by.items() if written)
    head = f"| `{kind.__name__}` | |" if named else "| | |"
    return f"{head}\n|---|---|\n{rows}| compiled | {compiled(kind)} |\n| columns of `Run.state` | {kind.columns} |\n"


def _does(op: Op) -> str:
    if op.effect:
        return "reads and writes" if op.reads or op.all_keys else "writes"
    return "reads every key" if op.all_keys else "reads"


def _written(kind: type[State], name: str) -> str:
    sign = {**_SIGNS, **kind.signs}.get(name)
    if sign is not None:
        return sign
    parameters = list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
    shown = [
        p.name if p.default is p.empty or not _plain(p.default) else f"{p.name}={p.default!r}"
        for p in parameters
    ]
    return f"{name}({', '.join(shown)})"


def _plain(value: object) -> bool:
    return isinstance(value, int | float | str)


if __name__ == "__main__":
    sys.stdout.write(page())
