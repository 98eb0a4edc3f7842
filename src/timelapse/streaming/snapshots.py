"""A live run's states in an open format: those of its newest checkpoint that is whole and sound."""

from __future__ import annotations

from pathlib import Path

from timelapse.errors import Place, RunError
from timelapse.program.program import spec_of
from timelapse.results.shown import presentable
from timelapse.results.snapshot import Snapshot, write_snapshot
from timelapse.run.run import Run
from timelapse.streaming import chain
from timelapse.streaming.checkpoints import newest_whole
from timelapse.streaming.handover import Origin
from timelapse.streaming.reading import Reading
from timelapse.streaming.recovery import begun_at
from timelapse.streaming.stand import Stand
from timelapse.streaming.versions import valid
from timelapse.tables.apply import empty


def snapshot_of(out: str | Path, place: str | Path, *, parts: int = 1, overwrite: bool = False) -> Snapshot:
    """Write the states of a live run's newest checkpoint. The run may be running.

    Raises RunError (TL940) for a folder that is no live run, or has no checkpoint yet; as `write_snapshot` does besides.
    """
    reading = Reading.open(out)
    program, last = reading.program, reading.last
    problems: list[str] = []
    found = None
    if last is not None:
        found = newest_whole(reading.place, chain.newest(reading.place), problems, valid(reading.place, last))
    if found is None:
        raise RunError(
            "the live run has no checkpoint that can be read", place=Place(str(out)), code="TL940",
            hint="; ".join(problems) or "it makes one after some seconds, and when it is stopped",
        )  # fmt: skip
    start = reading.run.start_from
    changed = 0 if last is None else last.last_change

    def base() -> Stand:
        if changed:
            return begun_at(chain.read_epoch(reading.place, changed))
        return Stand() if start is None else Origin(Run.open(start), program).stand()

    stand = found.stand(program, base)
    tables = {}
    for name, spec in spec_of(program).states.items():
        table = stand.states.get(name, empty(spec))
        tables[name] = (spec.kind.__name__, presentable(spec, table))
    moment = {
        "live": str(reading.path), "epoch": found.about.epoch, "complete": found.about.complete, "hash": found.about.hash
    }  # fmt: skip
    return write_snapshot(
        place, tables, program=reading.program_name, params=reading.run.params, fingerprint=reading.run.fingerprint,
        moment=moment, parts=parts, overwrite=overwrite,
    )  # fmt: skip
