"""The critical path: the longest chain of events each of which needs what the one before wrote.

ReStream's authors found that it bounds what a parallel replay can gain (Schleier-Smith, Krogen, Hellerstein, "ReStream: Accelerating
Backtesting and Stream Replay with Serial-Equivalent Parallel Processing", 2016). Which accesses make one event wait for another depends on
who replays, so three orders are told, from the strictest to what time slices need (docs/critical-path.md has the definitions):

- *in order*: a step comes after every earlier step that wrote a key which it reads or writes.
- *commuting*: the same, but writes to a state whose effects compose exactly do not wait for one another.
- *statements*: the same, but a write waits only for reads on which it depends, statement by statement: what the analysis says, and
  what passes over time slices exploit.

Where two chains are equally long, the one that was found first is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from timelapse.analysis import analyse
from timelapse.errors import UsageError
from timelapse.explanation.model import counts_of
from timelapse.ids import INT64_MAX, Phase
from timelapse.program.program import Program, as_program, spec_of
from timelapse.segments.types import heard
from timelapse.trace.accesses import Access, Accesses, Step, accesses_of

Order = Literal["in order", "commuting", "statements"]
ORDERS: tuple[Order, ...] = ("in order", "commuting", "statements")
MOST_EVENTS = 100_000
"""Events that are looked at where nobody says how many: some seconds."""
MOST_LISTED = 20
"""Keys, lines and links of a path that are told."""


@dataclass(frozen=True)
class Link:
    """A step of a path, and why it had to wait for the one before: empty texts and -1 for the first one."""

    step: str
    seq: int
    """Of the log event that it stems from; -1 for a tick."""
    place: str
    """The key that the step before wrote, or what else it waited for."""
    wrote: str
    """The line at which the step before wrote it, as file:line."""
    used: str
    """The line at which this one used it."""


@dataclass(frozen=True)
class Path:
    """The longest chain in one order. `length` counts steps; `links` are all of them, the first one first."""

    order: Order
    length: int
    steps: int
    links: tuple[Link, ...]

    @property
    def parallelism(self) -> float:
        """How many steps there are for each of the path: what no number of cores can exceed."""
        return self.steps / self.length if self.length else 0.0

    def keys(self) -> list[tuple[str, int]]:
        """The keys on it, with how many links go over each; most first."""
        return Counter(link.place for link in self.links if link.place).most_common()

    def lines(self) -> list[tuple[str, str, int]]:
        """The lines on it: where it was written, where it was used, how many links; most first."""
        found = Counter((link.wrote, link.used) for link in self.links if link.place)
        return [(*pair, count) for pair, count in found.most_common()]

    def to_json(self) -> dict[str, Any]:
        return {
            "order": self.order, "length": self.length, "parallelism": self.parallelism,
            "keys": [{"key": key, "links": count} for key, count in self.keys()[:MOST_LISTED]],
            "lines": [{"wrote": w, "used": u, "links": count} for w, u, count in self.lines()[:MOST_LISTED]],
            "first_links": [
                {"step": x.step, "seq": x.seq, "key": x.place, "wrote": x.wrote, "used": x.used}
                for x in self.links[:MOST_LISTED]
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class CriticalPath:
    """The paths of a program over a log, or over its first events."""

    program: str
    events: int
    """Log events that were looked at."""
    of: int
    """Log events that there are."""
    steps: int
    """Log events, ticks, dated events and dated writes among the events looked at."""
    paths: tuple[Path, ...]
    """One for each of ORDERS."""

    def path(self, order: Order) -> Path:
        return self.paths[ORDERS.index(order)]

    def to_json(self) -> dict[str, Any]:
        return {
            "program": self.program, "events": self.events, "of": self.of, "steps": self.steps,
            "paths": [path.to_json() for path in self.paths],
        }  # fmt: skip

    def text(self) -> list[str]:
        """As it is printed."""
        looked = f"all {self.of:,} events" if self.events == self.of else (
            f"the first {self.events:,} of {self.of:,} events: a longer log has a path at least as long; --events 0 looks at all"
        )  # fmt: skip
        lines = [f"critical path of {self.program}, over {looked}"]
        if self.steps != self.events:
            lines.append(f"{self.steps:,} steps: ticks, dated events and dated writes are steps of their own")
        meanings = {
            "in order": "no two operations on a key commute",
            "commuting": "writes that compose exactly do not wait for one another",
            "statements": "a write waits only for what it depends on: what time slices need",
        }
        for path in self.paths:
            lines += ["", f"{path.order} ({meanings[path.order]})"]
            lines.append(
                f"  length {path.length:,}: at most {path.parallelism:,.1f} times as fast as one after the other"
            )
            for key, count in path.keys()[:3]:
                lines.append(f"  {count:>8,} × over {key}")
            for wrote, used, count in path.lines()[:3]:
                lines.append(f"  {count:>8,} × written at {wrote}, used at {used}")
        return lines


def critical_path(
    program: Program | type[Program], log: Any, *, events: int | None = None,
    advance: Callable[[int], None] = lambda events: None,
) -> CriticalPath:  # fmt: skip
    """The critical path of a program over a log: a tl.Log, or anything with a `reader`.

    `events`: how many of the log's first events are looked at (0: all; default MOST_EVENTS). `advance` is told of
    events done. Raises UsageError for a negative number, HandlerError for a handler's exception.
    """
    bound = as_program(program)
    found, total = accesses_over(bound, log, events=events, advance=advance)
    paths = tuple(longest(found, order) for order in ORDERS)
    return CriticalPath(spec_of(bound).name, found.events, total, len(found.steps), paths)


def accesses_over(
    program: Program, log: Any, *, events: int | None = None,
    advance: Callable[[int], None] = lambda events: None,
) -> tuple[Accesses, int]:  # fmt: skip
    """The accesses of the log's first events that the program hears, and how many of those there are."""
    total, most = stepped(program, log, events)
    reader = log.reader
    classes = {c.__name__: c for c in heard(spec_of(program), reader.types)}
    chosen = islice(reader.events(0, INT64_MAX, classes), most)
    return accesses_of(program, chosen, begin=reader.ts_first, tick=advance), total


def stepped(program: Program, log: Any, events: int | None) -> tuple[int, int]:
    """How many events of a log a program hears, and how many of those are run one by one where `events` are asked for."""
    if events is not None and events < 0:
        raise UsageError(f"--events {events}", hint="a number of events, or 0 for all", code="TL730")
    counts = counts_of(log) or {}
    total = sum(counts.get(cls.__name__, 0) for cls in heard(spec_of(program), log.reader.types))
    return total, min(total, MOST_EVENTS if events is None else events or total)


def longest(found: Accesses, order: Order, first: int = 0, last: int | None = None) -> Path:
    """The longest chain among the steps from `first` to before `last`, as if the log began and ended there."""
    steps = found.steps[first:last]
    chains = _statements(found, steps) if order == "statements" else _whole(found, steps, order)
    return Path(order, chains.length, len(steps), tuple(chains.links(found, steps)))


def ordered_states(found: Accesses) -> list[bool]:
    """Of each state: whether a write has to wait for the writes before it, because effects do not compose exactly."""
    facts = analyse(found.program).facts
    return [name not in facts or facts[name].composes is not None for name in found.states]


@dataclass
class _Node:
    """The end of a chain: a step, or what it writes to some states."""

    depth: int
    step: int
    before: int = -1
    """The node before it."""
    place: int = -1
    state: int = -1
    wrote: int = -1
    used: int = -1


class _Chains:
    """Nodes, each with the longest chain to it; and what was written of each key by the end of which chain."""

    def __init__(self, found: Accesses) -> None:
        self._places = found.places
        self.nodes: list[_Node] = []
        self._own: dict[int, tuple[int, int, int]] = {}
        """Of a place: depth, node and line of the write with the longest chain."""
        self._all: dict[int, tuple[int, int, int]] = {}
        """The same of everything under a declared key."""
        self._top: dict[int, tuple[int, int, int]] = {}
        """The same of a whole state."""
        self._roots: dict[int, int] = {}
        """By log event: the last step that stems from it."""

    @property
    def length(self) -> int:
        return max((node.depth for node in self.nodes), default=0)

    def group(self, place: int) -> int:
        """The place of all that stands under the same declared key, or -1."""
        return self._places[place].group

    def add(self, node: _Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def wait(self, node: _Node, access: Access) -> None:
        """The step comes after what was written before of what it uses."""
        if access.place < 0:
            known = self._top.get(access.state)
        else:
            group = self._places[access.place].group
            known = (self._all if group == access.place else self._own).get(access.place)
            if group >= 0 and group != access.place:
                whole = self._own.get(group)
                known = whole if known is None or (whole is not None and whole[0] > known[0]) else known
        if known is not None and known[0] >= node.depth:
            node.depth, node.before, node.wrote = known[0] + 1, known[1], known[2]
            node.place, node.state, node.used = access.place, access.state, access.line

    def follow(self, node: _Node, step: Step) -> None:
        """What was dated comes after the step that dated it."""
        known = self._roots.get(step.root) if step.phase in (Phase.DATED_WRITE, Phase.DATED_EVENT) else None
        if known is not None and self.nodes[known].depth >= node.depth:
            node.depth, node.before, node.place = self.nodes[known].depth + 1, known, -1
            node.state = node.wrote = node.used = -1

    def done(self, step: Step, number: int) -> None:
        """The step's last node is in its place."""
        self._roots[step.root] = number

    def write(self, number: int, access: Access) -> None:
        """The node wrote it."""
        new = self.nodes[number].depth, number, access.line
        tables = [(self._own, access.place), (self._top, access.state)]
        group = self._places[access.place].group
        if group >= 0:
            tables.append((self._all, group))
        for table, key in tables:
            if key not in table or table[key][0] < new[0]:
                table[key] = new

    def links(self, found: Accesses, steps: Sequence[Step]) -> Iterator[Link]:
        """The longest chain; several nodes of one step are one link."""
        if not self.nodes:
            return
        at = max(range(len(self.nodes)), key=lambda n: self.nodes[n].depth)
        chain: list[Link] = []
        while at >= 0:
            node = self.nodes[at]
            step = steps[node.step]
            same = node.before >= 0 and self.nodes[node.before].step == node.step
            if not same:
                place = found.text(node.place, node.state) if node.state >= 0 else ""
                if node.before >= 0 and not place:
                    place = "what it dated"
                chain.append(
                    Link(step.name, step.root, place, _line(found, node.wrote), _line(found, node.used))
                )
            at = node.before
        yield from reversed(chain)


def _line(found: Accesses, number: int) -> str:
    if number < 0:
        return ""
    line = found.lines[number]
    return f"{line.file.rpartition('/')[2]}:{line.line}"


def _whole(found: Accesses, steps: Sequence[Step], order: Order) -> _Chains:
    """Steps as a whole: each waits for all that it uses."""
    chains = _Chains(found)
    ordered = [True] * len(found.states) if order == "in order" else ordered_states(found)
    for at, step in enumerate(steps):
        node = _Node(1, at)
        chains.follow(node, step)
        for access in step.accesses:
            if access.reads or ordered[access.state]:
                chains.wait(node, access)
        number = chains.add(node)
        for access in step.accesses:
            if access.writes:
                chains.write(number, access)
        chains.done(step, number)
    return chains


def _statements(found: Accesses, steps: Sequence[Step]) -> _Chains:
    """What a step writes to each component of states is by itself, and waits for what these writes depend on."""
    analysis = analyse(found.program)
    numbers = {name: n for n, name in enumerate(found.states)}
    parts: list[tuple[frozenset[int], frozenset[int]]] = []
    for component in analysis.components:
        own = frozenset(numbers[s] for s in component if s in numbers)
        needs = {n for s in component for n in analysis.facts[s].depends_on}
        parts.append((own, frozenset(numbers[s] for s in needs if s in numbers)))
    part_of = {state: n for n, (own, _) in enumerate(parts) for state in own}
    ordered = ordered_states(found)
    chains = _Chains(found)
    for at, step in enumerate(steps):
        made: dict[int, int] = {}
        """By component: the node of what the step writes to it."""
        for part in sorted({part_of[a.state] for a in step.accesses if a.writes}):
            own, needs_of = parts[part]
            node = _Node(1, at)
            chains.follow(node, step)
            for access in step.accesses:
                waits = access.reads and access.state in needs_of
                if waits or (access.writes and access.state in own and ordered[access.state]):
                    chains.wait(node, access)
            _within(chains, node, step, made, parts, part_of, needs_of)
            made[part] = chains.add(node)
        last = _Node(1, at)  # what it puts out may depend on all that it read
        chains.follow(last, step)
        for access in step.accesses:
            if access.reads:
                chains.wait(last, access)
        for number in made.values():
            if chains.nodes[number].depth >= last.depth:
                last = _Node(chains.nodes[number].depth, at, number)
        number = chains.add(last)
        for access in step.accesses:
            if access.writes:
                chains.write(made[part_of[access.state]], access)
        chains.done(step, number)
    return chains


def _within(
    chains: _Chains, node: _Node, step: Step, made: dict[int, int], parts: Sequence[Any], part_of: dict[int, int],
    needs: frozenset[int],
) -> None:  # fmt: skip
    """What the step itself wrote before it read it, on the way to this node: the same step, so the chain is no longer."""
    written: set[int] = set()
    under: set[int] = set()
    states: set[int] = set()
    for access in step.accesses:
        part = part_of[access.state]
        if access.reads and access.state in needs and part in made:
            if access.place < 0:
                seen = access.state in states
            else:
                group = chains.group(access.place)
                seen = access.place in written or group in (under if group == access.place else written)
            before = chains.nodes[made[part]]
            if seen and before.depth > node.depth:
                node.depth, node.before = before.depth, made[part]
                node.place = node.state = node.wrote = node.used = -1
        if access.writes:
            states.add(access.state)
            written.add(access.place)
            if chains.group(access.place) >= 0:
                under.add(chains.group(access.place))
