"""Why a run put something out, and why it did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timelapse.errors import RunError, UsageError
from timelapse.ids import Phase
from timelapse.kernels.once import passes_once
from timelapse.kernels.walk import Untold
from timelapse.kinds.base import ABSENT
from timelapse.kinds.grouped import Under
from timelapse.model.decimals import in_usual_context
from timelapse.program.program import ProgramSpec, spec_of
from timelapse.progress import Progress
from timelapse.progress.notebook import default_progress
from timelapse.results.stored import StoredRun
from timelapse.trace import timed
from timelapse.trace.chosen import choosers
from timelapse.trace.event import trace_all
from timelapse.trace.explanation import Cause, Explanation, Seen, Source
from timelapse.trace.few import Few
from timelapse.trace.knowledge import Ask, Uncompiled, Unfocused
from timelapse.trace.likely import Guess
from timelapse.trace.logged import event_at, events_at, reader_of
from timelapse.trace.moments import Past
from timelapse.trace.questions import Found, Named, find_event, find_output, nothing_named
from timelapse.trace.recorder import MOST_CALLS
from timelapse.trace.steps import (
    MISSING,
    EventTrace,
    HandlerTrace,
    Read,
    Write,
)
from timelapse.trace.tracer import Tracer
from timelapse.trace.ways import answered
from timelapse.trace.whole import past_of
from timelapse.trace.writers import Writers, Written, shown_side, writers

LAST = 3
"""Events shown that wrote a value, when nobody says how many."""


@in_usual_context
def why(
    run: StoredRun, output: str | int, *, depth: int = 1, last: int = LAST, progress: Progress | None = None
) -> Explanation:
    """Why the run put out a record: `Spam:88121` (type and key), `Spam:sender=512`, or the seq of its event.

    Gives every condition on the way with its values and margin, and for each value that was read the `last` events
    that wrote it. With `depth` 2 these are explained as well, and so on; with 0 nobody is looked for. Raises RunError
    (TL609 for no such output), UsageError.
    """
    found = find_output(run, output)
    return _answer(run, "why", found, depth, last, progress)


@in_usual_context
def why_not(
    run: StoredRun, event: str | int, *, depth: int = 1, last: int = LAST, progress: Progress | None = None
) -> Explanation:
    """Why the run put out nothing at an event: its seq, or `Message:id=88121`.

    Gives the conditions that kept it, with how far each was from the other result. Arguments and errors as for `why`.
    """
    found = find_event(run, event)
    if found.seq in run.manifest.without:
        raise RunError(
            f"event {found.seq} was left out of the log that was replayed: nothing was done at it",
            hint="replay without leaving it out", code="TL606",
        )  # fmt: skip
    return _answer(run, "why-not", found, depth, last, progress)


@passes_once()
def _answer(
    run: StoredRun, asked: str, found: Found, depth: int, last: int, progress: Progress | None
) -> Explanation:
    progress = progress or default_progress()
    if depth < 0 or last < 0:
        raise UsageError("--depth and --last are 0 or more", code="TL840")
    tracer, depth = Tracer(run, found), depth if last else 0
    past = past_of(run, progress)
    target = _target(past, found)

    def by_slices() -> Explanation:
        if found.named is not None or found.dated is not None:
            raise Uncompiled("the step is one of several of its event, told by its time")
        return _compiled(past, tracer, asked, found, depth, last)

    return answered(
        past, past.first_after(target), lambda way: _timed(run, way, tracer, asked, found, target, depth, last), by_slices
    )  # fmt: skip


def _target(past: Past, found: Found) -> timed.Target:
    """Where the step lies that a question is about."""
    if found.dated is not None:
        ts, phase = found.dated
        return timed.Target(
            (found.seq,) if found.seq >= 0 else (), ts if phase == Phase.TICK else None, ts + 1
        )
    if found.named is None:
        return timed.Target((found.seq,))
    return past.named(found.named.name, found.named.ts)


def _compiled(past: Past, tracer: Tracer, asked: str, found: Found, depth: int, last: int) -> Explanation:
    """The answer from going through slices, level by level. Raises Uncompiled."""
    traces, guess = trace_all(past, tracer, [found.seq], guessing=depth > 0)
    trace = traces[found.seq]
    root = _begun(trace, _in_question(tracer, asked, found, trace))
    level = [root]
    for left in range(depth, 0, -1):
        sources = _fill(past, level, last, guess)
        if left == 1 or not sources:
            break
        traces, guess = trace_all(past, tracer, sorted(sources), guessing=True)
        level = [_begun(one, _first_calls(one)) for one in traces.values()]
        for cause in level:
            for source in sources[cause.trace.seq]:
                source.trace = cause
    return Explanation(asked, root, found.record, asked == "why" or not trace.outputs, found.others)


def _fill(past: Past, level: Sequence[Cause], last: int, guess: Guess | None) -> dict[int, list[Source]]:
    """Fill in who wrote what these events read. Gives what was found, by the seqs of the events."""
    reads = [(cause, seen) for cause in level for seen in cause.seen if not seen.read.every]
    asked = [(cause, seen, _ask(past, cause.trace, seen.read)) for cause, seen in reads
             if _place(seen.read) not in cause.trace.shown]  # fmt: skip
    # One more where only those within a window count, to know whether there are more.
    under = {ask: n for _, n, ask in asked if isinstance(ask.place[1], Under)}
    found = writers(
        past, {ask for _, _, ask in asked if ask not in under}, last + bool(past.spec.times), guess
    )
    found |= _under(past, list(under), last)
    chosen = choosers(past, [(cause.trace, seen.read) for cause, seen in reads])
    seqs = sorted({*chosen.values(), *(w.seq for known in found.values() for w in known.found)})
    events = events_at(past.reader, past.program, seqs)
    sources: dict[int, list[Source]] = {}
    for cause, seen in reads:
        seq = chosen.get((cause.trace.seq, *_place(seen.read)))
        if seq is not None:
            seen.sources.append(Source(events[seq], MISSING, seen.read.value))
            sources.setdefault(seq, []).append(seen.sources[-1])
    for cause, seen, ask in asked:
        view, known = cause.trace.views.get(seen.read.state), found[ask]
        rows = [w for w in known.found if view is None or view.shows(events[w.seq].ts)]
        for w in rows[:last]:
            sides = _amounts(past.spec, *ask.place, w.before, w.after)
            seen.sources.append(Source(events[w.seq], *sides))
            sources.setdefault(w.seq, []).append(seen.sources[-1])
        seen.older = len(rows) > last or (len(rows) == len(known.found) and known.older)
    return sources


def _under(past: Past, asks: Sequence[Ask], last: int) -> dict[Ask, Writers]:
    """Who wrote anything under declared keys: by the events that matter, if they are few; else who changed how much there is, from going
    through the slices. Raises Uncompiled where these do not tell."""
    found = {ask: Writers() for ask in asks}
    for ask in asks:
        try:
            few = Few(past, ask.end)
            rows = few.writes([ask.place], None, None)[0][ask.place]
            found[ask].found += [
                Written(w.step.root, shown_side(w.before), shown_side(w.after)) for w in reversed(rows)
            ]
        except Unfocused:
            try:
                found |= writers(past, [ask], last + 1)
            except Untold as why:
                raise Uncompiled(str(why)) from why
    return found


def _amounts(spec: ProgramSpec, name: str, key: Any, before: Any, after: Any) -> tuple[Any, Any]:
    """What a place held before and after a write, as it is shown."""
    state = spec.states[name]
    return state.kind.shown_stored(state, key, before), state.kind.shown_stored(state, key, after)


def _place(read: Read) -> tuple[str, Any]:
    return read.state, read.key


def _ask(past: Past, trace: EventTrace, read: Read) -> Ask:
    """Who wrote what an event read? A look back shows what was written until then."""
    view = trace.views.get(read.state)
    if view is None:
        gone = not read.present and not isinstance(read.key, Under)
        return Ask((read.state, read.key), trace.seq, gone)
    end = trace.seq if view.until is None else past.end(view.until)
    return Ask((view.state, read.key), end)


def _in_question(tracer: Tracer, asked: str, found: Found, trace: EventTrace) -> tuple[HandlerTrace, ...]:
    """The handlers that the question is about."""
    if asked == "why":
        return tuple(h for h in trace.handlers if _emits(h, found)) or _first_calls(trace)
    return _first_calls(trace, tuple(h for h in trace.handlers if h.name in tracer.emitting))


def _first_calls(trace: EventTrace, handlers: tuple[HandlerTrace, ...] = ()) -> tuple[HandlerTrace, ...]:
    """Calls that an explanation tells: of a million that one event may give, no more than some."""
    return (handlers or trace.handlers)[:MOST_CALLS]


@dataclass
class _Done:
    """A step of the serial loop that was observed."""

    step: timed.Step
    cause: Cause


def _timed(
    run: StoredRun, way: timed.Way, tracer: Tracer, asked: str, found: Found, target: timed.Target, depth: int, last: int
) -> Explanation:  # fmt: skip
    """The answer for a program that reaches into other times: once to see the step, and for each level of depth once to find
    who wrote what it read, once to see these steps. Raises Unfocused, if the way does.
    """
    named, count = found.named, 0

    def wanted() -> Callable[[timed.Step], bool]:
        nonlocal count
        count = 0

        def fits(step: timed.Step) -> bool:
            nonlocal count
            if named is not None:
                own = step.ts == named.ts and step.is_called(named.name)
                count += own
                return own and count == named.place
            if found.dated is not None:
                return (step.ts, step.phase, step.root) == (*found.dated, found.seq)
            return step.phase == Phase.LOG_EVENT and step.root == found.seq

        return fits

    def fits(done: timed.Told) -> bool:
        """Several steps may have one place: the one that put the record out is meant."""
        first = done.step.ordinal
        return found.dated is None or found.ordinal in range(first, first + len(done.trace.outputs))

    if named is None and found.dated is None:
        event_at(reader_of(run), run.need_program(), found.seq)  # or an error: there is none
    got = [d for d in way.observed(tracer, target, wanted, lambda all_: any(map(fits, all_))) if fits(d)]
    spec = spec_of(run.need_program())
    if not got:
        known = [e.__name__ for e in spec.events]
        known += [h.name for h in spec.handlers if h.every is not None or h.after is not None]
        raise nothing_named(named or Named(str(found.record), (found.dated or (0, 0))[0], 1), count, known)
    root = _Done(got[0].step, _begun(got[0].trace, _in_question(tracer, asked, found, got[0].trace)))
    level = [root]
    for left in range(depth, 0, -1):
        sources = _find_sources(way, level, last, spec)
        if left == 1 or not sources:
            break
        level = _explain_sources(way, tracer, sources)
    holds = asked == "why" or not root.cause.trace.outputs
    return Explanation(asked, root.cause, found.record, holds, found.others)


def _find_sources(
    way: timed.Way, level: Sequence[_Done], last: int, spec: ProgramSpec
) -> dict[int, tuple[timed.Step, list[Source]]]:
    """Fill in who wrote what these steps read. Gives, by their numbers, the steps that were found."""

    def ask_of(done: _Done, seen: Seen) -> timed.Ask:
        view, number = done.cause.trace.views.get(seen.read.state), done.step.number
        if view is None:
            return timed.Ask((seen.read.state, seen.read.key), number)
        until = None if view.until is None else view.until - view.in_tick
        return timed.Ask((view.state, seen.read.key), number, until)

    asked = [(done, seen) for done in level for seen in done.cause.seen if not seen.read.every]
    found, offered = way.newest({ask_of(*a) for a in asked}, None, last + 1)
    listed: list[tuple[Seen, timed.Step, Any, Any]] = []
    for done, seen in asked:
        ask = ask_of(done, seen)
        if _place(seen.read) in done.cause.trace.shown:
            chosen = done.cause.trace.shown[_place(seen.read)]
            if chosen is not None and not chosen.own:
                steps = [s for s in offered[ask.place] if s.number < done.step.number]
                listed.append((seen, steps[-chosen.place], MISSING, seen.read.value))
            continue
        view = done.cause.trace.views.get(seen.read.state)
        rows = timed.counting(found[ask], view)
        for w in rows[:last]:
            sides = _amounts(spec, *ask.place, shown_side(w.before), shown_side(w.after))
            listed.append((seen, w.step, *sides))
        seen.older = len(rows) > last or (
            bool(rows) and (view is None or view.since is None) and rows[-1].before is not ABSENT
        )
    events = way.events(step for _, step, _, _ in listed)
    sources: dict[int, tuple[timed.Step, list[Source]]] = {}
    for seen, step, before, after in listed:
        source = Source(events[step.number], before, after, phase=step.phase)
        seen.sources.append(source)
        if step.phase != Phase.DATED_WRITE:
            sources.setdefault(step.number, (step, []))[1].append(source)
    return sources


def _explain_sources(
    way: timed.Way, tracer: Tracer, sources: Mapping[int, tuple[timed.Step, list[Source]]]
) -> list[_Done]:
    steps = [step for step, _ in sources.values()]
    target = timed.Target(
        tuple(sorted({s.root for s in steps if s.root >= 0})),
        ticks=tuple(sorted({s.ts for s in steps if s.phase == Phase.TICK})),
    )
    told = way.observed(
        tracer, target, lambda: lambda s: s.number in sources, lambda all_: len(all_) == len(sources)
    )
    found = [_Done(step, _begun(trace, _first_calls(trace))) for step, trace in told]
    for done in found:
        for source in sources[done.step.number][1]:
            source.trace = done.cause
    return found


def _emits(handler: HandlerTrace, found: Found) -> bool:
    return any(found.record in (None, type(e.record).__name__) for e in handler.emits)


def _begun(trace: EventTrace, handlers: Sequence[HandlerTrace]) -> Cause:
    """The reads that matter, with what the event itself had written there; windows show that too."""
    order = {id(s): i for i, s in enumerate(s for h in trace.handlers for s in h.steps)}
    written: dict[str, dict[Any, list[Write]]] = {}
    for write in (s for h in trace.handlers for s in h.steps if isinstance(s, Write)):
        written.setdefault(write.state, {}).setdefault(write.key, []).append(write)
    cause = Cause(trace, tuple(handlers), [])
    for read in _asked(handlers):
        view = trace.views.get(read.state)
        name = read.state if view is None or view.until is not None else view.state
        wrote = written.get(name, {})
        keys = [k for k in wrote if read.key.holds(k)] if isinstance(read.key, Under) else [read.key]
        here = [w for key in keys for w in wrote.get(key, ()) if order[id(w)] < order[id(read)]]
        here.sort(key=lambda w: order[id(w)])
        if _place(read) in trace.shown:  # one of several values: the event's own, or an earlier one's
            chosen = trace.shown[_place(read)]
            own = chosen is not None and chosen.own
            here = [Write(read.state, read.key, MISSING, read.value, read.line)] if own else []
        cause.seen.append(Seen(read, here))
    return cause


def _asked(handlers: Sequence[HandlerTrace]) -> Iterator[Read]:
    """The reads that mattered: each place once, not those that only serve to write."""
    places = set()
    for handler in handlers:
        for read in handler.reads:
            place = (read.state, type(read.key), read.key, read.every)
            if not read.own and place not in places:
                places.add(place)
                yield read
