"""Where a live program stands: its states, and what its windows still see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from timelapse.kernels.base import PassResult
from timelapse.kinds.base import StateSpec
from timelapse.program.program import Program, spec_of
from timelapse.program.times import kept
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.effectlog import PRESENT, since


@dataclass(frozen=True)
class Seen:
    """The rows of one part of the journal, by state and form, and what that part did to states of which values as of a
    time are asked for. `end`: the time up to which it goes."""

    end: int
    rows: Mapping[tuple[str, str], pa.Table]
    effects: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Stand:
    """Where a program stands after an epoch: all that a kernel needs to go on from there.

    `states`: a table per state; one that is missing is empty. `seen`: of states that are looked back on, the parts whose
    rows may still be seen, in order. `stood`: what such states held before the first of these parts. `complete`: the time up
    to which everything has happened.
    """

    states: Mapping[str, pa.Table] = field(default_factory=dict)
    seen: tuple[Seen, ...] = ()
    stood: Mapping[str, pa.Table] = field(default_factory=dict)
    complete: int | None = None

    def then(self, program: Program, changes: PassResult, complete: int) -> Stand:
        """Where the program stands after a further part of the journal, that did this."""
        return self.after(program, [(changes, complete)])

    def after(self, program: Program, parts: Sequence[tuple[PassResult, int]]) -> Stand:
        """The same after several parts, one after the other: what each did, and the time up to which it goes."""
        specs, widths = spec_of(program).states, kept(program)
        for changes, _ in parts:
            changes.settle()
        names = dict.fromkeys(name for changes, _ in parts for name in changes.effects)
        states = {
            name: _after(specs[name], self.states, [c.effects[name] for c, _ in parts if name in c.effects])
            for name in names
        }
        complete, seen, stood = self.complete, [*self.seen], dict(self.stood)
        for changes, complete in parts:
            as_of = {state for state, form in changes.rows if form == PRESENT}
            effects = {name: changes.effects[name] for name in as_of if name in changes.effects}
            seen = [*seen, Seen(complete, changes.rows, effects)] if changes.rows else []
            stood = {name: stood.get(name, empty(specs[name])) for name in as_of}
            while seen and all(seen[0].end <= complete - widths[state] for state, _ in seen[0].rows):
                for name, table in seen[0].effects.items():
                    stood[name] = _after(specs[name], stood, [table])
                del seen[0]
        return Stand({**self.states, **states}, tuple(seen), stood, complete)

    def trimmed(self, program: Program) -> Stand:
        """The same without rows that no view sees any more, where whole parts are not needed."""
        widths = kept(program)
        assert self.complete is not None
        found = []
        for part in self.seen:
            rows = {}
            for (state, form), table in part.rows.items():
                if form != PRESENT:
                    left = since([table], self.complete - widths[state])
                    table = left[0] if left else table.slice(0, 0)
                rows[state, form] = table
            found.append(replace(part, rows=rows))
        return replace(self, seen=tuple(found))


def both(program: Program, first: PassResult, second: PassResult) -> PassResult:
    """What two parts of the journal did, one after the other, as if they were one."""
    specs = spec_of(program).states
    for part in (first, second):
        part.settle()
    effects = {
        name: merge.together(
            specs[name], [part.effects[name] for part in (first, second) if name in part.effects]
        )
        for name in {**first.effects, **second.effects}
    }
    rows = {
        at: pa.concat_tables([part.rows[at] for part in (first, second) if at in part.rows])
        for at in {**first.rows, **second.rows}
    }
    return PassResult(effects=effects, rows=rows)


def _after(spec: StateSpec, states: Mapping[str, pa.Table], effects: Sequence[pa.Table]) -> pa.Table:
    held, some = states.get(spec.name, empty(spec)), [table for table in effects if table.num_rows]
    return merge.fold(spec, held, some) if some else held
