"""The check for users' programs: passes what is exact, fails what is not."""

from __future__ import annotations

from typing import Any

import pytest

import timelapse as tl
from tests.engine.programs import A, B, Chained, Idioms, Rejecting, Selfish
from timelapse.errors import HandlerError
from timelapse.run import replay
from timelapse.testing import check_replay, oracle, random_log


@pytest.mark.parametrize("program", [Chained, Idioms, Selfish, Rejecting])
def test_programs_pass(program: type[tl.Program]) -> None:
    """Over a few random logs, in every slicing."""
    for seed in range(2):
        reference = check_replay(program, random_log([A, B], seed=seed, count=25), slices=(1, 3))
        assert reference.events == 25


def test_random_logs_are_in_order_repeatable_and_odd() -> None:
    """Same arguments, same events; ties, every field type, edges and chosen values when asked."""

    class Every(tl.Event):
        i: int
        f: float
        b: bool
        s: str
        raw: bytes
        when: tl.Time
        maybe: int | None
        many: list[str]

    log: list[Any] = random_log([Every, A], seed=3, count=300, edges=True, values={"s": ["only"]})
    assert log == random_log([Every, A], seed=3, count=300, edges=True, values={"s": ["only"]})
    assert log != random_log([Every, A], seed=4, count=300, edges=True, values={"s": ["only"]})
    times = [e.ts for e in log]
    assert times == sorted(times)
    assert len(set(times)) < len(times)
    every = [e for e in log if isinstance(e, Every)]
    assert {e.s for e in every} == {"only"}
    assert any(abs(e.i) > 2**60 for e in every)
    assert any(e.maybe is None for e in every)


def test_a_replay_that_differs_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first difference is in the message."""
    real = replay

    def wrong(program: Any, log: Any, **options: Any) -> Any:
        return real(Chained(ratio=2.0), log, **options)

    monkeypatch.setattr(oracle, "replay", wrong)
    with pytest.raises(AssertionError, match="first difference"):
        check_replay(Chained(ratio=0.1), random_log([A, B], seed=1))


def test_a_program_that_raises_raises_the_same_everywhere() -> None:
    """Every slicing is checked to fail at the same event; then the error is raised."""

    class Bad(tl.Program):
        n: tl.Counter[int]

        @tl.on(A)
        def h(self, e: A) -> None:
            self.n[e.k] += 1
            if self.n[e.k] > 3:
                raise ValueError("four")

    with pytest.raises(HandlerError, match="four"):
        check_replay(Bad, random_log([A], count=40), slices=(1, 3))
