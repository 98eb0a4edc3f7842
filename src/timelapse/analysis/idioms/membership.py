"""`if k not in seen: seen.add(k)`: a test that spares a write which would change nothing.

Also `if k in seen: return` before `seen.add(k)`, `if k in seen: seen.discard(k)`, `del` and `pop` under
`k in x`, and under `k not in x` any write that changes nothing for a key that is there.
"""

from __future__ import annotations

import ast

from timelapse.analysis.idioms.base import Guard, Verdict, same


def membership(found: Guard) -> bool | None:
    """For `k in self.X` with the write's key: the outcome that means absent; else None."""
    test, state = found.test, found.state
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    right = test.comparators[0]
    is_state = (
        isinstance(right, ast.Attribute)
        and isinstance(right.value, ast.Name)
        and right.value.id == found.fn.receiver
        and right.attr == state.name
    )
    if not is_state or state.key is None or not same(test.left, found.write.key):
        return None
    if isinstance(test.ops[0], ast.NotIn):
        return True
    return False if isinstance(test.ops[0], ast.In) else None


class Membership:
    """The write happens only where it makes a difference."""

    name = "membership guard"

    def guard(self, found: Guard) -> Verdict | None:
        absent = membership(found)
        if absent is None:
            return None
        kind, write = found.state.kind, found.write
        if write.effect in kind.settling:
            return Verdict(absent, write.effect, write.value)
        if write.effect == "del":
            return Verdict(not absent, "del")
        is_zero = isinstance(write.value, ast.Constant) and write.value.value == 0
        if isinstance(write.node, ast.Delete) and write.effect == "set" and is_zero:
            return Verdict(not absent, "set", write.value)
        return None
