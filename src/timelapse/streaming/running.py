"""A program that stands at the end of an epoch of a live run, and what it needs to go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from timelapse.errors import StorageError
from timelapse.kernels.base import PassResult
from timelapse.program.program import Program
from timelapse.streaming import chain, checkpoints
from timelapse.streaming.arrivals import Taken
from timelapse.streaming.declared import Records, refuse_other
from timelapse.streaming.format import Checkpoint
from timelapse.streaming.kernel import OpenKernel
from timelapse.streaming.place import RunPlace
from timelapse.streaming.stand import Stand, both
from timelapse.streaming.sums import Emitted, Sums
from timelapse.streaming.window import JournalEnd


@dataclass(frozen=True)
class Closed:
    """A program whose last rows were processed without a kernel of this process: where it stands, and how a kernel is made there.

    The others are those of the kernel before.
    """

    stand: Stand
    make: Callable[[], OpenKernel]
    given_up: bool
    compiled: bool
    why_python: str

    @property
    def state_bytes(self) -> int:
        """What the program's states take, as tables."""
        return sum(table.nbytes for table in self.stand.states.values())


@dataclass
class Running:
    """A program that stands at the end of an epoch."""

    opened: OpenKernel | Closed
    journal: JournalEnd
    sums: Sums
    begin: int | None
    """The time of the journal's first row."""
    complete: int | None
    start: int
    """The epoch from whose end it ran: that of a checkpoint, or 0."""
    first: int
    """The seq from which it ran."""
    checkpoint: str = ""
    reached: int = 0
    """The epoch at whose end that is."""
    changes: int = 0
    """How many checkpoints there are since a whole one."""
    noted: tuple[int, list[tuple[int, str]]] = (0, [])
    rerun: int = 0
    """Rows of the journal that ran again."""
    whole: tuple[int, Stand] | None = None
    """Where it stood at the end of an epoch from which it ran, and of which there is no checkpoint: it needs a whole one first."""
    unsaved: list[tuple[Checkpoint, PassResult]] = field(default_factory=list)
    """What was done to states since the newest checkpoint, as far as the program was asked: one checkpoint that is not written yet, or none."""
    written: tuple[Checkpoint, PassResult] | None = None
    """What comes before that, and is being written."""
    parts: list[tuple[PassResult, int]] | None = None
    """The same since `basis` was asked for, part by part, for who keeps the stand that it gives; None where nobody does."""

    earlier: Records = field(default_factory=dict)
    """What versions of the program before this one have put out."""

    @property
    def kernel(self) -> OpenKernel:
        """The program in this process, which is loaded where it is not there."""
        if isinstance(self.opened, Closed):
            self.opened = self.opened.make()
        return self.opened

    def put(self, taken: Taken, complete: int) -> Emitted:
        """Process further rows of the journal, up to a time. Raises HandlerError, Abandoned, RunError (TL847)."""
        first, kernel = self.journal.count, self.kernel
        self.journal.add(taken.tables, taken.rows)
        emitted = Emitted.of(kernel.run(first, first + taken.rows, complete))
        self.took(kernel.program, emitted, complete)
        return emitted

    def took(self, program: Program, emitted: Emitted, complete: int) -> None:
        """The rows that the journal has in addition are processed, up to a time."""
        self.journal.forget(complete)
        self.complete = complete
        if self.earlier:
            new = {name: t for name, t in emitted.outputs.items() if name not in self.sums.schemas}
            fields = {name: {f.name: f.type for f in table.schema} for name, table in new.items()}
            refuse_other(program, self.earlier, fields)
        self.sums = self.sums.then(emitted)

    def basis(
        self, program: Program, place: RunPlace, base: Callable[[], Stand], about: Checkpoint | None
    ) -> Callable[[], Stand]:
        """What gives where it stands now, at any time and in any thread. `about`: a checkpoint of this moment, which may still be written then; None where
        nothing has happened. `base`: where the program stood before its first epoch. Raises Abandoned; what is given raises StorageError (TL931)."""
        if isinstance(self.opened, Closed):
            stand = self.opened.stand
            return lambda: stand
        if about is not None:
            self.ask(about)
        whole, checkpoint = self.whole, self.checkpoint
        written = [] if self.written is None else [self.written]
        parts = [(changes, about.complete) for about, changes in (*written, *self.unsaved)]

        def make() -> Stand:
            if whole is not None:
                _, found = whole
            elif checkpoint:
                found = checkpoints.load(place, checkpoint).stand(program, base)
            else:
                found = base()
            return found.after(program, parts) if parts else found

        return make

    def ask(self, about: Checkpoint) -> None:
        """Ask the program in this process what was done to states: the next checkpoint, which may still be written then, has that. Raises Abandoned."""
        assert isinstance(self.opened, OpenKernel)
        changes = self.opened.changes(later=True)
        if self.parts is not None:
            self.parts.append((changes, about.complete))
        if self.unsaved:
            changes = both(self.opened.program, self.unsaved.pop()[1], changes)
        self.unsaved.append((about, changes))

    def saving(self, place: RunPlace, about: Checkpoint) -> Saving:
        """A checkpoint of this moment, which is still to be written: one at a time. Raises Abandoned."""
        if not isinstance(self.opened, Closed):
            self.ask(about)
        self._take_back()
        self.written = self.unsaved.pop() if self.unsaved else None
        return Saving(self, place, about, self.checkpoint, self.whole, self.noted, self.written)

    def saved(self, saving: Saving) -> None:
        """A checkpoint was written, or as much of it as could be: the next one has what this one lacks."""
        if saving.base:
            self.checkpoint, self.noted = saving.base
            self.reached, self.whole, self.changes = self.noted[0], None, 0
        if saving.name:
            assert saving.changes is not None
            self.checkpoint, self.reached, self.changes = (
                saving.name,
                saving.changes[0].epoch,
                self.changes + 1,
            )
            self.written = None
        self._take_back()

    def _take_back(self) -> None:
        """What was to be written is not."""
        if self.written is None:
            return
        about, changes = self.written
        if self.unsaved:
            assert isinstance(self.opened, OpenKernel)
            about, later = self.unsaved.pop()
            changes = both(self.opened.program, changes, later)
        self.unsaved.append((about, changes))
        self.written = None


@dataclass
class Saving:
    """A checkpoint that is being written: what was done to states since `parent`, and `whole` before it where that is not on disk yet."""

    running: Running
    place: RunPlace
    about: Checkpoint
    parent: str
    whole: tuple[int, Stand] | None
    noted: tuple[int, list[tuple[int, str]]]
    changes: tuple[Checkpoint, PassResult] | None
    name: str = ""
    base: tuple[str, tuple[int, list[tuple[int, str]]]] | None = None
    """The name of the whole one, once it is written, and what it has of what sources note."""

    def write(self) -> None:
        """Write it, in any thread, while the program goes on. Raises OSError, and StorageError also where what it stands on was removed meanwhile."""
        place = self.place
        if self.whole is not None:
            (number, stand), (upto, notes) = self.whole, self.noted
            notes = [*notes, *checkpoints.noted(place, upto + 1, number)]
            base = msgspec.structs.replace(
                self.about, epoch=number, hash=chain.read_epoch(place, number).hash, complete=stand.complete or 0, whole=True,
                seen=[part.end for part in stand.seen], notes=notes, noted=True,
            )  # fmt: skip
            self.parent, _ = checkpoints.write_whole(place, base, stand)
            self.base = self.parent, (number, notes)
        if self.changes is not None:
            about, changes = self.changes
            about = msgspec.structs.replace(about, parent=self.parent)
            name, _ = checkpoints.write_changes(place, about, changes)
            if self.parent and not place.exists(self.parent):
                raise StorageError(
                    f"the checkpoint {self.parent} is gone, on which it stands", code="TL931",
                    hint="another process has removed it: the next checkpoint stands on another one",
                )  # fmt: skip
            self.name = name

    def done(self) -> str:
        """It was written, or could not be: the program takes note, in the thread that runs it. Returns the name of its newest checkpoint."""
        self.running.saved(self)
        return self.running.checkpoint

    def now(self) -> str:
        """Both at once."""
        try:
            self.write()
        finally:
            self.done()
        return self.running.checkpoint
