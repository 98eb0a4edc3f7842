"""A stream of rows that are sent. Each row is durable before its sender gets an answer, and counts once.

What many senders send together becomes one segment: a pack in the run's own place, numbered, created exclusively and synced; in an object store, put if there is none.
The loop reads segments in their order. A row's position is its number among all rows of the stream.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.display import many
from timelapse.env.scheduler import give_way
from timelapse.errors import SourceError, StorageError, UsageError
from timelapse.ingest.lines import Lines
from timelapse.ingest.parse import parse_lines
from timelapse.ingest.source import Source
from timelapse.model.events import Event
from timelapse.segments.segment import table_of
from timelapse.segments.types import EventType
from timelapse.store.waiting import AWAY, while_not
from timelapse.streaming.pack import Pack, header, packed
from timelapse.streaming.place import LivePlace
from timelapse.streaming.rows import Batch
from timelapse.streaming.sources.base import LiveSource, Wake, fields_of, line_plan
from timelapse.streaming.sources.sent_ids import Known, SentIds
from timelapse.streaming.streams import Partition
from timelapse.tables.rowhash import hash_sum

ONE = "push"
SEGMENTS = "push"
LOOK = 5.0
"""Seconds between two looks for segments of another process: one that ran the live run before may not know yet that it no longer does."""
MOST_ROWS = 100_000
"""Rows of one segment, about."""
_REMEDY = "restore it from a copy"


class _Segment(msgspec.Struct, frozen=True):
    """A segment's header: the number of its first row, when it was received, what its parts were called by their senders."""

    stream: int
    number: int
    first: int
    rows: int
    received: int
    ids: list[tuple[str, int]] = []
    """Ids of what was sent, with the number of rows of each."""
    hashes: list[int] = []
    """For each id a hash of its rows; none where an earlier version wrote the segment."""
    writer: str = ""
    """A random name of the process's stream: two that write the same rows are told apart."""

    def known(self) -> list[Known]:
        """The ids, each with the hash of its rows where there is one."""
        return list(zip_longest((name for name, _ in self.ids), self.hashes))


class _Landed(Exception):
    """A segment is there already: of another process, or one whose sender was told that it is not known."""


class _Look:
    """Asks for segments of other processes."""


@dataclass
class _Sent:
    table: pa.Table
    id: str
    done: Future[int]
    hash: int
    """Of its rows, where it has an id."""


class Push(LiveSource):
    """A stream that rows are sent to: `send` in Python, POST over HTTP (`timelapse live --listen`).

    `send` returns when the rows are durable. What is sent again under the same `id` is accepted and not counted again, after a restart too; other rows under an `id` that
    is known are refused. The newest million ids are known. `close` says that nothing more will come.
    """

    def __init__(self, layout: Source | None = None) -> None:
        """`layout`: how JSON rows are read (`ts`, `unit`, `fields` of tl.Source), and `unique`."""
        self._layout = Source("") if layout is None else layout
        self._queue: queue.Queue[_Sent | _Look | None] = queue.Queue(10_000)
        self._looked = 0.0
        self._ready = threading.Event()
        self._closed, self._over, self._hurry = (threading.Event() for _ in range(3))
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._next_read = 1
        self._next_write = 1
        self._rows = 0
        self._lock = threading.Lock()
        self._writer = uuid.uuid4().hex
        self._held: dict[int, tuple[int, pa.Table]] = {}
        """Segments that were just written, and need not be read again: the number of the first row, and all."""

    text = "rows that are sent"

    @property
    def layout(self) -> Source:
        """How JSON rows are read, and which rows count once."""
        return self._layout

    # --- senders ------------------------------------------------------------------------------------

    def send(self, rows: Iterable[Event] | pa.Table, *, id: str = "", timeout: float | None = 60.0) -> int:  # noqa: A002
        """Send events, or a table with `ts` and their fields. Returns how many rows count: 0 where this `id` was sent before.

        Raises TypeMismatch and the like for rows that do not fit, UsageError for other rows under an `id` that is known, TimeoutError, SourceError where the
        run has stopped.
        """
        return self.sending(rows, id=id, timeout=timeout).result(timeout)

    def sending(
        self,
        rows: Iterable[Event] | pa.Table,
        *,
        id: str = "",  # noqa: A002
        timeout: float | None = 60.0,
    ) -> Future[int]:
        """The same without waiting until the rows are durable: that is when the result is there. Rows are written in the order of calls."""
        if not self._ready.wait(timeout):
            raise TimeoutError("the live run that is to read this stream was not started")
        if self._closed.is_set():
            raise _closed()
        if self._failure is not None:
            raise SourceError(
                f"the stream takes no more rows: {self._failure}", code="TL945"
            ) from self._failure
        table = rows if isinstance(rows, pa.Table) else self._table(rows)
        table = self._checked(table)
        sent = _Sent(table, id, Future(), _hash(table) if id else 0)
        sent.done.set_running_or_notify_cancel()  # who waits may leave; the rows are written
        try:
            self._queue.put(sent, timeout=timeout)
        except queue.Full:
            raise TimeoutError("too much was sent that is not written yet") from None
        if self._over.is_set():  # it was closed meanwhile
            self._refuse_rest()
        return sent.done

    def _refuse_rest(self) -> None:
        """Tell senders whose rows nobody writes any more."""
        with suppress(queue.Empty):
            while True:
                if isinstance(sent := self._queue.get_nowait(), _Sent):
                    sent.done.set_exception(_closed())

    def _table(self, rows: Iterable[Event]) -> pa.Table:
        events = list(rows)
        for event in events:
            if type(event).__name__ != self._kind.name:
                raise UsageError(
                    f"{event!r:.80} is no {self._kind.name}",
                    hint="each event type has a stream of its own",
                    code="TL810",
                )
        fields = table_of(self._kind, events)
        ts = pa.array([e.ts for e in events], pa.int64())
        return pa.table([ts, *fields.columns], ["ts", *(f.name for f in self._kind.fields)])

    def _checked(self, table: pa.Table) -> pa.Table:
        schema = pa.schema([pa.field("ts", pa.int64(), nullable=False), *self._kind.schema])
        try:
            found = table.select(schema.names).cast(schema)
        except (KeyError, ValueError, pa.ArrowException) as error:
            raise UsageError(
                f"the table does not fit {self._kind}: {error}",
                hint="give `ts` in microseconds and the event's fields",
                code="TL810",
            ) from None
        found.validate(full=True)
        for name in schema.names:
            if not schema.field(name).nullable and found.column(name).null_count:
                raise UsageError(f"{name} is null in some row", hint="leave those rows out", code="TL810")
        return found

    def parsed(self, lines: bytes) -> pa.Table:
        """JSON lines as a table to send. Raises ValueError naming lines that are no events; then nothing counts."""
        if not self._ready.wait(60):
            raise TimeoutError("the live run that is to read this stream was not started")
        if self._closed.is_set():
            raise _closed()
        plan = line_plan(self._kind, replace(self._layout, format="json"), "json")
        found = parse_lines(plan, Lines(1, lines.removesuffix(b"\n")))
        if found.bad:
            said = "; ".join(f"line {b.row}: {b.reason}" for b in found.bad[:5])
            bad = many(len(found.bad), "row is", "rows are")
            raise ValueError(f"{bad} no {self._kind.name}, and nothing was taken: {said}")
        ts = pa.array(np.asarray(found.ts, np.int64))
        return pa.table(
            [ts, *fields_of(self._kind, found).columns], ["ts", *(f.name for f in self._kind.fields)]
        )

    def close(self) -> None:
        """Nothing more will come. What was sent is processed."""
        self._closed.set()
        self._ready.set()  # who waits for a run that has failed before it read the stream is told
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

    # --- writing segments -----------------------------------------------------------------------------

    def _write_all(self) -> None:
        give_way()  # it works for milliseconds at a time, and holds what readers wait for
        with while_not(self._hurry.is_set):
            self._write_until_closed()
        self._over.set()
        self._refuse_rest()

    def _write_until_closed(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                return
            if isinstance(first, _Look):
                self._look()
                continue
            group, rows, last = [first], first.table.num_rows, False
            while rows < MOST_ROWS:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                if isinstance(more, _Look):
                    continue
                group.append(more)
                rows += more.table.num_rows
            self._write(group)
            if last:
                return

    def _write(self, group: Sequence[_Sent]) -> None:
        while True:
            try:
                return self._written(group)
            except _Landed:  # ids of that segment are known now
                continue

    def _written(self, group: Sequence[_Sent]) -> None:
        new: list[_Sent] = []
        again: list[_Sent] = []
        here: dict[str, int | None] = {}
        for sent in group:
            known = self._ids if sent.id in self._ids else here
            if not sent.id or sent.id not in known:
                here[sent.id] = sent.hash
                new.append(sent)
            elif known[sent.id] in (None, sent.hash):
                again.append(sent)
            elif not sent.done.done():
                sent.done.set_exception(_reused(sent.id))
        group = new + again
        try:
            if new:
                self._put(new)
        except _Landed:
            raise
        except BaseException as error:
            if not isinstance(error, OSError | StorageError):
                self._failure = error
            for sent in group:
                sent.done.set_exception(error)
            return
        for sent in new:
            sent.done.set_result(sent.table.num_rows)
        for sent in again:
            sent.done.set_result(0)
        self._wake()

    def _put(self, new: Sequence[_Sent]) -> None:
        table = pa.concat_tables([sent.table for sent in new])
        named = [sent for sent in new if sent.id]
        about = _Segment(
            self._stream,
            self._next_write,
            self._rows,
            table.num_rows,
            time.time_ns() // 1000,
            [(sent.id, sent.table.num_rows) for sent in named],
            [sent.hash for sent in named],
            self._writer,
        )
        data, _ = packed(about, {"rows": table})
        name = self._name(self._next_write)
        try:
            self._place.create(name, data)
        except (OSError, StorageError):  # it may have landed all the same
            try:
                there = self._place.read(name)
            except FileNotFoundError:
                there = None
            if there is None:
                raise
            if there != data:
                self._take_from(there)
                raise _Landed from None
        self._take(table, about)

    def _look(self) -> None:
        """Take the segments that others have written. One that cannot be read now is looked for again."""
        try:
            while True:
                self._take_from(self._place.read(self._name(self._next_write)))
                self._wake()
        except FileNotFoundError:
            return
        except (OSError, StorageError) as error:
            if isinstance(error, StorageError) and error.code != AWAY:
                self._failure = error

    def _take_from(self, data: bytes) -> None:
        """The segment of the next number is there, and these are its bytes. Raises StorageError (TL931)."""
        pack = Pack(self._name(self._next_write), data, _Segment, _REMEDY)
        self._take(pack.table("rows"), pack.about)

    def _take(self, table: pa.Table, about: _Segment) -> None:
        """The segment of the next number is there."""
        number = self._next_write
        with self._lock:
            self._held[number] = self._rows, table
            self._next_write += 1
            self._rows += table.num_rows
        self._ids.add(number, about.known())

    def _name(self, number: int) -> str:
        return f"{SEGMENTS}/{self._stream:04d}-{number:016d}"

    # --- the source -----------------------------------------------------------------------------------

    def use(self, place: LivePlace, trigger: float) -> None:
        self._place = place

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        self._stream, self._kind, self._wake = stream, kind, wake
        known = next((p for p in partitions if p.name == ONE), None)
        self._next_read = int(known.cursor or 1) if known is not None else 1
        number = self._next_read  # what was sent and not yet taken is read again
        while self._place.exists(self._name(number)):
            number += 1
        last = self._about(number - 1) if number > 1 else None
        rows = 0 if last is None else last.first + last.rows
        self._ids = SentIds(self._place, stream)
        self._ids.load(number - 1, lambda segment: self._about(segment).known())
        self._next_write, self._rows = number, rows
        thread = threading.Thread(target=self._write_all, name="timelapse-push", daemon=True)
        thread.start()
        self._thread = thread
        if self._closed.is_set():  # before it began: who closed it has told nobody
            self._queue.put(None)
        self._ready.set()

    def _read(self, number: int) -> Pack[_Segment]:
        name = self._name(number)
        return Pack(name, self._place.read(name), _Segment, _REMEDY)

    def _about(self, number: int) -> _Segment:
        name = self._name(number)
        return header(name, self._place.pieces(name), _Segment, _REMEDY)

    def partitions(self) -> Sequence[str]:
        return (ONE,)

    def poll(self, most: int) -> list[Batch]:
        found: list[Batch] = []
        rows = 0
        self._ask_to_look()
        while rows < most:
            with self._lock:
                if self._next_read >= self._next_write:
                    break
                held = self._held.pop(self._next_read, None)
            if held is None:
                pack = self._read(self._next_read)
                held = pack.about.first, pack.table("rows")
            first, table = held
            self._next_read += 1
            offsets = np.arange(first, first + table.num_rows, dtype=np.int64)
            found.append(
                Batch(
                    self._stream,
                    ONE,
                    table.column("ts").to_numpy(),
                    table.drop_columns(["ts"]),
                    offsets,
                    first + table.num_rows - 1,
                    (),
                    str(self._next_read),
                )
            )
            rows += table.num_rows
        if self._failure is not None and not found:  # else the run would go on, and take no more rows
            raise self._failure
        return found

    def _ask_to_look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= LOOK:
            self._looked = now
            with suppress(queue.Full):
                self._queue.put_nowait(_Look())

    def at_end(self, partition: str) -> bool:
        with self._lock:
            return self._next_read >= self._next_write

    @property
    def ended(self) -> bool:
        """Whether it was closed, and all that was sent has been read."""
        done = self._closed.is_set() and (self._thread is None or not self._thread.is_alive())
        return done and self.at_end(ONE)

    def hasten(self) -> None:
        self._hurry.set()

    def committed(self, partitions: Sequence[Partition]) -> None:
        """Segments stay: they are what was received."""


def _hash(table: pa.Table) -> int:
    """Equal for equal rows, however they came."""
    return hash_sum(table.columns, table.num_rows, 0).low


def _reused(name: str) -> UsageError:
    return UsageError(
        f"other rows were sent under the id {name!r:.220}, and these were not taken",
        hint="give each part of what is sent an id of its own, and send a part again as it was",
        code="TL810",
    )


def _closed() -> SourceError:
    return SourceError("the stream was closed", hint="open another one", code="TL945")
