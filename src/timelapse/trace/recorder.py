"""Collects what rewritten handlers and watched states tell, and puts it together as steps."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any

from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.grouped import Grouped, Under
from timelapse.model.events import Event, Record
from timelapse.trace.expressions import comparison, shown, written
from timelapse.trace.instrument import Site, Sites
from timelapse.trace.margins import margin_of
from timelapse.trace.steps import (
    MISSING,
    Branch,
    Condition,
    Emit,
    Opaque,
    Read,
    Step,
    Texts,
    Write,
    brief,
)

MOST_STEPS = 20_000
"""The most steps of one event that are kept: a handler may loop. Records are always kept."""
MOST_ROUNDS = 200
"""The most conditions of one line among them; further ones are counted."""
MOST_CALLS = 64
"""The most calls of handlers that are told in full if one record is asked about: events that are sent may call them a million times."""

Rounds = dict[tuple[str, int], list[int]]

_PLAIN = (bool, int, float, str, bytes, Decimal, type(None))


@dataclass(frozen=True)
class Value:
    """What an expression gave, with what its parts gave."""

    site: Site
    value: Any
    parts: dict[int, Value]
    reads: tuple[int, ...] = ()
    """Its own reads, by their place among the steps."""
    origin: Value | None = None
    """For a local variable: the expression that it was assigned."""


class Recorder:
    """Collects the steps of one event. The methods `at`, `value`, `test`, `both` and `branch` are called by handlers."""

    def __init__(self, sites: Sites, emits: Mapping[str, int] | None = None) -> None:
        """`emits`: how many records a call of a handler emits at most, where that is known."""
        self._sites, self._emits = sites, emits or {}
        self.clear()

    def clear(self, record: int | None = None, calls: int = 0) -> None:
        """Another event begins. `record`: it is asked about this one of its records, by its place among them. If handlers are then called
        more than MOST_CALLS times, only the call that put it out is kept, with what was written before. `calls`: so many are not told."""
        self.steps: list[Step] = []
        self.starts: list[tuple[str, int]] = []
        """Where each handler's steps begin."""
        self.calls = calls
        """How often handlers were called."""
        self._record, self._records = record, 0
        self._kept = 0
        """The number of steps that have been looked through for what is kept."""
        self._over = False
        """Whether what is asked about is over: nothing more is told."""
        self._deaf = False
        """Whether nothing is heard but writes and records, as the call does not reach the record that is asked about; or nothing at all."""
        self.line = 0
        self.function = ""
        self.cut = False
        self.rounds: list[Rounds] = []
        """Of each of these handlers, by function and line, how many conditions came out false, and how many true."""
        self._values: dict[int, Value] = {}
        self._locals: dict[tuple[str, str], Value] = {}
        self._pending: list[int] = []
        self._watched: list[tuple[Any, dict[str, Any]]] = []

    @property
    def summed_calls(self) -> int:
        """The number of calls, if only the writes of most of them are kept; else 0."""
        return self.calls if self._record is not None and self.calls > MOST_CALLS else 0

    # --- what handlers tell -------------------------------------------------------------------------

    def go_on(self, records: int) -> None:
        """Calls were left out: the event has put out so many records by now."""
        self._records = records

    def enter(self, handler: str) -> None:
        """A handler begins."""
        self.calls += 1
        if self._record is not None and self.calls > MOST_CALLS and not self._over:
            self._forget()
            most = self._emits.get(handler)
            self._deaf = self._over or (most is not None and self._records + most <= self._record)
        if self._over:
            return
        self.starts.append((handler, len(self.steps)))
        self.rounds.append({})
        self._values.clear()
        self._locals.clear()
        self._pending.clear()

    def at(self, index: int) -> None:
        """A statement begins."""
        site = self._sites.all[index]
        self.line, self.function = site.line, site.function

    def value(self, index: int, value: Any) -> Any:
        """An expression gave a value."""
        site = self._sites.all[index]
        self.line, self.function = site.line, site.function
        if self._deaf:
            return value
        found = Value(site, seen(value), self._parts(site), self._reads_of(site), self._origin(site))
        self._values[index] = found
        if site.assigns is not None:
            self._locals[site.function, site.assigns] = found
        if isinstance(site.node, ast.Compare):
            self._add(self._condition(found, bool_of(value)))
        return value

    def test(self, index: int, value: Any) -> bool:
        """A part of a condition gave a value; what counts is whether it is true."""
        outcome = bool(value)
        if self._deaf:
            return outcome
        site = self._sites.all[index]
        self._values[index] = Value(site, outcome, self._parts(site))
        return outcome

    def both(self, index: int, value: bool) -> bool:
        """Parts of a condition that are put together."""
        if self._deaf:
            return value
        site = self._sites.all[index]
        self._values[index] = Value(site, value, self._parts(site))
        return value

    def branch(self, index: int, outcome: bool) -> bool:
        """A condition was decided."""
        if self._deaf:
            return outcome
        site = self._sites.all[index]
        parts = self._parts(site)
        leaves = [leaf for part in parts.values() for leaf in self._leaves(part)]
        taken, missed = (site.then, site.other) if outcome else (site.other, site.then)
        blocks = (missed is not None and missed.emits) or (taken is not None and taken.leaves)
        if site.text is None:
            site.text = written(site.node, self._sites)
        for leaf, told in leaves:
            if not told:
                self._add(leaf)
        conditions = tuple(leaf for leaf, _ in leaves)
        self._add(Branch(site.line, site.function, site.text, outcome, conditions, blocks))
        return outcome

    def _forget(self) -> None:
        """Of the calls before keep the one that put out the record that is asked about, and of those before it the writes."""
        assert self._record is not None
        new = bisect_left(
            self.starts, self._kept, key=itemgetter(1)
        )  # the calls before have been gone through
        calls = list(zip(self.starts[new:], self.rounds[new:], strict=True))
        if not calls:
            return
        steps = self.steps[self._kept :]
        ends = [*(start - self._kept for (_, start), _ in calls[1:]), len(steps)]
        del self.steps[self._kept :], self.starts[new:], self.rounds[new:]
        records = self._records - sum(isinstance(s, Emit) for s in steps)
        at = 0
        for ((handler, _), rounds), end in zip(calls, ends, strict=True):
            own, at = steps[at:end], end
            records += sum(isinstance(s, Emit) for s in own)
            self._over = records > self._record
            own = own if self._over else [s for s in own if isinstance(s, Write)]
            if own:
                self.starts.append((handler, len(self.steps)))
                self.rounds.append(rounds if self._over else {})
                self.steps += own
            if self._over:
                break
        self._kept = len(self.steps)

    # --- what states tell ---------------------------------------------------------------------------

    def watch(self, spec: StateSpec, state: Any) -> Any:
        """Have a state tell its reads and writes, until `leave`. Returns it."""
        hooks = (*_HOOKS, "_now", *(n for n in ("_outer", "_largest") if hasattr(state, n)))
        self._watched.append((state, {n: getattr(state, n) for n in hooks}))
        if hasattr(state, "_largest"):  # it would not be told what that looks at
            state._largest = None
        quiet = False
        """Whether nothing is told: it is found out what stands under a key."""
        get, put, drop, items = state._get, state._put, state._drop, state._items
        name, shown = spec.name, spec.kind.shown_stored

        def told_get(key: Any, default: Any) -> Any:
            value = get(key, default)
            if quiet or self._deaf:
                return value
            stored = get(key, ABSENT)
            self._read(
                Read(
                    name,
                    key,
                    seen(None if value is ABSENT else shown(spec, key, value)),
                    stored is not ABSENT,
                    self.line,
                )
            )
            return value

        def told_put(key: Any, value: Any) -> None:
            if self._over:
                put(key, value)
                return
            before = get(key, ABSENT)
            put(key, value)
            self._write(name, key, shown(spec, key, before), shown(spec, key, value))

        def told_drop(key: Any) -> None:
            if self._over:
                drop(key)
                return
            before = get(key, ABSENT)
            drop(key)
            self._write(name, key, shown(spec, key, before), ABSENT)

        def told_items() -> Iterable[tuple[Any, Any]]:
            found = list(items())
            if quiet or self._deaf:
                return found
            self._read(Read(name, None, len(found), True, self.line, every=True))
            return found

        state._get, state._put, state._drop, state._items = told_get, told_put, told_drop, told_items
        if not isinstance(state, Grouped):
            return state
        outer: Any = state._outer

        def told_outer(key: Any) -> Any:
            nonlocal quiet
            checked = outer(key)
            if not quiet and not self._deaf:
                quiet = True
                try:
                    # Compiled, how many they are may be known where nobody keeps which.
                    number = state._number(checked)
                finally:
                    quiet = False
                self._read(Read(name, Under(checked), number, number > 0, self.line))
            return checked

        state._outer = told_outer
        return state

    def leave(self) -> None:
        """The event is over: states are as they were, but for what they hold."""
        for state, hooks in self._watched:
            for name, hook in hooks.items():
                setattr(state, name, hook)
        self._watched.clear()

    def _read(self, read: Read) -> None:
        if self._add(read):
            self._pending.append(len(self.steps) - 1)

    def _write(self, state: str, key: Any, before: Any, after: Any) -> None:
        for place in self._pending:
            read = self.steps[place]
            if isinstance(read, Read) and read.state == state and read.key == key:
                self.steps[place] = replace(read, own=True)
        self._pending.clear()
        sides = [MISSING if side is ABSENT else seen(side) for side in (before, after)]
        self._add(Write(state, key, sides[0], sides[1], self.line))

    def emitted(self, record: Record) -> None:
        """A record was emitted."""
        self._records += 1
        self._add(Emit(record, self.line))

    # --- putting together ---------------------------------------------------------------------------

    def _add(self, step: Step) -> bool:
        if self._over:
            return False
        if isinstance(step, Condition | Branch):
            counts = self.rounds[-1].setdefault((step.function, step.line), [0, 0])
            if isinstance(step, Condition):
                counts[step.outcome] += 1
            if sum(counts) > MOST_ROUNDS:
                return False
        if len(self.steps) - self._kept >= MOST_STEPS and not isinstance(step, Emit):
            self.cut = True
            return False
        self.steps.append(step)
        return True

    def _parts(self, site: Site) -> dict[int, Value]:
        return {c: self._values.pop(c) for c in site.children if c in self._values}

    def _reads_of(self, site: Site) -> tuple[int, ...]:
        """Take the reads that an expression has just made. Those of an operation that only writes are its own."""
        if site.state is None:
            return ()
        names = [getattr(self.steps[p], "state", "") for p in self._pending]
        told = [
            n == site.state if site.view is None else n.startswith(f"{site.state}.{site.view}(")
            for n in names
        ]
        mine = [p for p, is_mine in zip(self._pending, told, strict=True) if is_mine]
        self._pending = [p for p in self._pending if p not in mine]
        if self._only_writes(site):
            for place in mine:
                read = self.steps[place]
                assert isinstance(read, Read)
                self.steps[place] = replace(read, own=True)
        return tuple(mine)

    def _only_writes(self, site: Site) -> bool:
        if site.view is not None:
            return False
        kinds = [s._spec.kind for s, _ in self._watched if s._spec.name == site.state]
        op = kinds[0].ops.get(site.method) if kinds else None
        return op is not None and op.effect is not None and not op.reads

    def _origin(self, site: Site) -> Value | None:
        if isinstance(site.node, ast.Name):
            return self._locals.get((site.function, site.node.id))
        return None

    def _leaves(self, value: Value) -> list[tuple[Condition, bool]]:
        """The conditions that a test was made of, through `and`, `or`, `not` and local variables.

        With each, whether it has been told already: comparisons are, when they have been evaluated.
        """
        found = list[tuple[Condition, bool]]()
        waiting = [value]
        while waiting:
            value = waiting.pop()
            node = value.site.node
            if isinstance(node, ast.BoolOp) or (
                isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
            ):
                waiting += reversed(value.parts.values())
            elif inner := [p for p in value.parts.values() if p.site.node is node]:
                # A part of a test: the expression itself.
                found += self._leaves(inner[0]) or [(self._condition(inner[0], value.value), False)]
            elif value.origin is not None and isinstance(
                value.origin.site.node, ast.Compare | ast.BoolOp | ast.UnaryOp
            ):
                waiting.append(value.origin)
            elif isinstance(node, ast.Compare):
                found.append((self._condition(value, bool_of(value.value)), True))
        return found

    def _condition(self, value: Value, outcome: bool) -> Condition:
        reads = [self.steps[p] for p in _reads(value)]
        found = tuple(r for r in reads if isinstance(r, Read))
        texts = partial(_texts, value, outcome, self._sites)
        return Condition(value.site.line, value.site.function, outcome, found, texts)


def _all_parts(value: Value) -> dict[int, Any]:
    """What every expression in it gave, by the node's identity."""
    return {id(part.site.node): part for part in _within(value)}


def _within(value: Value) -> Iterator[Value]:
    """It, and what it was made of, each before its parts."""
    waiting = [value]
    while waiting:
        yield (one := waiting.pop())
        waiting += reversed(one.parts.values())


def _texts(value: Value, outcome: bool, sites: Sites) -> Texts:
    node, parts = value.site.node, _all_parts(value)
    texts, compared = shown(node, parts, sites), comparison(node, parts, sites)
    margin = None
    if compared is not None and len(compared.operators) == 1:
        margin = margin_of(compared.values[0], compared.operators[0], compared.values[1], outcome)
    values = brief(value.value) if compared is None else compared.text
    return Texts(texts.source, texts.text, texts.full, values, margin)


_HOOKS = ("_get", "_put", "_drop", "_items")


def _reads(value: Value) -> list[int]:
    return [read for part in _within(value) for read in part.reads]


def bool_of(value: Any) -> bool:
    """Whether a comparison's result is true; one that is no plain value counts as true."""
    return bool(value) if isinstance(value, _PLAIN) else True


def seen(value: Any) -> Any:
    """A value as it is now: plain data itself, anything that may change as text."""
    if isinstance(value, (*_PLAIN, Event, Record)):
        return value
    if isinstance(value, tuple):
        parts = [seen(v) for v in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else tuple(parts)
    if isinstance(value, list | set | frozenset | dict) and len(value) <= 100:
        try:
            return Opaque(repr(value))
        except Exception:
            return Opaque(f"<{type(value).__name__}>")
    if isinstance(value, list | set | frozenset | dict):
        return Opaque(f"<{type(value).__name__} of {len(value):,}>")
    return Opaque(f"<{type(value).__name__}>")
