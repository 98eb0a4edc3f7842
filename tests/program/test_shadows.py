"""User modules that are called as one of the standard library's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import timelapse as tl
from tests.patience import LONG
from timelapse.program.load import load_module, load_program, user_modules

PROFILE = """
import timelapse as tl
from queue import Queue
from sched import LIMIT, above


class Hit(tl.Event):
    user: int


class Seen(tl.Record, key="user"):
    user: int
    hits: int


class Profile(tl.Program):
    hits: tl.Counter[int]

    @tl.on(Hit)
    def count(self, e):
        self.hits[e.user] += 1
        if above(self.hits[e.user]):
            self.emit(Seen(user=e.user, hits=self.hits[e.user] + LIMIT))
"""
HELPER = """
LIMIT = 2


def above(n):
    return n > LIMIT
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program in profile.py with its helper in sched.py, beside files that must not be taken for the library's."""
    (tmp_path / "profile.py").write_text(PROFILE)
    (tmp_path / "sched.py").write_text(HELPER)
    for name in ("types", "queue", "cProfile", "selectors"):
        (tmp_path / f"{name}.py").write_text(
            "raise SystemError('the user\\'s module was taken for the library\\'s')\n"
        )
    return tmp_path


def _in_a_process(folder: Path, code: str) -> str:
    """What a fresh interpreter prints that has the folder as its working directory, as `timelapse` would be run in it."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=LONG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("reference", ["profile.py:Profile", "profile:Profile"])
def test_the_library_stays_what_it_is(folder: Path, reference: str) -> None:
    out = _in_a_process(folder, f"""
import json, sys
from timelapse.program.load import load_program
program = load_program({reference!r})
again = load_program({reference!r})
import cProfile, profile, sched, types, queue, selectors
print(json.dumps([m.__file__ for m in (cProfile, profile, sched, types, queue, selectors)]))
print(program is again, program.__module__ in sys.modules, program.__module__ not in sys.stdlib_module_names)
""")  # fmt: skip
    files, same = out.splitlines()
    assert not [f for f in json.loads(files) if f.startswith(str(folder))]
    assert same == "True True True"


def test_a_module_of_another_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shadow_rules.py").write_text("import timelapse as tl\n\n\nclass P(tl.Program):\n    pass\n")
    path = list(sys.path)
    try:
        assert load_program(f"{tmp_path / 'shadow_rules.py'}:P").__module__ == "shadow_rules"
        assert sys.path[0] == str(tmp_path)
    finally:
        sys.path[:] = path


def test_helpers_are_found_by_functions_and_are_the_users(folder: Path) -> None:
    path = list(sys.path)
    try:
        module = load_module(str(folder / "profile.py"))
        names = {
            Path(str(m.__file__)).name: m.__name__ for m in user_modules() if str(folder) in str(m.__file__)
        }
        assert set(names) == {"profile.py", "sched.py"}
        assert not [n for n in names.values() if n in sys.stdlib_module_names]
        program = module.Profile
        hit = module.Hit
        assert tl.run_serial(program, [hit(user=1, ts=n) for n in range(4)]).counts == {"Seen": 2}
    finally:
        sys.path[:] = path


def test_workers_take_nothing_for_the_librarys(folder: Path) -> None:
    """Spark starts its workers in the driver's folder; here too handlers run in slices on them."""
    out = _in_a_process(folder, """
import timelapse as tl
from timelapse.env.spark_session import session
from timelapse.program.load import load_module
from timelapse.log import Log
module = load_module("profile.py")
log = Log.from_events("log", [module.Hit(user=n % 7, ts=n) for n in range(200)], [module.Hit])
spark = session(master="local[2]", conf={"spark.driver.memory": "1g"})
found = tl.replay(module.Profile, log, slices=3, strategy="scan", spark=spark)
assert "one task" not in found.manifest.executor, found.manifest.executor
assert found.digest == tl.run_serial(module.Profile, log).digest
spark.stop()
print(found.counts["Seen"])
""")  # fmt: skip
    assert out.split() == ["186"]


def test_the_compiler_takes_nothing_for_the_librarys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from timelapse.kernels.native import parallel

    monkeypatch.chdir(folder)
    started = parallel._start(usual=False)
    assert started.wait(LONG) == 0
