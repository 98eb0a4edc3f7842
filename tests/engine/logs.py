"""Random logs: few keys, many ties, hot keys."""

from __future__ import annotations

from hypothesis import strategies as st

import timelapse as tl
from tests.engine.programs import A, B

KEYS = st.sampled_from([0, 1, 1, 1, 2, -(2**63)])
WORDS = st.sampled_from(["", "a", "a", "é", "a" * 9])
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 2.5, -1e300, 2.0**53])

_A = st.builds(lambda k, v, s: A(k=k, v=v, s=s), KEYS, st.integers(-1, 3), WORDS)
_B = st.builds(
    lambda k, x, on, tags: B(k=k, x=x, on=on, tags=tags),
    KEYS, FLOATS, st.booleans(), st.lists(WORDS, max_size=2),
)  # fmt: skip


def logs(max_size: int = 30) -> st.SearchStrategy[list[tl.Event]]:
    """Events in log order, most of them at the same times as others."""
    steps = st.lists(st.tuples(_A | _B, st.sampled_from([0, 0, 0, 1, 1_000_000])), max_size=max_size)

    def place(found: list[tuple[A | B, int]]) -> list[tl.Event]:
        now = 5
        placed: list[tl.Event] = []
        for event, step in found:
            now += step
            placed.append(event._at(now, -1))
        return placed

    return steps.map(place)
