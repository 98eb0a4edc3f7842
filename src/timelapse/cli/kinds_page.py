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

An operation *reads* when its result depends on the state. What it *writes* is an effect; the table says what the effect
does to what is stored under the key. Effects that compose let a slice add up what it does to a state that it does not
know (strategy scan). Where one does not, the state runs slice after slice. Compiled kinds run as machine code; a pass
that touches another kind runs as ordinary Python, with the same result.

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
    parts = [*_tables(), *(part for kind in kinds().values() for part in _kind(kind))]
    return _HEAD + "".join(f"\n{part}" for part in parts)


def _tables() -> Iterator[str]:
    """All kinds in short."""
    rows = [(_declared(kind), kind.__name__, kind.short) for kind in kinds().values()]
    yield "| kind | writes | reads | a missing key reads as |\n|---|---|---|---|\n" + "".join(
        f"| `{declared}` | {short.writes} | {short.reads} | {short.missing} |\n"
        for declared, _, short in rows
    )
    yield (
        "Each operation is a function from (presence, value) to (presence, value); what a slice does to a key is the "
        "composition\nof its operations, which is again such a function of one of a few forms:\n"
    )
    yield "| kind | what a slice does to a key | composed exactly |\n|---|---|---|\n" + "".join(
        f"| `{name}` | {short.effects} | {short.exact} |\n" for _, name, short in rows
    )


def _declared(kind: type[State]) -> str:
    """A kind with its parameters, as its description begins: `Counter[K]`."""
    return (inspect.getdoc(kind) or "").split("`")[1].partition(" = ")[0].removeprefix("tl.")


def _kind(kind: type[State]) -> Iterator[str]:
    module = sys.modules[kind.__module__]
    about, _, table = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    yield f"## {kind.__name__}\n"
    yield f"{inspect.getdoc(kind)}\n"
    yield f"{table.strip()}\n" if table else f"{about}\n"
    yield "| operation | reads | writes |\n|---|---|---|\n" + "".join(
        f"| `{_written(kind, name)}` | {_reads(op)} | {op.effect or ''} |\n" for name, op in kind.ops.items()
    )
    yield f"Compiled: {compiled(kind)}. `Run.state`: {kind.columns}.\n"


def _reads(op: Op) -> str:
    return "every key" if op.all_keys else "yes" if op.reads else ""


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
