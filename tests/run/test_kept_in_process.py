"""What a process keeps of a program between two replays is never that of another one."""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import some
from tests.native.fuzz.emulate import emulated
from timelapse.analysis import analyse
from timelapse.kernels.native import build, lowered
from timelapse.program.identity import identity_of

PROGRAM = """
import timelapse as tl
from keptnear import step

SHARE = 3
TABLE = {"a": 1}


class Seen(tl.Event):
    id: int
    who: int
    more: int


class Loud(tl.Record, key="id"):
    id: int
    score: int


def weight(n, base=2):
    return n % SHARE + base + step(n)


def count(program, e):
    program.heard[e.who] += weight(e.id)


def maker(k):
    def scaled(n):
        return n * k
    return scaled


scaled = maker(2)


class Base(tl.Program):
    def twice(self, n):
        return 2 * n


class Talk(Base):
    limit: int = 40
    word: str = "x"

    FACTOR = 1

    heard: tl.Counter[int]
    known: tl.Set[int]

    @tl.on(Seen)
    def hear(self, e):
        count(self, e)
        if scaled(e.id) % 4 != 0:
            self.known.add(e.who + TABLE["a"])
        else:
            self.known.discard(e.who + TABLE["a"])

    @tl.on(Seen)
    def tell(self, e):
        if self.heard[e.who] > self.limit and e.who in self.known:
            self.emit(Loud(id=e.id, score=self.twice(self.heard[e.who]) * self.FACTOR + abs(e.more) + len(self.word)))
"""
NEAR = "EXTRA = 1\n\n\ndef step(n):\n    return EXTRA\n"


KERNELS = ["native", "python", "interpreted"]


@pytest.fixture(params=KERNELS)
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TIMELAPSE_KERNEL", request.param)
    monkeypatch.setattr(
        build, "_get", lambda text, *, compile_it: emulated(text)
    )  # the same source, not compiled
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "keptnear.py").write_text(NEAR)
    (tmp_path / "keptprogram.py").write_text(PROGRAM)
    importlib.invalidate_caches()
    yield importlib.import_module("keptprogram")
    for name in ("keptprogram", "keptnear"):
        sys.modules.pop(name, None)


def found(module: Any, cls: type[tl.Program], **params: Any) -> list[dict[str, Any]]:
    """What a replay gives, which is what the serial loop gives."""
    events = [module.Seen(id=i, who=i * 7 % 5, more=-i, ts=i // 3) for i in range(200)]
    program = cls(**params)
    run = tl.replay(program, events, spark=False, slices=3, strategy="staged")
    serial = tl.run_serial(program, events)
    assert run.digest == serial.digest
    assert run.state_digest == serial.state_digest
    assert run.certificate["fallback"] is None
    rows: list[dict[str, Any]] = run.table("Loud").to_pylist()
    return rows


def other_weight(n: int, base: int = 5) -> int:
    return n % 7 + base


def other_step(n: int) -> int:
    return n % 2 + 1


def other_count(program: Any, e: Any) -> None:
    """Reads another field, and another state."""
    program.heard[e.who] += abs(e.more) % 5
    program.known.discard(e.who + 2)


def _closure(module: Any) -> None:
    module.scaled.__closure__[0].cell_contents = 5


def _code(module: Any) -> None:
    module.weight.__code__ = other_weight.__code__


def _method(module: Any) -> None:
    module.Base.twice = lambda self, n: 3 * n


def _defaults(module: Any) -> None:
    module.weight.__defaults__ = (9,)


CHANGES: dict[str, Callable[[Any], None]] = {
    "a global constant": lambda m: setattr(m, "SHARE", 5),
    "an item of a global": lambda m: m.TABLE.update(a=2),
    "a constant of another module": lambda m: setattr(sys.modules["keptnear"], "EXTRA", 4),
    "a helper": lambda m: setattr(m, "weight", other_weight),
    "a helper of another module": lambda m: setattr(m, "step", other_step),
    "a helper that is given the program": lambda m: setattr(m, "count", other_count),
    "a captured variable": _closure,
    "another closure of the same code": lambda m: setattr(m, "scaled", m.maker(3)),
    "a function's code": _code,
    "a default argument": _defaults,
    "a method of a base class": _method,
    "a constant of the class": lambda m: setattr(m.Talk, "FACTOR", 3),
    "a builtin's name": lambda m: setattr(m, "abs", lambda n: n % 10),
}


@pytest.mark.parametrize(("module", "change"), some(product(KERNELS, CHANGES)), indirect=["module"])
def test_what_was_changed_between_two_replays_counts(module: Any, change: str) -> None:
    before = found(module, module.Talk)
    assert found(module, module.Talk) == before
    CHANGES[change](module)
    assert found(module, module.Talk) != before


def test_parameters_count_with_their_types(module: Any) -> None:
    results = [
        found(module, module.Talk, **p) for p in ({}, {"limit": 60}, {"word": "xyz"}, {"word": ""}, {})
    ]
    assert results[0] == results[4]
    assert len({str(r) for r in results}) == 4


def test_a_module_that_is_loaded_again(module: Any, tmp_path: Path) -> None:
    """The class that was there goes on with the globals that there are now, the new one is another."""
    old = module.Talk
    before = found(module, old)
    changed = PROGRAM.replace("2 * n", "5 * n").replace("SHARE = 3", "SHARE = 2")
    (tmp_path / "keptprogram.py").write_text(changed + "\n\n# of another length\n")
    importlib.invalidate_caches()
    importlib.reload(module)
    assert module.Talk is not old
    assert found(module, module.Talk) != before


def test_a_builtin_that_was_replaced(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = analyse(module.Talk)
    assert analyse(module.Talk) is first
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "abs", lambda n: n)
        assert analyse(module.Talk) is not first
    assert analyse(module.Talk) is first


def test_nothing_is_lowered_twice_that_did_not_change(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    made: list[str] = []
    real = lowered._lower

    def lower(program: Any, work: Any, *, final: bool) -> Any:
        made.append(work.name)
        return real(program, work, final=final)

    monkeypatch.setattr(lowered, "_lower", lower)
    found(module, module.Talk)
    assert sorted(made) == ["final", "heard known"]
    found(module, module.Talk)
    assert len(made) == 2
    found(module, module.Talk, limit=41)
    assert len(made) == 4
    module.SHARE = 4
    found(module, module.Talk, limit=41)
    assert len(made) == 6


def test_a_program_that_reaches_a_library_is_lowered_for_each_replay(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a library's name stands for cannot be hashed."""
    assert identity_of(module.Talk).certain
    monkeypatch.setattr(module, "TABLE", types.MappingProxyType({"a": 1}))
    assert not identity_of(module.Talk).certain
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    made: list[str] = []
    real = lowered._lower

    def lower(program: Any, work: Any, *, final: bool) -> Any:
        made.append(work.name)
        return real(program, work, final=final)

    monkeypatch.setattr(lowered, "_lower", lower)
    found(module, module.Talk)
    first = len(made)
    found(module, module.Talk)
    assert len(made) == 2 * first > 0


class Heard(tl.Event):
    who: int


def test_options_of_states_are_known_by_what_they_say() -> None:
    def program(**options: Any) -> type[tl.Program]:
        class Counting(tl.Program):
            seen: tl.Distinct[int, int] = tl.state(**options)

            @tl.on(Heard)
            def count(self, e: Heard) -> None:
                self.seen.add(e.who, e.seq)

        return Counting

    of = [identity_of(program(size=size)) for size in (32, 32, 64)]
    assert all(one.certain for one in of)
    assert of[0].digest == of[1].digest != of[2].digest
