"""A shadow: another version of the program on the journal of a live run, beside it, with outputs of its own.

It reads the run's epochs and writes into a folder of its own, so the run knows nothing of it. It has seen all of the journal, from its first row; so once it is
promoted the run goes on as if it had always been this version. Where the run goes on from a replay, the shadow goes on from its own version's replay of the same log.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.engine.job import SumRow
from timelapse.errors import Place, RunError, StorageError, UsageError
from timelapse.kernels.base import Abandoned
from timelapse.model.events import Record
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, as_program, spec_of
from timelapse.run.run import Run
from timelapse.segments.types import event_types, heard
from timelapse.store.parts import DAMAGED
from timelapse.streaming import chain, checkpoints
from timelapse.streaming.declared import Types, Unfit, grown, types_of
from timelapse.streaming.format import REMEDY, Checkpoint, Epoch
from timelapse.streaming.handover import Origin
from timelapse.streaming.kernel import is_restorable, lag_of
from timelapse.streaming.pack import Pack, packed
from timelapse.streaming.place import LivePlace, live_place
from timelapse.streaming.recovery import PutOut, Recovery
from timelapse.streaming.running import Running
from timelapse.streaming.stand import Stand
from timelapse.streaming.sums import Sums
from timelapse.streaming.versions import REJECTED, Feed, common, net, valid, with_seq

FOLDER = "shadows"
START = "start"
"""The file with the run that it goes on from."""
_EVERY = 30.0
_GROUP = 200


class Tally(msgspec.Struct, frozen=True):
    """Where a shadow is: the run's epoch up to which it goes, that epoch's hash, and its own sums."""

    epoch: int
    hash: str
    complete: int
    fingerprint: str
    seen: list[int]
    outputs: dict[str, SumRow]
    schemas: dict[str, bytes]
    rejected: SumRow
    quarantined: int
    compared: dict[str, tuple[int, int, int]]
    """By record type: rows that are equal, of the run alone, of the shadow alone."""


class _Part(msgspec.Struct, frozen=True):
    """What a shadow has put out in some epochs of the run."""

    first: int
    last: int


@dataclass(frozen=True)
class Compared:
    """How the outputs of one record type differ, between the run and a shadow: rows that are equal to the last bit and stand at
    the same place, rows of the run alone, rows of the shadow alone."""

    same: int
    live: int
    shadow: int


@dataclass
class Progress:
    """How far a shadow is, and how its outputs differ from the run's so far, by record type."""

    epoch: int
    rows: int
    digest: str
    records: dict[str, Compared] = field(default_factory=dict)


class Shadow:
    """A version of the program beside a live run. `name`: what its folder, OUT/shadows/NAME, is called.

    `quarantine`: so many failing events of an epoch are taken out; its own, not the run's. `start_from`: where the live run goes on from a replay, the replay of the same log by this
    version; it has to be given once. Raises RunError where the run's event types do not fit, or where it was made with another program (TL848), ReplayError (TL515)
    where it cannot go on from that replay.
    """

    def __init__(
        self,
        out: str | Path,
        program: Program | type[Program],
        name: str = "next",
        *,
        quarantine: int | None = None,
        start_from: Run | str | Path | None = None,
    ) -> None:
        if not name or not name.replace("-", "").replace("_", "").isalnum():
            raise UsageError(
                f"a shadow cannot be called {name!r}", hint="letters, digits, - and _", code="TL848"
            )
        self.program = as_program(program)
        self.place = live_place(out)
        self.run, _ = chain.read_run(self.place)
        self.name, self._own = name, self.place.below(f"{FOLDER}/{name}")
        newest = chain.newest(self.place)
        self._types = self._types_at(chain.read_epoch(self.place, newest).about if newest else None)
        if not is_restorable(self.program):
            raise _unfit(
                "the program runs as the serial loop", "change it so that its states can be gone on from"
            )
        if quarantine is not None and lag_of(self.program):
            raise _unfit(
                "failing events are to be taken out, and it has handlers with after=",
                "run it without --quarantine",
            )
        self._quarantine = quarantine
        self._origin = self._begun_from(start_from)
        self.compared: dict[str, Compared] = {}
        """How its outputs differ from the run's so far, by record type."""
        self._fingerprint = fingerprint(self.program)
        self._stand = Stand()
        self.on: Running | None = None
        self.epoch = 0
        """The run's epoch up to which it goes."""
        self._saved = 0

    def _begun_from(self, given: Run | str | Path | None) -> Origin | None:
        """What it goes on from. Raises RunError where that is not what the live run goes on from, but for the program."""
        if self.run.start_from is None:
            if given is not None:
                raise _unfit("the live run goes on from no replay", "leave start_from= (--start-from) out")
            return None
        known = self._own.read(START).decode() if self._own.exists(START) else None
        if given is None:
            given = known
        if given is None:
            raise _unfit(
                "the live run goes on from a replay, whose events are not in the journal",
                "replay this version over the same log with resumable=True (--resumable), and give that run: start_from= (--start-from)",
            )
        origin, live = Origin(Run.of(given), self.program), Run.open(self.run.start_from)
        where = str(origin.path.absolute())
        if known not in (None, where):
            raise _unfit(
                f"it goes on from {known}",
                "leave start_from= (--start-from) out, or give this one another name",
            )
        if not origin.is_over_the_events_of(live):
            raise _unfit(
                f"{where} is no replay of the same events as {self.run.start_from}, from which the live run goes on",
                "replay this version over that run's log, up to the same time",
            )
        if known is None:
            self._own.create(START, where.encode())
        return origin

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.place.path / FOLDER / self.name

    @classmethod
    def open(cls, place: LivePlace, name: str, program: Program) -> Shadow:
        """A shadow that is there. Raises RunError (TL848) where there is none, or it is of another program."""
        if not any(place.below(f"{FOLDER}/{name}").names("")):
            raise RunError(
                f"there is no shadow {name}", place=Place(f"{place}/{FOLDER}"), code="TL848",
                hint="run one: timelapse shadow FILE:CLASS OUT",
            )  # fmt: skip
        return cls(str(place), program, name)

    # --- following ------------------------------------------------------------------------------------

    def follow(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Go through the epochs that the run has committed meanwhile. Returns how many. `stopped` is asked after each part.

        Raises HandlerError where the program fails, StorageError for a damaged epoch.
        """
        newest = chain.newest(self.place)
        if not newest:
            return 0
        last = chain.read_epoch(self.place, newest).about
        if (types := self._types_at(last)) != self._types:
            self.save()
            self._types, self.on = types, None
        if self.on is None:
            self._begin(last)
        done = 0
        while self.epoch < newest and not stopped():
            end = min(newest, self.epoch + _GROUP)
            if last.last_correction > self.epoch:
                # Of the newest version only: what it put out before is looked up in what is saved.
                self._begin(last)
                end = newest
            done += self._go(chain.read_epoch(self.place, end).about)
        return done

    def _types_at(self, last: Epoch | None) -> Types:
        """The run's event types at the end of an epoch, with what the program declares besides: of this the journal has nothing."""
        known = types_of(self.place, self.run, last)
        try:
            return grown(known, event_types(heard(spec_of(self.program), known)))
        except Unfit as error:
            raise _unfit(error.what, error.hint) from None

    def _begin(self, last: Epoch, *, compiled: bool = True) -> None:
        """Stand at the newest place that counts, and forget what was put out behind it."""
        found = self._newest(last)
        recovery = self._recovery = Recovery(
            self.place,
            self.program,
            self._types,
            quarantine=self._quarantine,
            tell=lambda _: None,
            checkpoints=False,
            origin=self._origin,
        )
        self._stand = (
            recovery.base()
            if found is None
            else checkpoints.stand_in(found, found.about.seen, found.about.complete)
        )
        epoch = None if found is None else chain.read_epoch(self.place, found.about.epoch).about
        self.on = recovery.at(self._stand, epoch, compiled=compiled)
        self.compared = {}
        self.epoch = self._saved = 0 if epoch is None else epoch.number
        if found is not None:
            about = found.about
            self.on.sums = Sums(dict(about.outputs), dict(about.schemas), about.rejected, about.quarantined)
            self.compared = {name: Compared(*counts) for name, counts in about.compared.items()}
        for name in self._own.names("out"):
            if int(name.partition("-")[0]) > self.epoch:
                self._own.remove([f"out/{name}"])
        self._compiled = compiled

    def _newest(self, last: Epoch) -> Pack[Tally] | None:
        """The newest place from which it may go on."""
        counts = valid(self.place, msgspec.structs.replace(last, last_change=0))
        for name in sorted(self._own.names("at"), reverse=True):
            if int(name.partition("-")[0]) > last.number:
                continue
            try:
                pack = Pack(f"{self._own}/at/{name}", self._own.read(f"at/{name}"), Tally, REMEDY)
                pack.check()
            except StorageError as error:
                if error.code != DAMAGED:
                    raise
                continue
            about = pack.about
            if about.fingerprint != self._fingerprint:
                raise _unfit(
                    f"the shadow {self.name} is of another program, version or parameters",
                    f"give this one another name, or remove {self._own}",
                )
            as_checkpoint = Checkpoint("", about.epoch, about.hash, about.complete, "", whole=True)
            if counts(as_checkpoint) and chain.read_epoch(self.place, about.epoch).hash == about.hash:
                return pack
        return None

    def _go(self, last: Epoch) -> int:
        assert self.on is not None
        found, before = PutOut(), self.epoch
        try:
            self._recovery.again(self.on, before + 1, last, None, found, compare=False)
        except Abandoned:
            if not self._compiled:
                raise
            self._begin(last, compiled=False)
            return 0
        tables = {f"out/{name}": pa.concat_tables(own) for name, own in found.outputs.items()}
        if found.rejected:
            tables["rejected"] = pa.concat_tables(found.rejected)
        if tables:
            data, _ = packed(_Part(before + 1, last.number), tables)
            self._own.create(f"out/{last.number:020d}-{uuid.uuid4().hex}", data)
        live = net(chain.epochs(self.place, before + 1, last.number))
        for name in sorted({*(n for n in live.names if n != REJECTED), *found.outputs}):
            theirs = pa.concat_tables(found.outputs[name]) if name in found.outputs else None
            same, ours, theirs = _apart(live, name, theirs)
            known = self.compared.get(name, Compared(0, 0, 0))
            self.compared[name] = Compared(
                known.same + same, known.live + _count(ours), known.shadow + _count(theirs)
            )
        self.epoch = last.number
        return last.number - before

    def save(self) -> None:
        """Keep where it stands: it goes on from there. Raises OSError."""
        if self.on is None or self.epoch == self._saved or self.on.complete is None or self.on.begin is None:
            return
        stand = self._now()
        pack = chain.read_epoch(self.place, self.epoch)
        sums = self.on.sums
        about = Tally(
            self.epoch, pack.hash, self.on.complete, self._fingerprint, [part.end for part in stand.seen], sums.outputs, sums.schemas,
            sums.rejected, sums.quarantined, {name: (c.same, c.live, c.shadow) for name, c in self.compared.items()},
        )  # fmt: skip
        data, _ = packed(about, checkpoints.sections_of(stand))
        self._own.create(f"at/{self.epoch:020d}-{uuid.uuid4().hex}", data)
        self._saved = self.epoch

    def _now(self) -> Stand:
        """Where the program stands."""
        assert self.on is not None
        assert self.on.complete is not None
        try:
            changes = self.on.kernel.changes()
        except Abandoned:
            newest = chain.read_epoch(self.place, self.epoch).about
            self._begin(newest, compiled=False)
            while self.epoch < newest.number:
                self._go(newest)
            changes = self.on.kernel.changes()
        self._stand = self._stand.then(self.program, changes, self.on.complete).trimmed(self.program)
        return self._stand

    def stand(self, last: Epoch) -> Stand:
        """Where the program stands at the end of one of the run's epochs, for who goes on with it. Raises as `follow` does."""
        if (types := self._types_at(last)) != self._types:
            self._types, self.on = types, None
        if self.on is None:
            self._begin(last)
        while self.epoch < last.number:
            self._go(last)
        if self.epoch != last.number or last.complete is None or last.begin is None:
            raise _unfit("the run has processed no row yet", "promote it once it has")
        return self._now()

    def watch(self, every: float, tell: Callable[[Progress], None], stopped: Callable[[], bool]) -> None:
        """Follow until `stopped`, and tell how it goes every so many seconds."""
        said = saved = float("-inf")
        while not stopped():
            moved = self.follow(stopped)
            now = time.monotonic()
            if now - said >= every:
                tell(self.progress())
                said = now
            if now - saved >= _EVERY:
                self.save()
                saved = now
            if not moved:
                time.sleep(0.1)
        self.save()

    # --- what came out --------------------------------------------------------------------------------

    def _parts(self) -> Iterator[Pack[_Part]]:
        for name in self._own.names("out"):
            if int(name.partition("-")[0]) <= self.epoch:
                yield Pack(f"{self._own}/out/{name}", self._own.read(f"out/{name}"), _Part, REMEDY)

    def outputs(self, record: type[Record] | str) -> pa.Table | None:
        """What it has put out as a record type, in the stored columns; None where it has put out none."""
        name = record if isinstance(record, str) else record.__name__
        found = [p.table(f"out/{name}") for p in self._parts() if f"out/{name}" in p.sections]
        if not found:
            return None
        table = pa.concat_tables(found)
        by = [table.column(c).to_numpy() for c in ("ordinal", "seq", "phase", "ts")]
        return table.take(pa.array(np.lexsort(by)))

    def difference(self, record: type[Record] | str) -> tuple[pa.Table | None, pa.Table | None]:
        """Rows of the run alone and of the shadow alone, in the newest version of the journal; None for none at all."""
        name = record if isinstance(record, str) else record.__name__
        return _apart(net(chain.epochs(self.place, 1, self.epoch)), name, self.outputs(name))[1:]

    def progress(self) -> Progress:
        """How far it is, and how its outputs differ so far."""
        found = Progress(self.epoch, 0, "")
        if self.on is None:
            return found
        sums = self.on.sums
        found.digest = sums.digest
        found.rows = self.on.journal.count
        found.records = dict(self.compared)
        return found

    def remove(self) -> None:
        """Remove all of it."""
        self._own.remove([one.name for one in self._own.files()])


def _apart(live: Feed, name: str, theirs: pa.Table | None) -> tuple[int, pa.Table | None, pa.Table | None]:
    """How many rows of a record type are equal, those of the run alone, those of a shadow alone."""
    published = live.of(name)
    ours = None if published is None else with_seq(published)
    if ours is None or theirs is None or ours.schema.names != theirs.schema.names:
        return 0, ours, theirs
    left, right = common(ours.columns, theirs.columns)
    return int(left.sum()), ours.filter(pa.array(~left)), theirs.filter(pa.array(~right))


def _count(table: pa.Table | None) -> int:
    return 0 if table is None else table.num_rows


def _unfit(what: str, hint: str) -> RunError:
    return RunError(f"this shadow cannot be: {what}", hint=hint, code="TL848")
