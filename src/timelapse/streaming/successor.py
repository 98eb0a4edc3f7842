"""Which program a live run is of now, and what another one begins with that follows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from timelapse.moments import time_text
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, as_program, spec_of
from timelapse.results.parameters import params_text
from timelapse.run.describe import source_of
from timelapse.segments.types import EventType
from timelapse.streaming.declared import declared_records, differences, put_out, refuse_other, unsafe
from timelapse.streaming.evolution import Migration, migrated
from timelapse.streaming.format import Change, Correction, Epoch, LiveRun
from timelapse.streaming.handover import Origin
from timelapse.streaming.place import LivePlace
from timelapse.streaming.programs import keep_program, program_now
from timelapse.streaming.recovery import ANY, Recovery
from timelapse.streaming.reprocessing import reprocessed, start_at
from timelapse.streaming.shadow import Shadow
from timelapse.streaming.stand import Stand
from timelapse.streaming.succession import Succession, Successor


def successor(
    place: LivePlace, run: LiveRun, types: Sequence[EventType], then: Sequence[EventType], given: Sequence[EventType], new: Program,
    evolve: bool | Migration, promote: str | None, origin: Origin | None, tell: Callable[[str], None], since: int | None = None,
    quarantine: int | None = None,
) -> Successor | None:  # fmt: skip
    """What the program begins with, should it be another one than the run's: from the old one's states, or from a shadow's.

    `types`: the run's event types; `then`: from here on; `given`: as the program declares them. `since`: what it puts out from this time on
    takes the place of what was put out; failing events are taken out of that as `quarantine` says.
    """
    if promote is None and not evolve:
        return None
    kept: dict[str, Shadow] = {}
    migration = evolve if isinstance(evolve, Migration) else Migration()

    def begin(last: Epoch) -> Succession:
        refuse_other(new, put_out(place, last), declared_records(new))
        correction: Correction | None = None
        sections: Mapping[str, pa.Table] = {}
        if promote is None:
            old = program_now(place, run, last) if migration.before is None else as_program(migration.before)
            if fingerprint(old) != last.fingerprint:
                raise unsafe(
                    new, "the files of the version before are not what ran",
                    "give it: evolve=tl.Migration(before=Old()); or run a shadow, and promote it",
                )  # fmt: skip
            recovery = Recovery(
                place, old, types, quarantine=ANY if last.quarantined else None, tell=tell, origin=origin
            )
            if not recovery.restorable:
                raise unsafe(new, "the version before runs as the serial loop", "begin another live run")
            done: list[str] = []

            def migrate(there: Stand) -> Stand:
                found, done[:] = migrated(old, new, there, migration)
                return found

            start = None if since is None else start_at(place, new, last, since)
            if start is None:
                stand = migrate(recovery.stand(last))
            else:
                tell(f"{spec_of(new).name} goes through the journal again, from {time_text(start.ts)} on")
                newer = Recovery(place, new, then, quarantine=quarantine, tell=tell, origin=origin)
                again = reprocessed(place, recovery, newer, migrate, start, last)
                stand, correction, sections = again.stand, again.correction, again.sections
                done.append(again.done)
            if fingerprint(old) != fingerprint(new):
                done.insert(0, f"the program changes: {spec_of(new).name} follows {spec_of(old).name}")
        else:
            # Asked again where the version before has committed meanwhile: then only the epochs since are missing.
            if promote not in kept:
                kept[promote] = Shadow.open(place, promote, new)
            stand = kept[promote].stand(last)
            done = [f"the program changes: the shadow {promote} ({spec_of(new).name}) is promoted"]
        source = source_of(new)
        digest = fingerprint(new)
        keep_program(place, new)
        about = Change(
            spec_of(new).name,
            source,
            digest,
            params_text(new),
            last.last_change,
            [part.end for part in stand.seen],
            [(kind.name, list(kind.texts)) for kind in then] if then != types else [],
        )
        done += differences(types, then, given)
        return Succession(about, stand, done, time.time_ns() // 1000, correction, sections)

    return begin
