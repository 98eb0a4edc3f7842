"""States with views (`last`, `ago`) in compiled passes: which lags they have, and the log of what was done to them.

What is summed up (Counter, Sum, Mean) has for each lag one more word in its row: the value as of so long ago. A cursor goes
through the log, one lag behind the event, and brings it up to date: one addition for each operation, however
often it is looked at. `last(W)` is the value now minus that one.

Of sets and values only the latest operation on a key counts. Its row holds where that stands in the log; a key
is in the window if it is there and its operation is beyond the cursor. How many members of a key are in the window
is a hidden counter, from which the cursor takes those that it passes.

Of Max and Min a key has a queue of those values that no later one has beaten: a chain through the log, whose end, and for each
lag whose first link, stand in the key's row. The first link is the result; it moves on where the cursor passes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timelapse.analysis.result import PassProgram
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.base import StateSpec
from timelapse.kinds.registry import numbers
from timelapse.program.program import Program, spec_of
from timelapse.program.times import VIEWS, width_of

MODERATE = 2**61
"""No part of a window over sums within this leaves int64."""
USED, BASE, KEPT, HEAD = 0, 1, 2, 3
"""A log's marks: rows in use, the absolute place of the first one, rows in use when the event began; from HEAD on for
each lag the place of its cursor, and the lag."""


@dataclass(frozen=True)
class Sliding:
    """The lags of a state's views, in microseconds, ascending."""

    lags: tuple[int, ...]
    stamped: bool
    windowed: bool
    """Whether one of them is of `last`."""
    queued: bool = False

    @property
    def extra(self) -> int:
        """How many more words its rows have."""
        return 1 if self.stamped else len(self.lags) + self.queued

    def cursor(self, lag: int) -> int:
        """Where a lag's cursor stands among the marks; the lag itself comes after it."""
        return HEAD + 2 * self.lags.index(lag)


LOGGED = Sliding((), stamped=False, windowed=False)
"""A state of which a pass knows what is done, not what there is: it has a log, and nothing looks at it yet."""


def sliding_of(program: Program) -> Mapping[str, Sliding]:
    """The states with views. Raises Refused for a use of another time that no compiled pass knows."""
    spec = spec_of(program)
    lags: dict[str, set[int]] = {}
    windowed = set()
    other = next((use for use in spec.times if use.what != "derive"), None)
    for use in spec.times:
        line = use.place.line or 0
        if use.what in ("after", "every"):
            continue
        if use.what == "derive":  # within the transaction: no other time, unless there are some beside it
            if other is not None:
                raise Refused(f"self.send beside {other.text_of_what} runs as Python in this version", line)
            continue
        if use.what not in VIEWS:
            raise Refused(f"{use.text_of_what} runs as Python in this version", line)
        kind = spec.states[use.state].kind
        if kind.window_form not in ("net", "latest", "best") or (
            kind.window_form != "net" and use.what == "ago"
        ):
            raise Refused(f"{use.text_of_what} of a {kind.__name__} runs as Python in this version", line)
        lags.setdefault(use.state, set()).add(width_of(program, use))
        if use.what == "last":
            windowed.add(use.state)
    made = {}
    for name, found in lags.items():
        form = spec.states[name].kind.window_form
        made[name] = Sliding(tuple(sorted(found)), form == "latest", name in windowed, form == "best")
    return made


def views_in(work: PassProgram, views: Mapping[str, Sliding], name: str) -> Sliding | None:
    """What of a state's views a pass has to do with."""
    if name in work.delta:
        return LOGGED if name in work.logs else None
    return views.get(name) if name in work.exact else None


def members_spec(spec: StateSpec, lag: int | None = None) -> StateSpec:
    """The hidden counter of a SetOf's members, by key: of those in a window, or of all."""
    return numbers(f"~{spec.name}{'' if lag is None else f' {lag}'}", spec.outer)


def heads_spec(spec: StateSpec) -> StateSpec:
    """The hidden state that says where the list of a SetOf's members begins, by key (memory/linking.py)."""
    return numbers(f"~{spec.name} members", spec.outer)


def is_hidden(spec: StateSpec) -> bool:
    """Whether a state is one of these."""
    return spec.name.startswith("~")
