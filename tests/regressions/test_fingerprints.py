"""A fingerprint changes with everything a program does, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from timelapse.program.fingerprint import Writer
from timelapse.segments.types import EventType

HELPERS = """
LIMIT = 3
def shift(x): return x + LIMIT
def product(a, b): return a * b
"""
PROGRAM = """
import dataclasses, functools
import timelapse as tl, fp_helpers
class A(tl.Event):
    k: int
    @property
    def double(self): return self.k * 2
WORDS = frozenset({"aa", "bb", "cc", "zz"})
NESTED = ({"a", "b", "qq"}, 3)
TABLE = {"f": lambda x: x + 1}
PART = functools.partial(fp_helpers.product, 4)
@dataclasses.dataclass(frozen=True)
class Conf:
    a: int = 3
    s: frozenset = frozenset({"q", "w", "e"})
CONF = Conf()
class P(tl.Program):
    words: frozenset[str] = frozenset({"a", "b", "cc", "dd"})
    n: tl.Counter[int]
    @tl.on(A)
    def h(self, e):
        if str(e.k) in {"aa", "bb", "cc", "dd", "ee"} or str(e.k) in WORDS: return
        self.n[fp_helpers.shift(e.k) + e.double + TABLE["f"](1) + PART(2) + CONF.a + len(NESTED[0])] += 1
"""
SHOW = (
    "import fp_program; from timelapse.program.fingerprint import fingerprint;"
    "from timelapse.analysis import analyse;"
    "print(fingerprint(fp_program.P()), analyse(fp_program.P).opaque)"
)


def shown(folder: Path, seed: str = "0", old: str = "", new: str = "") -> str:
    for name, text in (("fp_helpers", HELPERS), ("fp_program", PROGRAM)):
        (folder / f"{name}.py").write_text(text.replace(old, new) if old else text)
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    made = subprocess.run(
        [sys.executable, "-c", SHOW], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return made.stdout.strip()


def test_it_does_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    """Processes with different hash seeds agree, and each recognises the source of the code it runs."""
    found = {shown(tmp_path, seed) for seed in ("0", "1", "2", "3")}
    assert len(found) == 1
    assert found.pop().endswith("False")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"), ("a * b", "a + b"), ("x + 1", "x + 2"), ("product, 4", "product, 5"),
        ("a: int = 3", "a: int = 4"), ("self.k * 2", "self.k * 3"), ('"qq"', '"rr"'), ('"zz"', '"yy"'),
    ],
)  # fmt: skip
def test_it_changes_with_what_the_code_reaches(old: str, new: str, tmp_path: Path) -> None:
    """A helper in another module, its constants, lambdas in tables, partial arguments, objects, sets."""
    assert shown(tmp_path, old=old, new=new) != shown(tmp_path)


def test_names_of_attributes_are_no_globals(tmp_path: Path) -> None:
    """What a file calls as a state or a field is called is not reached: `self.n` and `e.k` are not the file's `n` and `k`."""
    same = "n = 5\nk = 6\ndouble = 7\nclass A(tl.Event):"
    assert shown(tmp_path, old="class A(tl.Event):", new=same) == shown(tmp_path)


def test_classes_made_for_a_log_are_told_as_runs_have_them() -> None:
    """Runs keep the fingerprint of their program: the name of the module in it stays, wherever such classes are made."""
    found, stored = Writer(), Writer()
    found.value("event", EventType("Login", ()).event_class())
    stored.add("event", "class", "timelapse.log.types", "Login")
    assert found.digest() == stored.digest()
