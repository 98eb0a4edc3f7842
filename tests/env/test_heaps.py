"""Where a budget is set, allocators keep little; elsewhere they are left as they are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import pyarrow as pa
import timelapse as tl

class E(tl.Event):
    k: int

class P(tl.Program):
    n: tl.Counter[int]

    @tl.on(E)
    def on(self, e):
        self.n[e.k] += 1

before = pa.default_memory_pool().backend_name
run = tl.replay(P, [E(k=n, ts=n) for n in range(9)], slices=2, spark=False)
assert run.digest == tl.run_serial(P, [E(k=n, ts=n) for n in range(9)]).digest
print(before, pa.default_memory_pool().backend_name)
"""


@pytest.mark.parametrize("budget", ["", "200M"])
def test_allocators_keep_little_where_a_budget_is_set(budget: str) -> None:
    env = {k: v for k, v in os.environ.items() if k != "TIMELAPSE_MEMORY"}
    if budget:
        env["TIMELAPSE_MEMORY"] = budget
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=env, check=True)
    before, after = done.stdout.split()
    assert after == ("system" if budget else before)
