"""What a live run begins with: its description, event types, sources and their numbers."""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from timelapse import __version__
from timelapse.analysis import analyse
from timelapse.analysis.result import Severity
from timelapse.errors import ImpureProgram, Place, RunError, UsageError
from timelapse.ingest.source import Source
from timelapse.model.events import Event
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, spec_of
from timelapse.results.parameters import params_text
from timelapse.run.describe import source_of
from timelapse.run.request import Engine, check_engine
from timelapse.segments.types import EventType, event_types, heard
from timelapse.streaming import chain
from timelapse.streaming.format import FORMAT, RUN, VERSIONS, Epoch, LiveRun
from timelapse.streaming.handover import Origin
from timelapse.streaming.place import LivePlace
from timelapse.streaming.programs import keep_program
from timelapse.streaming.sinks.base import Sink, can_retract
from timelapse.streaming.sources.base import LiveSource, answering
from timelapse.streaming.sources.choose import layout_of
from timelapse.streaming.sources.choose import source_of as live_source
from timelapse.streaming.sources.push import Push
from timelapse.streaming.streams import StreamEntry


def check_options(
    late: str, correct_rows: int | None, trigger_rows: int | None, slice_rows: int | None, engine: Engine
) -> None:
    """Raise UsageError for what is no option."""
    if late not in ("side", "drop", "correct"):
        raise UsageError(f"late= (--late) is {late!r}", hint="side, drop or correct", code="TL810")
    for name, rows in (
        ("correct_rows= (--correct-rows)", correct_rows),
        ("trigger_rows= (--trigger-rows)", trigger_rows),
    ):
        if rows is not None and rows < 1:
            raise UsageError(f"{name} is {rows}", hint="give 1 or more", code="TL810")
    check_engine(engine)
    if slice_rows is not None and slice_rows < 0:
        raise UsageError(f"slice_rows= (--slice-rows) is {slice_rows}", hint="0 or more", code="TL810")


def check_change(*, evolve: bool, promote: str | None, again: bool) -> None:
    """Raise UsageError for ways to change a program that exclude each other. `again`: the past is to be processed again."""
    if promote is not None and again:
        raise UsageError(
            "promote= (--promote) and reprocess_from= (--reprocess-from) exclude each other: what the version before has put out stays where a shadow is promoted",
            hint="leave promote= (--promote) out, and give evolve= (--evolve) with reprocess_from= (--reprocess-from)", code="TL810",
        )  # fmt: skip
    if promote is not None and evolve:
        raise UsageError(
            "evolve= (--evolve) and promote= (--promote) exclude each other",
            hint="a shadow has its own states",
            code="TL810",
        )
    if again and not evolve:
        raise UsageError(
            "reprocess_from= (--reprocess-from) belongs to evolve= (--evolve)",
            hint="it says from which time on the next version takes the place of the one before",
            code="TL810",
        )


def refuse_impure(program: Program, *, allowed: bool) -> None:
    bad = [d for d in analyse(program).diagnostics if d.severity is Severity.ERROR]
    if bad and not allowed:
        raise ImpureProgram(
            bad[0].message, place=bad[0].place, code=bad[0].code,
            hint=f"{bad[0].remedy.removesuffix('.')}. allow_impure=True (--allow-impure) runs it all the same, and its journal cannot be replayed",
        )  # fmt: skip


def refuse_sinks(sinks: Sequence[Sink], why: str, hint: str) -> None:
    """Raise UsageError (TL846) for a sink that cannot take back what it has."""
    for sink in sinks:
        if not can_retract(sink):
            raise UsageError(
                f"{sink.text} cannot take retractions, which {why}",
                code="TL846",
                hint=f"{hint}, or read the feed: Live.feed",
            )


def event_classes(program: Program, streams: Mapping[Any, Any]) -> list[type[Event]]:
    """The event types, in order: those of the streams. Raises UsageError where one has none."""
    for cls in streams:
        if not (isinstance(cls, type) and issubclass(cls, Event)):
            raise UsageError(f"{cls!r} is no event type", hint="give {Message: source}", code="TL810")
    spec = spec_of(program)
    if not streams:
        names = ", ".join(e.__name__ for e in spec.events)
        raise UsageError("there are no streams", hint=f"give a source for {names}", code="TL810")
    types = list(streams)
    for cls in heard(spec, event_types(types)):
        if cls not in types:
            raise UsageError(
                f"{spec.name} listens to {cls.__name__}, and no stream has it", code="TL810",
                hint=f"give a source for {cls.__name__}; an empty folder will do",
            )  # fmt: skip
    return types


def begin_run(
    place: LivePlace, program: Program, types: list[type[Event]], origin: Origin | None
) -> tuple[LiveRun, str]:
    """The live run at a place: the one that is there, or a new one."""
    if not place.exists(RUN):
        strange = place.path.is_file() or set(place.names("")) - {VERSIONS, RUN}
        if strange and not place.exists(RUN):  # another process may begin it at this moment
            raise RunError(
                "there is already something at the live run's place", place=Place(str(place)), code="TL940",
                hint="give an empty or new directory, or that of a live run",
            )  # fmt: skip
        run = LiveRun(
            FORMAT, __version__, uuid.uuid4().hex, spec_of(program).name, source_of(program), fingerprint(program),
            params_text(program), [(t.name, list(t.texts)) for t in event_types(types)],
            datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            None if origin is None else str(origin.path.absolute()), 0 if origin is None else origin.count,
        )  # fmt: skip
        keep_program(place, program)
        with suppress(FileExistsError):  # another process has begun it at the same moment
            place.create(RUN, msgspec.json.format(msgspec.json.encode(run), indent=2))
    return chain.read_run(place)


def newest_epoch(place: LivePlace) -> Epoch | None:
    number = chain.newest(place)
    return chain.read_epoch(place, number).about if number else None


def streams_before(place: LivePlace) -> list[StreamEntry]:
    last = newest_epoch(place)
    return [] if last is None else list(last.streams)


def sources_of(
    streams: Mapping[Any, Any], place: LivePlace, *, once: bool, trigger: float
) -> list[tuple[str, str, LiveSource]]:
    """The sources, with their types and names. Raises UsageError."""
    found: list[tuple[str, str, LiveSource]] = []
    for cls, given in streams.items():
        named = given if isinstance(given, Mapping) else {"": given}
        for name, one in named.items():
            source = live_source(one, cls, once=once)
            source.use(place, trigger)
            found.append((cls.__name__, name, source))
    return found


def layouts_of(streams: Mapping[Any, Any], cls: type[Event]) -> list[Source]:
    """How the sources of an event type are read, as far as that is said."""
    given = streams[cls]
    named = given.values() if isinstance(given, Mapping) else [given]
    return [layout for one in named if (layout := layout_of(one)) is not None]


def check_sources(
    made: Sequence[tuple[str, str, LiveSource]], types: Sequence[EventType], tell: Callable[[str], None]
) -> None:
    """Before a new run is begun. Raises SourceError for one that cannot be read at all."""
    kinds = {kind.name: kind for kind in types}
    try:
        for kind, name, source in made:
            stream = StreamEntry(0, kind, name, source.text).text
            waiting = threading.Timer(1.0, tell, [f"{stream}: waiting for an answer of {source.text}"])
            waiting.start()
            try:
                with answering(stream, source):
                    source.check(kinds[kind])
            finally:
                waiting.cancel()
    except BaseException:
        for _, _, source in made:
            if not isinstance(source, Push):  # the caller may give it to the next run
                source.close()
        raise


def numbered(
    made: list[tuple[str, str, LiveSource]], before: list[StreamEntry]
) -> list[tuple[StreamEntry, LiveSource]]:
    """The sources with their numbers: a stream that was there before keeps its own."""
    numbers = {(s.type, s.name): s.number for s in before}
    found = []
    for kind, name, source in made:
        number = numbers.setdefault((kind, name), max(numbers.values(), default=-1) + 1)
        found.append((StreamEntry(number, kind, name, source.text), source))
    return found
