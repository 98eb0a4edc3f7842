"""Lines of an event's code that nothing can need."""

from __future__ import annotations

from collections.abc import Collection

from timelapse.kernels.native.lowering.code import LEAVE_ALL, REJECT, SPEND
from timelapse.kernels.native.lowering.states.base import UNDO
from timelapse.kernels.native.unit import ROOM


def without_idle_room(body: list[str], filled: Collection[str]) -> list[str]:
    """An event's code without the questions for room that have one answer. `filled`: those that are asked in loops."""
    kept: list[str] = []
    for line in body:
        if line.endswith(f"return left(j, u, {ROOM})") and _asked(kept[-1]) not in filled:
            kept.pop()
        else:
            kept.append(line)
    return kept


def _asked(line: str) -> str:
    """What an `if` for room asks for."""
    return line.strip()[3:-1].rpartition(" and ")[2]


def without_idle_saves(body: list[str], *, more: bool = False) -> list[str]:
    """An event's code without the undo entries that nothing can need: no exit comes after them.

    Code after an exit inside of the same loop may have run before it. `more`: exits may come after all of it.
    """
    if more:
        return body
    exits = [n for n, line in enumerate(body) if is_exit(line)]
    last = max(exits, default=-1)
    if last >= 0:
        loops = [n for n, line in enumerate(body[:last]) if line.lstrip().startswith(("for ", "while "))]
        for start in loops:
            depth = len(body[start]) - len(body[start].lstrip())
            end = next(
                (n for n in range(start + 1, len(body)) if len(body[n]) - len(body[n].lstrip()) <= depth),
                len(body),
            )
            last = max(last, end) if end > last else last
    return [line for n, line in enumerate(body) if n < last or not line.endswith(UNDO)]


def is_exit(line: str) -> bool:
    """Whether a line leaves an event so that what it wrote is undone."""
    found = line.lstrip()
    return (found.startswith("return ") and found not in (SPEND, LEAVE_ALL)) or line.endswith(REJECT)
