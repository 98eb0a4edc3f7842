"""Checking a program of yours: random logs for its events, and replay against the serial meaning.

from timelapse.testing import check_replay, random_log

def test_rules_replay_exactly():
    for seed in range(20):
        check_replay(Antispam, random_log([Message, Friendship], seed=seed))
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from timelapse.divergence import assert_same
from timelapse.errors import HandlerError
from timelapse.ids import INT64_MAX, INT64_MIN, SECOND
from timelapse.log import MemoryLog
from timelapse.model.decimals import of_int
from timelapse.model.events import Event
from timelapse.model.types import DecimalType, ListType, OptionalType, ScalarType, ValueType
from timelapse.program.program import Program, as_program, spec_of
from timelapse.run import Run, replay, run_serial

SLICES = (1, 2, 3, 7)

_FLOATS = (0.0, -0.0, 0.5, 1.0, -1.5, 2.0**53, 1e300)
_UNITS = (0, 1, -1, 5, 10, 99, 100, 150, -250, 12345)
_WORDS = ("", "a", "b", "a@b.example", "é", "\U0001f600", "a\x00b", "x" * 40)


def random_log(
    events: Sequence[type[Event]],
    *,
    seed: int = 0,
    count: int = 60,
    keys: int = 4,
    edges: bool = False,
    values: Mapping[str, Sequence[Any]] | None = None,
) -> list[Event]:
    """A log of `count` random events of these types, in log order; the same for the same arguments.

    It is made to provoke: few different values (`keys` for integers), and most events at the same
    time as the one before. `edges` adds integers at the limits of int64. `values` gives, by field
    name, what a field is drawn from (``{"text": ["hello", "a@b.com"]}``).
    """
    rng = random.Random(seed)
    chosen = dict(values or {})
    now = 0
    made: list[Event] = []
    for _ in range(count):
        now += rng.choice((0, 0, 0, 1, SECOND))
        cls = rng.choice(list(events))
        fields = {
            f.name: rng.choice(list(chosen[f.name])) if f.name in chosen else _value(rng, f.type, keys, edges)
            for f in cls.__fields__
        }
        made.append(cls(**fields, ts=now))
    return made


def _value(rng: random.Random, kind: ValueType, keys: int, edges: bool) -> Any:
    if isinstance(kind, OptionalType):
        return None if rng.random() < 0.3 else _value(rng, kind.inner, keys, edges)
    if isinstance(kind, ListType):
        return [_value(rng, kind.inner, keys, edges) for _ in range(rng.randrange(4))]
    assert isinstance(kind, ScalarType)
    if kind.name in ("int", "Time"):
        if edges and rng.random() < 0.1:
            return rng.choice((INT64_MIN, INT64_MAX, 2**53 + 1))
        return rng.randrange(keys)
    if isinstance(kind, DecimalType):
        if edges and rng.random() < 0.1:
            return of_int(rng.choice((INT64_MIN, INT64_MAX)), kind.scale)
        return of_int(rng.choice(_UNITS), kind.scale)
    if kind.name == "float":
        return rng.choice(_FLOATS)
    if kind.name == "bool":
        return rng.random() < 0.5
    word = rng.choice(_WORDS)
    return word if kind.name == "str" else word.encode()


MOST_SLICES = sys.maxsize
"""A replay with a slice for each event has at most so many slices."""


def every(
    slices: Sequence[int], strategies: Sequence[str | None], events: int
) -> list[tuple[int, str | None]]:
    """How a log of so many events is replayed: in each number of slices by each strategy."""
    return [*itertools.product(slices, strategies)]


def check_replay(
    program: Program | type[Program],
    events: Sequence[Event],
    *,
    slices: Sequence[int] = SLICES,
    strategies: Sequence[str | None] = (None, "chain"),
    spark: Any = False,
    quarantine: bool = False,
) -> Run:
    """Replay the events in every slicing, and one slice per event, and compare with the serial meaning.

    Compared to the last bit: outputs and their places, rejections, the state at every slice
    boundary, digests; and where a handler raises, at which event. Returns the reference. Raises
    AssertionError with the first difference, or when a replay needed the fallback that means a bug
    in Timelapse. `spark` and `quarantine` are passed to tl.replay; by default everything runs in this process,
    and a handler's exception fails the run.
    """
    made = as_program(program)
    types = list(dict.fromkeys([*spec_of(made).events, *(type(e) for e in events)]))
    log = MemoryLog(events, types)
    try:
        reference = run_serial(made, log, quarantine=quarantine)
    except HandlerError as error:
        _check_failure(made, log, error, slices, strategies, spark)
        raise
    counts = [*slices, max(1, min(log.count, MOST_SLICES))] if spark is False else list(slices)
    for n, strategy in every(counts, strategies, log.count):
        name = f"replay in {n} slices" + (f", {strategy}" if strategy else "")
        run = replay(made, log, slices=n, spark=spark, strategy=strategy, quarantine=quarantine)
        assert_same(reference, run, names=("serial", name))
        found = run.verify()
        assert found.ok, f"{name}: {found.text}"
        assert run.quarantined == reference.quarantined, name
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest), name
        assert run.pending == reference.pending, f"{name}: {run.pending}, serial {reference.pending}"
        fallback = run.certificate["fallback"]
        assert fallback is None or not fallback["is_bug"], f"{name}: {fallback}"
    return reference


def _check_failure(
    program: Program, log: MemoryLog, error: HandlerError, slices: Sequence[int], strategies: Sequence[str | None],
    spark: Any,
) -> None:  # fmt: skip
    for n, strategy in every(slices, strategies, log.count):
        try:
            replay(program, log, slices=n, spark=spark, strategy=strategy)
        except HandlerError as found:
            if (found.seq, found.handler, found.event) != (error.seq, error.handler, error.event):
                raise AssertionError(
                    f"serial fails at seq {error.seq}, replay in {n} slices at seq {found.seq}"
                ) from found
        else:
            raise AssertionError(f"serial fails at seq {error.seq}, replay in {n} slices does not")
