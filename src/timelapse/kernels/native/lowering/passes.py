"""The passes over the code of one event, in their order.

Each makes statements of statements (`form.py`). Between the two tuples it is counted how many rows, undo entries and records an
event can take (`Lowering`): by then no statement comes or goes that takes one, and each still says what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from timelapse.kernels.native.lowering.form import Node
from timelapse.kernels.native.lowering.idle import without_idle_room, without_idle_saves
from timelapse.kernels.native.lowering.lookahead import look_ahead
from timelapse.kernels.native.lowering.rows import share_rows, written_out


@dataclass(frozen=True)
class About:
    """What passes know of an event besides its code.

    `filled`: the buffers that are filled in loops. `exits_follow`: whether something may leave the event after this code.
    `ahead`: the number of the log's event, if its rows are asked for ahead. `shared`: whether workers share out the events.
    """

    filled: frozenset[str]
    exits_follow: bool = False
    ahead: int | None = None
    shared: bool = False


Pass = Callable[[list[Node], About], list[Node]]


def _idle_room(body: list[Node], about: About) -> list[Node]:
    return without_idle_room(body, about.filled)


def _idle_saves(body: list[Node], about: About) -> list[Node]:
    return without_idle_saves(body, more=about.exits_follow)


def _rows_shared(body: list[Node], about: About) -> list[Node]:
    return share_rows(body)


def _look_ups(body: list[Node], about: About) -> list[Node]:
    return written_out(body)


def _look_ahead(body: list[Node], about: About) -> list[Node]:
    return body if about.ahead is None else [*look_ahead(body, about.ahead, shared=about.shared), *body]


SHORTER: tuple[Pass, ...] = (_idle_room, _idle_saves, _rows_shared)
"""They take out what is not needed."""
WRITTEN: tuple[Pass, ...] = (_look_ups, _look_ahead)
"""They write out what look-ups are, and ask for rows ahead."""


def through(passes: Iterable[Pass], body: list[Node], about: About) -> list[Node]:
    """The code after some passes."""
    for one in passes:
        body = one(body, about)
    return body
