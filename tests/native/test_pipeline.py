"""How functions are compiled: with fewer of Numba's stages, arithmetic as instructions, and what all passes call once."""

from __future__ import annotations

import gc
import itertools
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pytest

from tests.patience import LONG
from timelapse.kernels import compile as compiling
from timelapse.kernels.native import build
from timelapse.kernels.native.lowering.literals import named
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.machine import store
from timelapse.kernels.native.machine.pipeline import Pipeline
from timelapse.kernels.native.memory import arithmetic as word
from timelapse.kernels.native.memory.primitives import nearest_quotient
from timelapse.kernels.native.parallel import Compiling
from timelapse.kernels.native.usual import are_compiled

ENDS = (0, 1, -1, 2, 3_037_000_500, 2**31, -(2**32), 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 0x5BD1E995)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path / "cache"))


@nb.njit  # type: ignore[untyped-decorator, unused-ignore]
def _compiled(a: Any, b: Any) -> Any:
    total, less, h = word.plus(a, b), word.minus(a, b), word.fold(a, b)
    return (
        total, less, word.plus_left(total, a, b), word.minus_left(less, a, b), word.times_left(a, b),
        h, word.mix(h), word.mix(a), word.left(a, b & 0xFFF, 5), word.bits(word.unbits(a)), word.bits(np.float64(b)),
    )  # fmt: skip


def test_instructions_do_what_python_means() -> None:
    for a, b in itertools.product(ENDS, repeat=2):
        found = _compiled(a, b)
        meant = _compiled.py_func(np.int64(a), np.int64(b))
        assert [type(v) is bool for v in found] == [type(v) is bool for v in meant]
        for one, other in zip(found, meant, strict=True):
            assert int(one) == int(other), (a, b, found, meant)
    assert word.plus_left(word.plus(2**63 - 1, 1), 2**63 - 1, 1)
    assert not word.minus_left(word.minus(5, 7), 5, 7)


def test_quotients_of_large_integers_are_pythons() -> None:
    """The float nearest to the exact one, at ties and at whatever floats do not hold."""
    rng = random.Random(7)
    ends = [
        0,
        1,
        2,
        3,
        7,
        2**52 + 1,
        2**53,
        2**53 + 1,
        2**54 + 2,
        2**54 + 6,
        2**55 - 1,
        2**61 + 2**8,
        2**62 - 1,
        2**62,
    ]
    pairs = [*itertools.product(ends, ends[1:])]
    for _ in range(4000):
        a, b = rng.getrandbits(rng.randint(1, 62)), rng.getrandbits(rng.randint(1, 62)) or 1
        pairs += [(a, b), (a & -(1 << rng.randint(1, 40)), b & -(1 << rng.randint(1, 20)) or 1)]
        near = (2 * rng.getrandbits(53) + 1) * b  # a tie, or next to one
        pairs += [(near + d, b) for d in (-1, 0, 1) if near + d <= 2**62]
    for a, b in pairs:
        for x, y in ((a, b), (-a, b), (a, -b), (-a, -b)):
            meant = x / y
            assert repr(nearest_quotient(np.int64(x), np.int64(y))) == repr(meant), (x, y)
            assert repr(float(nearest_quotient.py_func(x, y))) == repr(meant), (x, y)


KEPT = """SIGNATURE = (int64,)


def run(n):
    if n > 5:
        x = n + 1
        y = x
    else:
        x = 0.5
        y = int64(x + x)
    return y - n
"""


def test_an_integer_is_not_rounded_because_its_variable_holds_a_float_later(cache: None) -> None:
    """Numba has one type for a variable where there is no SSA: such functions are compiled with it."""
    assert build.compiled(Unit(source=KEPT))(2**53) == 1


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("plus(a, (3))", "plus(a, N3)"),
        ("fold((-5), 7)", "fold(M5, N7)"),
        ("mark(t0, r2, True, N2)", "mark(t0, r2, TRUE, N2)"),
        ("True", "True"),
        ("t0[r, 2] + 4 * (2.0) - o0_place[n, 1]", "t0[r, 2] + 4 * (2.0) - o0_place[n, 1]"),
        ("q0 + np.uint64(3)", "q0 + np.uint64(N3)"),
    ],
)
def test_a_literal_makes_no_function_of_its_own(code: str, meant: str) -> None:
    assert named(code) == meant


REPLAY = """
import json
import timelapse as tl
from benchmarks.workloads import Friendship, IntAntispam, Sent
from timelapse.kernels.native.machine import jit
events = [Friendship(a=n % 7, b=n % 11)._at(n, n) for n in range(50)]
events += [Sent(id=n, sender=n % 7, recipient=n % 5, ip=n % 3, has_email=n % 2 == 0)._at(n, n) for n in range(50, 3000)]
tl.replay(IntAntispam(ratio=2.0), events, spark=False, cache=False)
print(json.dumps(dict(jit.COUNTS)))
"""


def test_a_pass_is_all_that_is_left_to_compile(cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once what all passes call is there: it is listed with the types that passes call it with."""
    assert not are_compiled()
    with Compiling([], 2, usual=True) as made:
        made.wait()
    assert are_compiled()
    with Compiling([], 2, usual=True) as again:
        assert len(again) == 0
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    done = subprocess.run(
        [sys.executable, "-c", REPLAY], capture_output=True, text=True, check=True, timeout=LONG
    )
    counts = json.loads(done.stdout)
    assert counts["compiled"] == 1
    assert counts["loaded"] > 10
    before = {e.name for e in store.entries()}
    assert compiling.main(["--usual"]) == 0
    assert {e.name for e in store.entries()} == before


@pytest.mark.parametrize("searches", [True, False])
@pytest.mark.parametrize("compiles", [True, False])
def test_garbage_is_not_searched_for_while_it_compiles(searches: bool, compiles: bool) -> None:
    """And is again afterwards, as before, whether or not the short way compiles it."""
    seen = []

    class Seen(Pipeline):
        def define_pipelines(self) -> list[Any]:
            seen.append(gc.isenabled())
            return super().define_pipelines()

    function = (lambda a: a + 1) if compiles else (lambda a: a.is_not_there)
    made = nb.njit(pipeline_class=Seen, _nrt=False)(function)
    (gc.enable if searches else gc.disable)()
    try:
        if compiles:
            made.compile("int64(int64)")
            assert made(2) == 3
        else:
            with pytest.raises(nb.core.errors.NumbaError):
                made.compile("int64(int64)")
        assert seen == [False]
        assert gc.isenabled() == searches
    finally:
        gc.enable()
