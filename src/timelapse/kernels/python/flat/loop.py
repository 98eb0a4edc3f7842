"""The loop over a chunk's events, written for one pass, and the columns that it goes through."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timelapse.model.events import Event
from timelapse.segments.reader import Chunk
from timelapse.segments.rows import ints, python_values

INDENT = "    "


@dataclass(frozen=True)
class Turn:
    """What happens at an event of one type."""

    event: type[Event]
    fields: tuple[str, ...]
    """The columns that are read, in this order, after `ts` and `seq`."""
    whole: bool
    """Whether the event itself is made."""
    calls: tuple[tuple[str, bool], ...]
    """The handlers' calls, as they are written in the loop, and whether each gives True where it has rejected the event."""

    def lines(self, leave: str) -> list[str]:
        """The calls; `leave`: what is done once the event is rejected."""
        return [
            line
            for call, refuses in self.calls
            for line in ((f"if {call}:", f"{INDENT}{leave}") if refuses else (call,))
        ]


def write(
    turns: Sequence[Turn],
    *,
    now: bool,
    journal: bool,
    count: bool,
    sent: Collection[int] | None,
    rejects: bool = False,
) -> tuple[types.CodeType, bool]:
    """The loop's code, and whether it goes through rows of a single type.

    It takes what gives the next event: a zip of columns, or numbers of types and one function for each.
    `sent`: the numbers of the events that handlers send; None where that is not known. `rejects`: whether events may be
    rejected; which type it was is kept then.
    """
    single = len(turns) == 1
    lines: list[str] = []
    for number, turn in enumerate(turns):
        names = ", ".join(["_tl_ts", "_tl_seq", *(f"_tl_f_{f}" for f in turn.fields)])
        if single:
            lines.append(f"for {names} in rows:")
        else:
            lines.append(f"{INDENT}{'el' if number else ''}if kind == {number}:")
            lines.append(f"{INDENT * 2}{names} = next{number}()")
        depth = INDENT * (1 if single else 2)
        inner = ["_tl_n = 0"] if count else []
        if rejects:
            inner.append(f"_tl_kind = {number}")
        if now:
            inner.append('_tl_live["now"] = _tl_ts')
        if turn.whole:
            own = (f"_tl_f_{f.name}" if f.name in turn.fields else "None" for f in turn.event.__fields__)
            inner.append(f"event = _tl_make_{number}(({''.join(f'{n}, ' for n in own)}_tl_ts, _tl_seq))")
        if rejects:
            caught = ["try:", *(INDENT + line for line in turn.lines("continue")), "except _tl_Rejection as refusal:",
                      f"{INDENT}_tl_caught(refusal)", f"{INDENT}continue"]  # fmt: skip
            inner += caught
        else:
            inner += turn.lines("continue")
        lines += [depth + line for line in inner]
    derived = [] if sent is not None and not sent else _derived(turns, sent)
    if derived and rejects:
        derived = [
            "try:",
            *(INDENT + line for line in derived),
            "except _tl_Rejection as refusal:",
            f"{INDENT}_tl_caught(refusal)",
        ]
    lines += [INDENT + line for line in derived]
    if journal:
        lines += [f"{INDENT}if _tl_journal:", f"{INDENT * 2}_tl_journal.clear()"]
    if not single:
        lines.insert(0, "for kind in kinds:")
    given = "rows" if single else ", ".join(["kinds", *(f"next{n}" for n in range(len(turns)))])
    own_cells = (
        f"nonlocal _tl_ts, _tl_seq, _tl_n{', _tl_sent' if derived else ''}{', _tl_kind' if rejects else ''}"
    )
    body = "\n".join(INDENT * 2 + line for line in (own_cells, *lines))
    tree = ast.parse(f"def scope():\n{INDENT}def loop({given}):\n{body}\n")
    scope = tree.body[0]
    assert isinstance(scope, ast.FunctionDef)
    free = sorted(n for n in _names(scope) if n.startswith("_tl_") and not n.startswith("_tl_f_"))
    scope.args.args = [ast.arg(name, lineno=1, col_offset=0) for name in free]
    code = compile(tree, "<timelapse>", "exec", dont_inherit=True)
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return code, single


def _derived(turns: Sequence[Turn], sent: Collection[int] | None) -> list[str]:
    """The lines that handle what was sent at an event, and at that, one after the other.

    The queue holds tuples: the number of what happens, and the fields. It is emptied when the transaction is over, so
    its length tells how many events derived from one.
    """
    lines = ["if _tl_q:", f"{INDENT}for _tl_sent in _tl_q:"]
    only = sent is not None and len(sent) == 1 and -1 not in sent
    chained = ""
    for number, turn in enumerate(turns):
        if sent is not None and number not in sent:
            continue
        fields = [f"_tl_f_{f.name}" if f.name in turn.fields else "_" for f in turn.event.__fields__]
        inner = [f"{', '.join(['number', *fields])}{'' if fields else ','} = _tl_sent"]
        if turn.whole:
            inner.append(f"event = _tl_make_{number}((*_tl_sent[1:], _tl_ts, _tl_seq))")
        inner += turn.lines("break")
        if not only:
            lines.append(f"{INDENT * 2}{chained}if _tl_sent[0] == {number}:")
            chained = "el"
        lines += [INDENT * (2 if only else 3) + line for line in inner]
    return [*lines, f"{INDENT * 2}pass", f"{INDENT}_tl_sent = None", f"{INDENT}_tl_q.clear()"]


def _names(tree: ast.AST) -> set[str]:
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return found.union(*(n.names for n in ast.walk(tree) if isinstance(n, ast.Nonlocal)))


def bound(code: types.CodeType, cell: Callable[[str], types.CellType]) -> Callable[..., None]:
    """The loop, with what its names stand for."""
    return types.FunctionType(code, {}, "loop", None, tuple(cell(n) for n in code.co_freevars))


@dataclass(frozen=True)
class Rows:
    """A chunk's events on their way through the loop."""

    count: int
    arguments: tuple[Any, ...]
    position: Iterator[int]
    """What the loop has not taken yet can be told from this iterator's length hint."""


def rows(turns: Sequence[Turn], chunk: Chunk, *, single: bool) -> Rows | None:
    """A chunk's columns as what the loop takes; None where there is nothing in it for this pass."""
    nexts: list[Any] = []
    seqs: list[Any] = []
    for turn in turns:
        table = chunk.tables.get(turn.event.__name__)
        if table is None:
            nexts.append(None)
            seqs.append(np.zeros(0, np.int64))
            continue
        types_of = {f.name: f.type for f in turn.event.__fields__}
        columns = [python_values(table[f], types_of[f]) for f in turn.fields]
        times, places = ints(table["ts"]), table["seq"].to_numpy()
        if single:
            position = iter(times)
            return Rows(len(times), (zip(position, places.tolist(), *columns, strict=True),), position)
        nexts.append(zip(times, places.tolist(), *columns, strict=True).__next__)
        seqs.append(places)
    kinds = np.repeat(np.arange(len(turns)), [len(s) for s in seqs])
    if not len(kinds):
        return None
    order = np.argsort(np.concatenate(seqs), kind="stable")
    listed = kinds[order].tolist()
    position = iter(listed)
    return Rows(len(listed), (position, *nexts), position)
