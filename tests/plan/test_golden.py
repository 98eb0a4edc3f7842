"""Plans as golden text, the same whatever the hash seed. `UPDATE_GOLDEN=1 pytest tests/plan` writes them anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from timelapse.explanation import explain
from timelapse.plan import make_plan
from timelapse.program.load import load_program

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"

PROGRAMS = {
    "antispam": "examples/antispam.py:Antispam",
    "collegemsg": "examples/collegemsg.py:Strangers",
    "sshd": "examples/sshd.py:BruteForce",
    "ledger": "tests/plan/programs.py:Ledger",
}

EDITED = ("antispam", "collegemsg", "sshd")
"""Programs whose text is edited for its readers: lines are left out."""


def text_of(reference: str) -> str:
    return make_plan(load_program(str(ROOT / reference)), slices=4).text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_is_the_golden_one(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    found = text_of(PROGRAMS[name])
    if name in EDITED:
        found = re.sub(r"\.py:\d+", ".py", found)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(found)
    assert found == path.read_text()


SCRIPT = """
import sys
from timelapse.program.load import load_program
from timelapse.explanation import explain
from timelapse.plan import make_plan
for reference in sys.argv[1:]:
    program = load_program(reference)
    print(make_plan(program).text())
    found = explain(program, cores=4)
    print(found, found.to_json(), found.svg())
"""


def test_nothing_depends_on_the_hash_seed() -> None:
    """Plan, explanation and picture, in fresh processes."""
    outputs = set()
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *(str(ROOT / r) for r in PROGRAMS.values())],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True, cwd=ROOT,
        )  # fmt: skip
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs.pop().count(b"<svg") == len(PROGRAMS)


def test_explain_uses_the_same_plan() -> None:
    program = load_program(str(ROOT / PROGRAMS["ledger"]))
    found = explain(program, slices=4)
    assert found.plan.text() == text_of(PROGRAMS["ledger"])
