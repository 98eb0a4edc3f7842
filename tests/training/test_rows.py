"""Rows for training hold what was known at their time, and nothing later."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.errors import SilentLog, UsageError
from timelapse.kernels.choose import SWITCH
from timelapse.log import MemoryLog
from timelapse.log.asked import AskedLog
from timelapse.segments.types import EventType
from timelapse.training import Features

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 90


class Message(tl.Event):
    id: int
    sender: int
    text: str


class Login(tl.Event):
    user: int


class Ask(tl.Event):
    user: int
    note: str | None


class Row(tl.Record, key="message"):
    message: int
    sent: int
    first: bool


class Seen(tl.Record, key=("user", "note")):
    user: int
    note: str | None
    sent: int
    last: str | None


class Profile(tl.Program):
    sent: tl.Counter[int]
    last: tl.Value[int, str | None]
    logins: tl.Set[int]

    @tl.on(Login)
    def login(self, e: Login) -> None:
        self.logins.add(e.user)

    @tl.on(Message)
    def features(self, m: Message) -> None:
        self.emit(Row(message=m.id, sent=self.sent[m.sender], first=m.sender not in self.logins))

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.sender] += 1
        self.last[m.sender] = m.text


class Asked(Profile):
    @tl.on(Ask)
    def answer(self, q: Ask) -> None:
        if q.note == "no":
            self.reject("no answer")
        if q.user < 9:
            self.emit(
                Seen(user=q.user, note=q.note, sent=self.sent[q.user], last=self.last.get(q.user, None))
            )


def made(i: int) -> tl.Event:
    if i % 5 == 3:
        return Login(user=i % 4, ts=i // 3)
    return Message(id=1000 + i, sender=i * i % 4, text=f"t{i}", ts=i // 3)


EVENTS = [made(i)._at(made(i).ts, i) for i in range(COUNT)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tl.Log:
    return tl.Log.from_events(tmp_path_factory.mktemp("log") / "log", EVENTS, [Message, Login], block=16)


QUESTIONS = pa.table(
    {
        "ts": pa.array([14, 0, 3, 29, 30, 500, 3, -1, 14], pa.int64()),
        "user": pa.array([1, 0, 1, 0, 1, 1, 2, 0, 9], pa.int64()),
        "note": pa.array(["a", None, "b", "c", "d", "e", "no", "g", "h"]),
        "label": pa.array([True, False, True, None, True, True, True, False, False]),
    }
)


def known_at(user: int, ts: int) -> tuple[int, str | None]:
    """What the program has counted before a time, written out by hand."""
    own = [e for e in EVENTS if isinstance(e, Message) and e.sender == user and e.ts < ts]
    return len(own), own[-1].text if own else None


# --- questions among the events ---------------------------------------------------------------------------


@given(
    times=st.lists(st.integers(-2, 32), max_size=12),
    left_out=st.sets(st.integers(0, COUNT - 1)),
    part=st.sampled_from([None, (7, 22), (12, 40)]),
    types=st.sampled_from([(Message, Login), (Message,), (Login,)]),
)
@settings(max_examples=deep(15))
def test_questions_stand_before_what_happens_at_their_time(
    log: tl.Log,
    times: list[int],
    left_out: set[int],
    part: tuple[int, int] | None,
    types: tuple[type[tl.Event], ...],
) -> None:
    """Of a whole log and of parts of it: without some events, of a span, of some types."""
    rows = pa.table({"ts": pa.array(times, pa.int64()), "user": pa.array(range(len(times)), pa.int64()),
                     "note": pa.nulls(len(times), pa.large_string())})  # fmt: skip
    base = log.without(left_out)
    if part is not None:
        base = base.between(*part)
    if len(types) == 1:
        base = base.only(*types)
    asked = AskedLog(base, EventType.of(Ask), rows)
    order = sorted(range(len(times)), key=lambda i: times[i])
    lo, hi = part or (-99, 99)
    kept = [e for e in EVENTS if e.seq not in left_out and lo <= e.ts < hi and isinstance(e, types)]
    keyed: list[tuple[Any, tl.Event]] = [((e.ts, 1, e.seq), e) for e in kept]
    keyed += [((times[i], 0, n), Ask(user=i, note=None, ts=times[i])) for n, i in enumerate(order)]
    expected = [e for _, e in sorted(keyed, key=lambda pair: pair[0])]
    found = list(asked.events(*types, Ask))
    assert [(type(e), e.ts, e._values()) for e in found] == [(type(e), e.ts, e._values()) for e in expected]
    memory = MemoryLog(found, [*types, Ask])  # raises where seqs do not rise
    reader = asked.reader
    given: list[type[tl.Event]] = [*types, Ask]
    classes = {t.__name__: t for t in given}
    assert reader.count == asked.count == len(expected)
    end = reader.seq_after(reader.count)
    for lo, hi in ((0, end), (0, end // 2), (end // 3, end // 3 + 1), (end // 2, end + 9), (5, 5)):
        assert list(reader.events(lo, hi, classes)) == list(memory.events(lo, hi, classes))
        chunks = list(reader.chunks(lo, hi, {"Ask": ["user"]}))
        users = [u for c in chunks if "Ask" in c.tables for u in c.tables["Ask"]["user"].to_pylist()]
        assert users == [e.user for e in memory.events(lo, hi, {"Ask": Ask})]  # type: ignore[attr-defined]
    for n in range(reader.count + 1):
        assert sum(e.seq < reader.seq_after(n) for e in found) == n
    for ts in (-3, 0, 7, 29, 99):
        assert [e for e in found if e.seq < reader.seq_at(ts)] == [e for e in found if e.ts < ts]
    cuts = reader.cuts(4)
    assert (cuts[0], cuts[-1]) == (0, end)


@pytest.mark.parametrize("slices", [1, 3])
def test_rows_get_what_was_known_before_their_time(log: tl.Log, slices: int) -> None:
    found = tl.features(Asked, log, QUESTIONS, slices=slices, spark=False)
    assert (found.record, found.missing) == ("Seen", 2)
    assert found.table.column_names == ["ts", "user", "note", "label", "sent", "last"]
    assert found.table.select(QUESTIONS.column_names) == QUESTIONS
    for row in found.table.to_pylist():
        silent = row["note"] in ("no", "h")
        expected = (None, None) if silent else known_at(row["user"], row["ts"])
        assert (row["sent"], row["last"]) == expected


def test_what_comes_later_makes_no_difference(log: tl.Log, tmp_path: Path) -> None:
    """The rows from a log that ends at their time are the same."""
    whole = tl.features(Asked, log, QUESTIONS, spark=False).table.to_pylist()
    for ts in (3, 14):
        part = tl.Log.from_events(tmp_path / f"to{ts}", [e for e in EVENTS if e.ts < ts], [Message, Login])
        rows = [r for r in QUESTIONS.to_pylist() if r["ts"] == ts]
        own = tl.features(Asked, part, pa.Table.from_pylist(rows, QUESTIONS.schema), spark=False).table
        assert own.to_pylist() == [r for r in whole if r["ts"] == ts]


def test_the_run_behind_it_is_that_of_the_log_alone(log: tl.Log) -> None:
    found = tl.features(Asked, log, QUESTIONS, spark=False)
    alone = tl.replay(Profile, log, spark=False)
    assert found.run.state("sent") == alone.state("sent")
    assert found.run.table(Row).drop_columns("seq") == alone.table(Row).drop_columns("seq")


@pytest.mark.parametrize("form", ["parquet", "csv", "pandas"])
def test_tables_come_in_many_forms(log: tl.Log, form: str, tmp_path: Path) -> None:
    expected = tl.features(Asked, log, QUESTIONS, spark=False).table
    at: Any = tmp_path / f"at.{form}"
    if form == "parquet":
        pq.write_table(QUESTIONS.set_column(0, "ts", QUESTIONS["ts"].cast(pa.timestamp("us", "UTC"))), at)
    elif form == "csv":
        rows = QUESTIONS.set_column(2, "note", QUESTIONS["note"].fill_null(""))
        pyarrow.csv.write_csv(rows, at)
    else:
        at = QUESTIONS.to_pandas()
    found = tl.features(Asked, log, at, spark=False)
    assert found.table["sent"].to_pylist() == expected["sent"].to_pylist()
    assert found.table["last"].to_pylist() == expected["last"].to_pylist()
    assert found.to_pandas()["sent"].notna().sum() == 7


class Word(tl.Event):
    who: str
    amount: Annotated[Decimal, tl.scale(2)]


class Heard(tl.Record, key="who"):
    who: str
    times: int


class Words(tl.Program):
    times: tl.Counter[str]

    @tl.on(Word)
    def hear(self, e: Word) -> None:
        self.times[e.who] += 1
        self.emit(Heard(who=e.who, times=self.times[e.who]))


class WhatOf(tl.Event):
    who: str
    limit: Annotated[Decimal, tl.scale(2)] | None


class Told(tl.Record):
    times: int
    over: bool | None


class AskedWords(Words):
    @tl.on(WhatOf)
    def answer(self, q: WhatOf) -> None:
        over = None if q.limit is None else self.times[q.who] > q.limit
        self.emit(Told(times=self.times[q.who], over=over))


def test_csv_is_given_on_as_it_was_written(tmp_path: Path) -> None:
    """A key of digits is no number, nor are texts that would lose digits as one."""
    words = [Word(who="007" if n % 3 else "7", amount=Decimal(n), ts=n) for n in range(9)]
    log = tl.Log.from_events(tmp_path / "log", words)
    at = tmp_path / "at.csv"
    at.write_text(
        "who,ts,limit,zip,card,share,n\n"
        "007,5,1.10,01067,12345678901234567890,0.5,12\n"
        "7,9,,99998,1,2,-3\n"
    )  # fmt: skip
    named = tl.features(Words, log, at, spark=False).table.to_pylist()
    asked = tl.features(AskedWords, log, at, spark=False, record="Told").table.to_pylist()
    assert [(r["who"], r["times"]) for r in named] == [("007", 3), ("7", 3)]
    assert [(r["who"], r["times"], r["limit"], r["over"]) for r in asked] == [
        ("007", 3, Decimal("1.10"), True),
        ("7", 3, None, None),
    ]
    for rows in (named, asked):
        assert [r["zip"] for r in rows] == ["01067", "99998"]
        assert [r["card"] for r in rows] == ["12345678901234567890", "1"]
        assert [(r["share"], r["n"]) for r in rows] == [(0.5, 12), (2.0, -3)]


def test_an_index_and_categories_of_frames(tmp_path: Path) -> None:
    log = tl.Log.from_events(tmp_path / "log", [Word(who="a", amount=Decimal(1), ts=1)])
    frame = pd.DataFrame({"who": ["b", "a"], "ts": [2, 2]}, index=[7, 9])[::-1]
    found = tl.features(Words, log, frame, spark=False).table
    assert found.column_names == ["who", "ts", "times"]
    assert found["times"].to_pylist() == [1, None]
    polars = pytest.importorskip("polars", reason="Polars comes with `make bench-install`")
    coded = polars.from_pandas(frame).with_columns(polars.col("who").cast(polars.Categorical))
    assert tl.features(Words, log, coded, spark=False).table["times"].to_pylist() == [1, None]


# --- rows that name outputs -------------------------------------------------------------------------------


def test_a_row_per_event_without_a_table(log: tl.Log) -> None:
    found = tl.features(Profile, log, spark=False)
    assert found.table == tl.run_serial(Profile, EVENTS).table(Row)


def test_rows_by_key(log: tl.Log) -> None:
    labels = pa.table({"message": [1001, 7, 1000, 1001], "spam": [1, 0, 0, 1]})
    found = tl.features(Profile, log, labels, spark=False)
    own = {r["message"]: r for r in tl.run_serial(Profile, EVENTS).table(Row).to_pylist()}
    assert found.missing == 1
    for row in found.table.to_pylist():
        expected = own.get(row["message"], {"sent": None, "first": None})
        assert (row["sent"], row["first"]) == (expected["sent"], expected["first"])


class Per(tl.Record, key="who"):
    who: int
    n: int


class Often(tl.Program):
    n: tl.Counter[int]

    @tl.on(Message)
    def go(self, m: Message) -> None:
        self.n[m.sender] += 1
        self.emit(Per(who=m.sender, n=self.n[m.sender]))


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 31)), max_size=12))
@settings(max_examples=deep(8))
def test_the_last_one_before_a_time(log: tl.Log, rows: list[tuple[int, int]]) -> None:
    table = pa.table(
        {"who": pa.array([w for w, _ in rows], pa.int64()), "ts": pa.array([t for _, t in rows], pa.int64())}
    )
    found = tl.features(Often, log, table, spark=False).table.to_pylist()
    assert [r["n"] for r in found] == [known_at(w, t)[0] or None for w, t in rows]


def test_several_outputs_of_a_key_need_a_time(log: tl.Log) -> None:
    with pytest.raises(UsageError, match=r"row 1 names \d+ outputs of Per"):
        tl.features(Often, log, pa.table({"who": [1]}), spark=False)


# --- errors -----------------------------------------------------------------------------------------------


class Writes(Asked):
    @tl.on(Ask)
    def remember(self, q: Ask) -> None:
        self.note(q.user)

    def note(self, user: int) -> None:
        self.logins.add(user)


class Twice(Asked):
    @tl.on(Ask)
    def again(self, q: Ask) -> None:
        self.emit(Seen(user=q.user, note=q.note, sent=0, last=None))


class Same(tl.Program):
    @tl.on(Message)
    def go(self, m: Message) -> None:
        self.emit(Row(message=m.id, sent=0, first=True))


@pytest.mark.parametrize(
    ("program", "at", "options", "message"),
    [
        (Writes, QUESTIONS, {}, "logins is written at Ask"),
        (Twice, QUESTIONS.slice(0, 1), {}, "row 1 got more than one Seen"),
        (Asked, QUESTIONS.drop_columns("ts"), {}, "no column ts"),
        (Asked, QUESTIONS.drop_columns("user"), {}, "no column user"),
        (
            Asked,
            QUESTIONS.append_column("sent", QUESTIONS["user"]),
            {},
            "both the table and Seen have a column sent",
        ),
        (Asked, pa.table({"ts": [None, 1], "user": [1, 1], "note": ["a", "a"]}), {}, "row 1: ts is null"),
        (Asked, pa.table({"ts": [1], "user": ["x"], "note": ["a"]}), {}, "user"),
        (Asked, QUESTIONS, {"ask": "Login"}, "Login is an event type of the log"),
        (Asked, QUESTIONS, {"ask": Row}, "does not listen to Row"),
        (Profile, pa.table({"who": [1]}), {}, "no column message"),
        (Profile, None, {"ask": "Ask"}, "without at="),
        (Profile, 7, {}, "int is no table"),
        (Profile, "nowhere.parquet", {}, "the rows cannot be read: there is no such file"),
        (
            Profile,
            pa.table([pa.array([1]), pa.array([1])], names=["message", "message"]),
            {},
            "several columns",
        ),
        (Profile, pd.DataFrame({"message": [1, "x"]}), {}, "cannot be read as Arrow"),
    ],
)
def test_what_does_not_fit_is_said(log: tl.Log, program: Any, at: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        tl.features(program, log, at, spark=False, **options)
    assert caught.value.code == "TL835"
    assert "the labels" not in str(caught.value)


def test_they_are_written_whole_or_not_at_all(log: tl.Log, tmp_path: Path) -> None:
    found = tl.features(Profile, log, spark=False)
    found.write(tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet") == found.table
    found.write(tmp_path / "rows.csv")
    assert len(pd.read_csv(tmp_path / "rows.csv")) == found.table.num_rows
    with pytest.raises(UsageError, match="neither"):
        found.write(tmp_path / "rows.xlsx")
    broken = Features(pa.table({"a": pa.array([[1]])}), "x", 0, found.run)
    with pytest.raises(pa.ArrowException):
        broken.write(tmp_path / "lists.csv")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.csv", "rows.parquet"]
    assert np.asarray(found.table["sent"]).max() > 5


# --- other times ------------------------------------------------------------------------------------------


class Wait(tl.Event):
    user: int


class Window(tl.Record):
    n: int
    ticks: int
    waits: int


class Windowed(tl.Program):
    sent: tl.Counter[int]
    ticks: tl.Counter
    waits: tl.Counter[int]

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.sent[m.sender] += 1
        self.send(Wait(user=m.sender), after=2)

    @tl.on(Wait)
    def wait(self, w: Wait) -> None:
        self.waits[w.user] += 1

    @tl.every(tl.SECOND)
    def tick(self) -> None:
        self.ticks += 1

    @tl.on(Ask)
    def answer(self, q: Ask) -> None:
        self.emit(Window(n=self.sent.last(5)[q.user], ticks=int(self.ticks), waits=self.waits[q.user]))  # type: ignore[call-overload]


class Aside(Windowed):
    """Reads through a method and a property, and writes where it looks back."""

    @property
    def all(self) -> int:
        return int(self.ticks)  # type: ignore[call-overload,no-any-return]

    def window(self, user: int) -> int:
        if user not in self.waits or self.sent.get(user) is None:
            return 0
        self.waits.add(user, 1) if self.all > 9 else None
        return int(self.sent.last(5)[user])

    @tl.on(Ask)
    def answer(self, q: Ask) -> None:
        self.emit(Window(n=self.window(q.user), ticks=0, waits=0))


class Sending(Windowed):
    @tl.on(Ask)
    def more(self, q: Ask) -> None:
        self.send(Wait(user=q.user))


def test_a_row_that_is_asked_long_after_the_log_is_named(log: tl.Log) -> None:
    """Its seq is one that the log does not have: nothing can be left out of that."""
    late = pa.table({"ts": [5, 32_503_680_000_000_000], "user": [1, 1], "note": ["", ""]})
    with pytest.raises(SilentLog, match=r"row 2 is at 3000-01-01") as caught:
        tl.features(Windowed, log, late, spark=False)
    assert "without" not in (caught.value.hint or "")
    assert "gap=376200 * tl.DAY" in (caught.value.hint or "")


def test_windows_timers_and_ticks_at_the_rows_of_a_table(log: tl.Log) -> None:
    rows = QUESTIONS.select(["ts", "user", "note"])
    found = tl.features(Windowed, log, rows, spark=False)
    assert (found.record, found.missing) == ("Window", 0)
    for row in found.table.to_pylist():
        own = [e for e in EVENTS if isinstance(e, Message) and e.sender == row["user"] and e.ts < row["ts"]]
        assert row["n"] == sum(e.ts > row["ts"] - 5 for e in own)
        assert row["waits"] == sum(e.ts + 2 <= row["ts"] for e in own)
        assert row["ticks"] == (1 if row["ts"] >= 0 else 0)
    with pytest.raises(UsageError, match="sent or cancelled at Ask"):
        tl.features(Sending, log, rows, spark=False)
    with pytest.raises(UsageError, match="waits is written at Ask"):
        tl.features(Aside, log, rows, spark=False)


@pytest.mark.parametrize("program", [Asked, Windowed])
def test_compiled_and_on_spark(
    log: tl.Log, program: Any, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = QUESTIONS.select(["ts", "user", "note"])
    expected = tl.features(program, log, rows, spark=False).table
    assert tl.features(program, log, rows, spark=spark, slices=3).table == expected
    monkeypatch.setenv(SWITCH, "native")
    found = tl.features(program, log, rows, spark=False, slices=2)
    assert found.table == expected
    assert program is Windowed or "compiled" in found.run.passes.values()


@pytest.mark.parametrize(("unit", "name"), [(1, "seconds"), (1000, "milliseconds")])
@pytest.mark.parametrize("csv", [False, True])
def test_times_in_another_unit_are_not_taken_for_microseconds(
    unit: int, name: str, csv: bool, tmp_path: Path
) -> None:
    """They would all lie in 1970, and every row would quietly know nothing."""
    start = 1_082_040_961
    events = [Message(id=n, sender=n % 3, text="", ts=(start + 60 * n) * tl.SECOND) for n in range(9)]
    log = tl.Log.from_events(tmp_path / "log", events, [Message, Login])
    table = pa.table({"ts": [(start + 100) * unit, (start + 200) * unit], "user": [1, 2], "note": ["a", "b"]})
    at: Any = table
    if csv:
        at = tmp_path / "at.csv"
        pyarrow.csv.write_csv(table, at)
    with pytest.raises(UsageError, match=f"look like {name}") as caught:
        tl.features(Asked, log, at, spark=False)
    assert caught.value.code == "TL910"


def test_a_row_in_another_unit_among_others_is_named(tmp_path: Path) -> None:
    """It would quietly know nothing; a row that is long before the log, and in no other unit within it, is none of these."""
    start = 1_082_040_961 * tl.SECOND
    events = [Message(id=n, sender=n % 3, text="", ts=start + n * tl.MINUTE) for n in range(9)]
    log = tl.Log.from_events(tmp_path / "log", events, [Message, Login])
    times = [start + 100 * tl.SECOND, (start + 200 * tl.SECOND) // 1000]
    table = pa.table({"ts": times, "user": [1, 2], "note": ["a", "b"]})
    with pytest.raises(UsageError, match=r"row 2: ts lies before .* looks like milliseconds") as caught:
        tl.features(Asked, log, table, spark=False)
    assert caught.value.code == "TL910"
    early = pa.table({"ts": [start, start - tl.DAY], "user": [1, 2], "note": ["a", "b"]})
    assert tl.features(Asked, log, early, spark=False).table.num_rows == 2


def test_times_near_1970_are_no_other_unit(tmp_path: Path) -> None:
    """Times of a log that begins there are numbers of any size."""
    events = [Message(id=n, sender=n % 3, text="", ts=tl.SECOND + n * tl.MINUTE) for n in range(9)]
    log = tl.Log.from_events(tmp_path / "log", events, [Message, Login])
    table = pa.table({"ts": [2_000, 3 * tl.SECOND], "user": [1, 2], "note": ["a", "b"]})
    assert tl.features(Asked, log, table, spark=False).table.num_rows == 2
