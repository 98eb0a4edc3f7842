"""The loop over a chunk's events, written for one pass, and the columns that it goes through."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from timelapse.log.reader import Chunk
from timelapse.log.rows import ints, python_values
from timelapse.model.events import Event

INDENT = "    "
_DERIVED = (
    "if _tl_derived:",
    "    while _tl_derived:",
    "        sent = _tl_next(_tl_ts, _tl_seq)",
    "        for handler in _tl_types.get(_tl_type(sent), ()):",
    "            handler(_tl_self, sent)",
    "    _tl_settle()",
)


@dataclass(frozen=True)
class Turn:
    """What happens at an event of one type."""

    event: type[Event]
    fields: tuple[str, ...]
    """The columns that are read, in this order, after `ts` and `seq`."""
    whole: bool
    """Whether the event itself is made."""
    calls: tuple[str, ...]
    """The handlers' calls, as they are written in the loop."""


def write(turns: Sequence[Turn], *, now: bool, journal: bool, count: bool) -> tuple[types.CodeType, bool]:
    """The loop's code, and whether it goes through rows of a single type.

    It takes what gives the next event: a zip of columns, or numbers of types and one function for each.
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
        if now:
            inner.append('_tl_live["now"] = _tl_ts')
        if turn.whole:
            own = (f"_tl_f_{f.name}" if f.name in turn.fields else "None" for f in turn.event.__fields__)
            inner.append(f"event = _tl_make_{number}(({''.join(f'{n}, ' for n in own)}_tl_ts, _tl_seq))")
        lines += [depth + line for line in (*inner, *turn.calls)]
    if now:  # somebody has the program itself, and may have sent events
        lines += [INDENT + line for line in _DERIVED]
    if journal:
        lines += [f"{INDENT}if _tl_journal:", f"{INDENT * 2}_tl_journal.clear()"]
    if not single:
        lines.insert(0, "for kind in kinds:")
    given = "rows" if single else ", ".join(["kinds", *(f"next{n}" for n in range(len(turns)))])
    own_cells = "nonlocal _tl_ts, _tl_seq, _tl_n"
    body = "\n".join(INDENT * 2 + line for line in (own_cells, *lines))
    free = sorted({w for w in _names(body) if w.startswith("_tl_") and not w.startswith("_tl_f_")})
    text = f"def scope({', '.join(free)}):\n{INDENT}def loop({given}):\n{body}\n"
    code = compile(text, "<timelapse>", "exec", dont_inherit=True)
    for _ in range(2):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return code, single


def _names(text: str) -> set[str]:
    return set(re.findall(r"\b_tl_\w+", text))


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
