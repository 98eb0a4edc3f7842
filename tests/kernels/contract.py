"""The contract of kernels (src/timelapse/kernels/kernel.py), as far as it can be checked: a wrapper around any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from timelapse.analysis.result import PassProgram
from timelapse.engine import tasks
from timelapse.ids import Phase
from timelapse.kernels.base import PassResult, Tick
from timelapse.kernels.choose import SliceKernel
from timelapse.kernels.iterate.repair import RepairKernel
from timelapse.kernels.kernel import EpochKernel
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.shared import SharedKernel
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.python.timed import TimedKernel
from timelapse.kernels.source import Source
from timelapse.program.program import Program, spec_of
from timelapse.serial import Loop
from timelapse.streaming import kernel as streaming
from timelapse.tables.apply import apply, empty
from timelapse.tables.table import hashes_of, key_list

_HOLDS = (InterpretedKernel, NativeKernel, SharedKernel, Loop)
"""What kernels run on, and what holds states."""


class Broken(BaseException):
    """A kernel does not do what its contract promises. Not an Exception: the engine has answers to those."""


def _promise(holds: object, *what: object) -> None:
    if not holds:
        raise Broken(*what)


class Kept:
    """A kernel that keeps its contract, or Broken is raised. `seen` counts what was checked, by the promise."""

    def __init__(
        self, kernel: Any, program: Program, work: PassProgram, starts: Mapping[str, Any], seen: dict[str, int], *, final: bool,
        is_open: bool,
    ) -> None:  # fmt: skip
        self._kernel, self._program, self._work, self._seen = kernel, program, work, seen
        self._final, self._open = final, is_open
        self._specs = spec_of(program).states
        self._exact = {} if is_open else self._known(starts)
        self._given = [(t, _digest(t)) for t in starts.values() if isinstance(t, pa.Table)]
        self._at: int | None = None
        self._time: int | None = None
        self._over = self._closed = False
        self._count("opened")
        self._before: list[tuple[pa.Table, int]] = []

    def _known(self, starts: Mapping[str, Any]) -> dict[str, pa.Table]:
        """The states that it knows exactly and is asked about, at the first slice's start, where they are in memory."""
        found = {}
        for name in self._work.targets if not self._final else self._specs:
            start = starts.get(name)
            if (
                name in self._specs
                and (start is None or isinstance(start, pa.Table))
                and name in self._work.exact
            ):
                found[name] = empty(self._specs[name]) if start is None else start
        return found

    def __getattr__(self, name: str) -> Any:
        _promise(not self._closed, "it is asked after it was closed", name)
        return getattr(self._kernel, name)

    def close(self) -> None:
        """What was returned stays, and nothing of what it held is left."""
        held = [kernel for kernel in vars(self._kernel).values() if isinstance(kernel, _HOLDS)]
        if not self._closed:
            self._seen["opened and closed"] = self._seen.get("opened and closed", 0) + 1
        self._closed = True
        for _ in range(2):
            self._kernel.close()
            for one in held:
                _promise(
                    not vars(one) or isinstance(one, SharedKernel),
                    "what it runs on holds something after it was closed",
                    one,
                )
            left = [kernel for kernel in vars(self._kernel).values() if isinstance(kernel, _HOLDS)]
            _promise(not left, "it holds kernels after it was closed", left)
        for table, digest in [*self._given, *self._before]:
            _promise(_digest(table) == digest, "a table has changed as the kernel was closed")
        self._given, self._before = [], []

    def _count(self, what: str) -> None:
        self._seen[what] = self._seen.get(what, 0) + 1

    def run(self, source: Source, tick: Tick) -> PassResult:
        _promise(not self._closed, "it is run after it was closed")
        _promise(not self._over, "it is asked again after a failure")
        _promise(self._at in (None, source.lo), "a gap between slices", self._at, source.lo)
        told = []

        def watched(events: int) -> None:
            told.append(events)
            tick(events)

        try:
            result: PassResult = self._kernel.run(source, watched)
        except BaseException:
            self._over = True
            raise
        for table, digest in [*self._given, *self._before]:
            _promise(_digest(table) == digest, "a table has changed that was given, or was the caller's")
        self._count("tables stay")
        if result.failure is not None:
            self._over = True
            return result
        if result.late is not None:
            result.settle()
            self._count("found later")
        self._at = source.hi
        self._positions(source, result)
        if not self._open:
            self._effects(result)
        if not spec_of(self._program).times and source.part is None:
            self._counted(source, result, told)
        tables = [*result.effects.values(), *result.outputs.values()]
        self._before = [(t, _digest(t)) for t in tables]
        return result

    def changes(self, later: int = 0) -> PassResult:
        result: PassResult = self._kernel.changes(later)
        if result.late is not None:
            result.settle()
            self._count("found later")
        for name, effects in result.effects.items():
            self._ordered(name, effects)
            self._count("changes are ordered")
        return result

    def _positions(self, source: Source, result: PassResult) -> None:
        """What is put out stands in order, within the slice."""
        tables = [t for cls, t in result.outputs.items() if not cls.__reads__]
        if result.rejected is not None:
            tables.append(result.rejected)
        for table in tables:
            columns = [table.column(n).to_pylist() for n in ("ts", "phase", "seq") if n in table.column_names]
            if "ordinal" in table.column_names:
                columns.append(table.column("ordinal").to_pylist())
            rows = list(zip(*columns, strict=True))
            _promise(rows == sorted(rows), "positions are not in order", rows)
            for ts, phase, seq, *_ in rows:
                if phase == Phase.LOG_EVENT:
                    _promise(
                        source.lo <= seq < source.hi,
                        "of an event outside of the slice",
                        seq,
                        source.lo,
                        source.hi,
                    )
                if source.end is not None:
                    _promise(ts <= source.end, "of a time after the slice's end", ts, source.end)
                if source.since is not None:
                    _promise(ts >= source.since, "of a time before the slice", ts, source.since)
            if rows:
                self._count("positions")

    def _ordered(self, name: str, effects: pa.Table) -> None:
        hashes = hashes_of(effects)
        _promise(bool((hashes[1:] >= hashes[:-1]).all()), "effects are not in the order of hashes", name)
        keys = key_list(self._specs[name], effects)
        _promise(len(set(keys)) == len(keys), "a key twice", name, keys)

    def _effects(self, result: PassResult) -> None:
        """Each key once, in the order of hashes; their digest; and they lead from state to state."""
        for name, effects in result.effects.items():
            if name not in self._specs:
                continue
            self._ordered(name, effects)
            if name in self._exact:
                self._exact[name], change = apply(self._specs[name], self._exact[name], effects)
                told = result.changes.get(name)
                _promise(
                    told is None or told == change,
                    "the digest is not that of the effects",
                    name,
                    told,
                    change,
                )
                self._count("digest" if told is not None else "effects without digest")
                self._same(name)
        if self._final:
            missing = self._specs.keys() - result.effects.keys()
            _promise(not missing, "a final pass says nothing of a state", missing)

    def _same(self, name: str) -> None:
        """What it holds is what the effects lead to. A kernel that takes over keys as they come holds only those."""
        held = getattr(self._kernel, "held", None)
        if held is None or getattr(self._kernel, "workers", False) or not self._final:
            return
        table = self._exact[name]
        keys = key_list(self._specs[name], table)
        wanted = set(map(_hashable, keys))
        found = {_hashable(key) for key, _ in held(name)}
        _promise(found <= wanted, "it holds keys that the effects do not lead to", name, found - wanted)
        self._count("held")

    def _counted(self, source: Source, result: PassResult, told: list[int]) -> None:
        """Events are counted once, those that were taken out too."""
        chunks = source.reader.chunks(source.lo, source.hi, {n: [] for n in source.classes})
        rows = sum(t.num_rows for c in chunks for t in c.tables.values()) if source.classes else 0
        done = result.events + len(result.quarantined)
        _promise(done == rows, "events are not counted once", done, rows)
        _promise(sum(told) <= rows, "more progress than events", told, rows)
        self._count("events")


def _hashable(key: Any) -> Any:
    return (type(key), key)


def _digest(table: pa.Table) -> int:
    """Of the bytes that a table stands on."""
    return hash(
        tuple(
            np.asarray(memoryview(b)).tobytes()
            for c in table.columns
            for k in c.chunks
            for b in k.buffers()
            if b
        )
    )


def kept(make: Callable[..., Any], seen: dict[str, int]) -> Callable[..., Any]:
    """What opens kernels, with the contract around each."""

    def opened(
        program: Program, work: Any = None, starts: Mapping[str, Any] | None = None, *rest: Any, **named: Any
    ) -> Any:
        if make is TimedKernel:
            kernel: EpochKernel = TimedKernel(program, work, **named)
            from timelapse.analysis import analyse, final_pass

            return Kept(
                kernel,
                program,
                final_pass(analyse(program)),
                {},
                seen,
                final=True,
                is_open=named.get("open", False),
            )
        kernel = make(program, work, starts, *rest, **named)
        return Kept(
            kernel,
            program,
            work,
            starts or {},
            seen,
            final=named.get("final", False),
            is_open=named.get("open", False),
        )

    return opened


@contextmanager
def contract() -> Iterator[dict[str, int]]:
    """All kernels that the engine and live runs open meanwhile are held to their contract. Gives how often what was checked."""
    seen: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "SliceKernel", kept(SliceKernel, seen))
        patch.setattr(tasks, "TimedKernel", kept(TimedKernel, seen))
        patch.setattr(tasks, "RepairKernel", kept(RepairKernel, seen))
        patch.setattr(streaming, "SliceKernel", kept(SliceKernel, seen))
        patch.setattr(streaming, "TimedKernel", kept(TimedKernel, seen))
        yield seen
