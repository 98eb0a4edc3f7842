"""docs/kinds.md, written from the kinds themselves: `python -m timelapse.cli.kinds_page > docs/kinds.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from timelapse.kernels.native.lowering.states import compiles
from timelapse.kinds.base import Op, State
from timelapse.kinds.counter import Counter
from timelapse.kinds.distinct import Distinct
from timelapse.kinds.extremum import Max, Min
from timelapse.kinds.first import First
from timelapse.kinds.frequent import Frequent
from timelapse.kinds.listof import ListOf
from timelapse.kinds.mapof import MapOf
from timelapse.kinds.mean import Mean
from timelapse.kinds.quantiles import Quantiles
from timelapse.kinds.set import Set
from timelapse.kinds.setof import SetOf
from timelapse.kinds.smoothed import Decayed, Smoothed
from timelapse.kinds.sum import Sum
from timelapse.kinds.value import Value

KINDS: tuple[type[State], ...] = (
    Counter, Sum, Set, Value, Max, Min, First, Mean, SetOf, MapOf, ListOf, Smoothed, Decayed, Distinct, Quantiles, Frequent,
)  # fmt: skip

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

`Run.state(name)` gives a table with the columns `key` and `value`, in key order, if nothing else is said below.
"""

_COLUMNS = {
    "Set": "`key`",
    "SetOf": "`key`, `member`: one row per member",
    "MapOf": "`key`, `field`, `value`: one row per field",
    "Mean": "`key`, `value` (the mean), `sum`, `count`",
    "ListOf": "`key`, `value` (a list)",
    "Distinct": "`key`, `value` (the estimate)",
    "Quantiles": "`key`, `value` (the middle of a bucket), `count`: one row per bucket",
    "Frequent": "`key`, `value` (the total)",
    "Smoothed": "`key`, `value`; by time also `at`, the time of the last write",
    "Decayed": "`key`, `value` as it was at the last write, `at`, the time of that",
}
_COMPILED = {
    "Sum": "all but `items` and `top`",
    "SetOf": "all but `x[k]`, `del x[k]` and `items`",
    "MapOf": "all but `fields`, `count`, `clear` and `items`",
    "Mean": "all but `items`",
    "ListOf": "with `tl.state(last=n)` up to 32 and values that are no optionals, all but `items`; not where the state is unknown",
    "Smoothed": "by event, all but `items`",
    "Decayed": "all but `items` and `top`",
}
_SIGNS = {
    "getitem": "x[k]", "setitem": "x[k] = v", "delitem": "del x[k]", "contains": "k in x", "iadd": "x[k] += n",
    "isub": "x[k] -= n",
}  # fmt: skip
_PAIRS = {
    "SetOf": {"contains": "(k, m) in x"},
    "MapOf": {
        "getitem": "x[k, f]", "setitem": "x[k, f] = v", "delitem": "del x[k, f]", "contains": "(k, f) in x",
        "iadd": "x[k, f] += n", "isub": "x[k, f] -= n",
    },
}  # fmt: skip


def page() -> str:
    """The page's text."""
    return _HEAD + "".join(f"\n{part}" for kind in KINDS for part in _kind(kind))


def _kind(kind: type[State]) -> Iterator[str]:
    module = sys.modules[kind.__module__]
    about, _, table = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    yield f"## {kind.__name__}\n"
    yield f"{inspect.getdoc(kind)}\n"
    yield f"{table.strip()}\n" if table else f"{about}\n"
    yield "| operation | reads | writes |\n|---|---|---|\n" + "".join(
        f"| `{_written(kind, name)}` | {_reads(op)} | {op.effect or ''} |\n" for name, op in kind.ops.items()
    )
    columns = _COLUMNS.get(kind.__name__, "`key`, `value`")
    compiled = _COMPILED.get(kind.__name__, "yes") if compiles(kind) else "no, as Python"
    yield f"Compiled: {compiled}. `Run.state`: {columns}.\n"


def _reads(op: Op) -> str:
    return "every key" if op.all_keys else "yes" if op.reads else ""


def _written(kind: type[State], name: str) -> str:
    sign = {**_SIGNS, **_PAIRS.get(kind.__name__, {})}.get(name)
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
