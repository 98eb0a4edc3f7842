"""`if k not in first: first[k] = v`: the first write wins."""

from __future__ import annotations

import ast

from timelapse.analysis.idioms.base import Guard, Verdict, reads_state, same
from timelapse.analysis.idioms.membership import membership
from timelapse.analysis.idioms.values import never_none
from timelapse.model.types import OptionalType


class FirstWrite:
    """A plain write, under a test that the key is missing (or holds None)."""

    name = "first write wins"

    def guard(self, found: Guard) -> Verdict | None:
        state, write = found.state, found.write
        if "first" not in state.kind.rewritten or write.effect != "set" or write.value is None:
            return None
        absent = membership(found)
        if absent is not None:
            return Verdict(absent, "first", write.value)
        test = found.test
        if (
            not isinstance(test, ast.Compare)
            or len(test.ops) != 1
            or not isinstance(state.value, OptionalType)
        ):
            return None
        is_none = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
        is_state, key = reads_state(found.fn, test.left, state)
        if not (is_none and is_state and same(key, write.key)) or not _default_is_none(found):
            return None
        # Only where None always means absent: no write may store it.
        for vertex, other in found.graph.writes[state.name]:
            if other.effect in ("set", "first") and not never_none(found.graph, vertex.fn, other.value):
                return None
            if other.effect not in ("set", "first", "del"):
                return None
        if isinstance(test.ops[0], ast.Is):
            return Verdict(True, "first", write.value)
        return Verdict(False, "first", write.value) if isinstance(test.ops[0], ast.IsNot) else None


def _default_is_none(found: Guard) -> bool:
    from timelapse.kinds.base import ABSENT

    return found.state.default is ABSENT or found.state.default is None
