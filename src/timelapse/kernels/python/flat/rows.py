"""Records that are put out and events that are sent, without making them: tuples of their values, in the fields' order."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from timelapse.kernels.python.flat.output import layout
from timelapse.kernels.python.flat.types import INT64, guard
from timelapse.model.events import Event, Record
from timelapse.model.types import FLOAT

if TYPE_CHECKING:
    from timelapse.kernels.python.flat.rewrite import Rewriter


def emit(at: Rewriter, given: ast.expr, node: ast.stmt) -> list[ast.stmt] | None:
    """`self.emit(Row(...))`; None where it has to stay as it is."""
    cls = _put_out(at, given)
    if cls is None:
        return None
    row = _Row(at, cls, given)
    put = [_put(at, cls, "_tl_n", row.take_values()), "_tl_n += 1"]
    return row.statements(put, "_tl_emit", node)


def send(at: Rewriter, given: ast.expr, node: ast.stmt) -> list[ast.stmt] | None:
    """`self.send(Step(...))`: its number and its values go to the end of the queue (loop.py); None where it has to stay
    as it is."""
    cls = _class_of(at, given, Event)
    if cls not in at.work.numbers:
        return None
    number = at.work.numbers[cls]
    at.work.sent.add(number)
    row = _Row(at, cls, given)
    put = [
        f"if _tl_len(_tl_q) >= {at.work.loop}:",
        "    _tl_over()",
        f"_tl_more(({number}, {row.take_values()}))",
    ]
    return row.statements(put, "_tl_send", node)


def refuse(at: Rewriter, given: ast.expr, handler: str, node: ast.stmt) -> list[ast.stmt] | None:
    """`self.reject(Row(...))`: the row takes the place of what the event has put out; None where it has to be made."""
    cls = _put_out(at, given)
    if cls is None:
        return None
    row = _Row(at, cls, given)
    values = row.take_values(alone=False)
    put = [
        f"_tl_refuse({cls.__name__!r}, {handler!r})",
        _put(at, cls, "0", values),
        "_tl_n = 1",
    ]
    made = row.statements(put, "_tl_refuse_with", node, f", {handler!r}")
    return [*made, *at.statements(["return True"], node)]


def _put_out(at: Rewriter, given: ast.expr) -> type[Record] | None:
    """The type of a record that is put out, if its values can be written out."""
    cls: type[Record] | None = _class_of(at, given, Record)
    if cls is None or cls.__reads__ or not at.work.final:
        return None
    if cls not in at.work.records:
        at.work.records.append(cls)
    at.nonlocals.add("_tl_n")
    return cls


def _put(at: Rewriter, cls: type[Record], place: str, values: str) -> str:
    """The line that keeps a row of these values, the event's `place`-th one (output.py)."""
    number = at.work.records.index(cls)
    pack = "" if layout(cls) is None else f"_tl_w_{number}"
    return f"_tl_r_{number}({pack}(_tl_ts, _tl_seq, {place}, {values}))"


class _Row:
    """A row that is being written out: `steps` are the values that are named before it, `parts` the expressions in them."""

    def __init__(self, at: Rewriter, cls: Any, call: Any) -> None:
        self._at, self._cls, self._make = at, cls, call.func
        self._parts: dict[str, ast.expr] = {}
        self._steps: list[tuple[str, str]] = []
        self._tests: list[str] = []
        self._names: dict[str, str] = {}
        fields = {f.name: f.type for f in cls.__fields__}
        values = _values(cls, call)
        self._ordered = [n for n, _ in values] == list(fields)
        for name, value in values:
            temp = self._names[name] = at.temporary()
            self._parts[f"{temp}V"] = at.rewritten(value)
            known = at.type_of(value)
            whole = fields[name] == FLOAT and known == INT64
            self._steps.append((temp, f"_tl_float({temp}V)" if whole else f"{temp}V"))
            if not whole and (test := guard(fields[name], known, temp)) is not None:
                self._tests.append(f"({test})")

    def take_values(self, *, alone: bool = True) -> str:
        """The values, in the order of the fields, as the items of a tuple. `alone`: nothing is done before it is made."""
        named = [self._names[f.name] for f in self._cls.__fields__]
        if alone and not self._tests and self._ordered:  # nothing comes between them
            texts = dict(self._steps)
            named, self._steps = [texts[name] for name in named], []
        return "".join(f"{name}, " for name in named)

    def statements(self, put: list[str], otherwise: str, node: ast.stmt, more: str = "") -> list[ast.stmt]:
        """The lines that put it where it goes. What does not pass for sure is made, and given to `otherwise` (with `more`)."""
        first = [f"{name} = {text}" for name, text in self._steps]
        lines = [*first, *put]
        if self._tests:
            again = ", ".join(f"{name}={temp}" for name, temp in self._names.items())
            self._parts["R"] = self._make
            lines = [
                *first,
                f"if {' and '.join(self._tests)}:",
                *["    " + p for p in put],
                "else:",
                f"    {otherwise}(R({again}){more})",
            ]
        return self._at.statements(lines, node, **self._parts)


def _class_of(at: Rewriter, given: ast.expr, base: type[Record | Event]) -> Any:
    """The class of the row that a call makes; None where that is not certain, or not all fields are given."""
    if not isinstance(given, ast.Call) or not isinstance(given.func, ast.Name):
        return None
    cls = at.value_of(given.func.id)
    if not (isinstance(cls, type) and issubclass(cls, base) and cls is not base):
        return None
    fields = [f.name for f in cls.__fields__]
    if cls.__new__ is not base.__new__ or any(isinstance(a, ast.Starred) for a in given.args):
        return None
    if len(given.args) > len(fields) or sorted(n for n, _ in _values(cls, given)) != sorted(fields):
        return None
    return cls


def _values(cls: Any, call: Any) -> list[tuple[str, ast.expr]]:
    """A call's arguments, in the order in which they are evaluated, by the names of the fields."""
    fields = [f.name for f in cls.__fields__]
    return [*zip(fields, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
