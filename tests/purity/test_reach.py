"""The check follows methods, helpers, helper classes and base classes, and nothing that is not reached."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.antispam import Antispam
from examples.collegemsg import Strangers
from examples.sshd import BruteForce
from tests.purity.harness import Check
from timelapse.analysis.purity import purity_findings


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    return Check(tmp_path, monkeypatch)


def test_helpers_of_helpers_are_followed(check: Check) -> None:
    check.flags(
        "x = outer()",
        "TL114",
        top="import time\ndef inner():\n    return time.time()\ndef outer():\n    return inner()",
    )


def test_recursion_ends(check: Check) -> None:
    check.flags("x = f(3)", "TL114", top="import time\ndef f(n):\n    return f(n - 1) if n else time.time()")


def test_a_function_that_is_not_reached_is_not_looked_at(check: Check) -> None:
    check.flags("x = 1", top="import time\ndef unused():\n    return time.time()")


def test_a_helper_given_as_an_argument_is_followed(check: Check) -> None:
    check.flags("x = sorted(e.tags, key=f)", "TL114", top="import time\ndef f(n):\n    return time.time()")


def test_a_cached_helper_is_followed(check: Check) -> None:
    top = "import time, functools\n@functools.lru_cache\ndef f(n):\n    return time.time()"
    check.flags("x = f(1)", "TL114", top=top)


def test_methods_of_a_helper_class_are_followed(check: Check) -> None:
    top = "import time\nclass Clock:\n    def read(self):\n        return time.time()"
    check.flags("x = Clock().read()", "TL114", top=top)


def test_nested_functions_lambdas_and_comprehensions_are_looked_at(check: Check) -> None:
    check.flags(
        "f = lambda: time.time()\nx = [time.time() for _ in (1,)]", "TL114", "TL114", top="import time"
    )


def test_closures_are_resolved(check: Check) -> None:
    module = check.module(
        "import timelapse as tl\nimport time\n"
        "class E(tl.Event):\n    n: int\n"
        "def make(clock, seen):\n"
        "    class P(tl.Program):\n"
        "        @tl.on(E)\n"
        "        def handle(self, e):\n"
        "            x = clock()\n"
        "            seen.append(x)\n"
        "    return P\n"
        "P = make(time.time, [])\n"
    )
    assert sorted(d.code for d in purity_findings(module.P)) == ["TL114", "TL117"]


METHODS = """\
import time
import timelapse as tl

class E(tl.Event):
    n: int

class Base(tl.Program):
    count: tl.Counter[int]

    @tl.on(E)
    def handle(self, e):
        self.help(e)

    def help(self, e):
        self.count[e.n] += {base}

class P(Base):
    def help(self, e):
        super().help(e)
        x = self.prop + self.static() + self.made()

    @property
    def prop(self):
        return {prop}

    @staticmethod
    def static():
        return {static}

    @classmethod
    def made(cls):
        return {made}

    def unused(self):
        return time.time()
"""


@pytest.mark.parametrize("where", ["base", "prop", "static", "made"])
def test_methods_of_every_sort_are_followed(check: Check, where: str) -> None:
    fill = dict.fromkeys(("base", "prop", "static", "made"), "1") | {where: "time.time_ns()"}
    module = check.module(METHODS.format(**fill))
    assert [d.code for d in purity_findings(module.P)] == ["TL114"]


@pytest.mark.parametrize("program", [Antispam, Strangers, BruteForce])
def test_the_examples_are_pure(program: type) -> None:
    assert purity_findings(program) == ()


def test_findings_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    text = """
import random, time
import timelapse as tl
class E(tl.Event):
    n: int
    s: str
class P(tl.Program):
    @tl.on(E)
    def a(self, e):
        x = time.time() + random.random() + hash(e.s) + id(e)
        for t in {e.s, 'b', str(e.n)}:
            print(t)
from timelapse.analysis.purity import purity_findings
print(*purity_findings(P), sep='\\n')
"""
    path = tmp_path / "case.py"
    path.write_text(text)
    outputs = {
        subprocess.run(
            [sys.executable, path], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1
    assert outputs.pop().count(b"TL11") == 6
