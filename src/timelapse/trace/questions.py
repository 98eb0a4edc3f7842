"""What a question is about: `Spam:88121`, `Spam:message=88121`, `Message:id=88121`, or the seq of an event."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import RunError, UsageError, meant
from timelapse.ids import Phase
from timelapse.model.decimals import of_text
from timelapse.moments import read_time, time_text
from timelapse.program.program import spec_of
from timelapse.program.times import VIEWS, has_own_times
from timelapse.results.stored import StoredRun
from timelapse.segments.reader import EventReader
from timelapse.trace.logged import event_at
from timelapse.trace.steps import brief

_PLACE = ("ts", "seq", "phase", "ordinal")
"""The stored columns that say where a row was put out. The record's fields follow."""


class Found(NamedTuple):
    """An event, and the record that it put out, where one was asked for (its type's name and its place)."""

    seq: int
    record: str | None = None
    ordinal: int | None = None
    others: int = 0
    """Further rows that the question fits as well."""
    dated: tuple[int, int] | None = None
    """Time and phase of the step, where it is no log event's."""
    named: Named | None = None
    """In place of a seq: the step with this name."""


class Named(NamedTuple):
    """`NAME@TIME#N`: the N-th of what is called so at a time (microseconds), from 1."""

    name: str
    ts: int
    place: int


def find_output(run: StoredRun, question: str | int) -> Found:
    """The output that is meant: `TYPE:KEY`, `TYPE:FIELD=VALUE,...`, `TYPE@TIME#N`, or the seq of its event.

    A key is what the record's class says (`key="message"`); where it has several fields, their values with commas between.
    The first row that fits. Raises UsageError (TL840) where the question cannot be read, RunError (TL609) for no such output.
    """
    seq = _seq(question)
    if seq is not None:
        ts = run.need_reader().ts_before(seq + 1)
        for name in run.counts if ts is not None else ():
            rows = run.stored(name, _PLACE, at=ts)
            mask = pc.and_(pc.equal(rows["seq"], seq), pc.equal(rows["phase"], Phase.LOG_EVENT))
            places = np.flatnonzero(np.asarray(mask))
            if len(places):
                return Found(seq, name, rows["ordinal"][int(places[0])].as_py(), len(places) - 1)
        program = run.need_program()
        event_at(run.need_reader(), program, seq)  # which says so where there is no such event
        later = (
            "; what came of it later is named by type and time: TYPE@TIME" if has_own_times(program) else ""
        )
        raise RunError(
            f"event {seq} put out nothing{' at its own time' if later else ''}",
            hint=f"timelapse why-not RUN {seq}{later}", code="TL609",
        )  # fmt: skip
    named = read_named(str(question))
    name, fields = (named.name, "") if named is not None else _read(str(question))
    if name not in run.counts:
        raise RunError(
            f"the run has no record type {name!r}",
            hint=f"{meant(name, run.counts)}record types: {', '.join(run.counts) or 'none'}", code="TL603",
        )  # fmt: skip
    known = run.schema(name).names[len(_PLACE) :]
    if named is not None:
        rows = run.stored(name, _PLACE, at=named.ts)
        mask, at, said = np.ones(rows.num_rows, np.bool_), named.place, ""
    else:
        wanted = _wanted(name, fields, _key(run, name), known)
        rows = run.stored(name, [*_PLACE, *dict.fromkeys(f for f, _ in wanted if f in known)])
        mask, at = np.asarray(_mask(rows, wanted, known)), 1
        said = f"with {', '.join(f'{f}={v}' for f, v in wanted)}"
    places = np.flatnonzero(mask)
    if len(places) < at:
        if named is not None:
            count = f": it has {len(places)} then" if len(places) else ""
            said = f"{f'number {at} ' if at > 1 else ''}at {time_text(named.ts)}{count}"
        raise RunError(
            f"the run has no {name} {said}", code="TL609",
            hint=_meant_field(fields, known)
            + f"it has {run.counts[name]:,}" + (f", the first {_shown(run.stored(name))}" if run.counts[name] else ""),
        )  # fmt: skip
    row = {n: rows.column(n)[int(places[at - 1])].as_py() for n in ("ts", "seq", "ordinal", "phase")}
    dated = None if row["phase"] == Phase.LOG_EVENT else (row["ts"], row["phase"])
    others = 0 if named is not None else len(places) - 1
    return Found(row["seq"], name, row["ordinal"], others, dated)


def find_event(run: StoredRun, question: str | int) -> Found:
    """The event that is meant: its seq, `TYPE:FIELD=VALUE,...` (the first that fits), or `NAME@TIME#N`: the N-th of a type
    at a time; in programs that reach into other times also of dated events, and of handlers with `every` and `after`.

    Raises UsageError (TL840) where the question cannot be read, RunError (TL606) for no such event.
    """
    seq = _seq(question)
    if seq is not None:
        return Found(seq)
    reader = run.need_reader()
    named = read_named(str(question))
    if named is not None:
        if any(use.what not in (*VIEWS, "derive") for use in spec_of(run.need_program()).times):
            return Found(-1, named=named)
        return Found(_seq_of(reader, named))
    name, fields = _read(str(question))
    kinds = {t.name: t for t in reader.types}
    if name not in kinds:
        other = (
            f"{name} is a type of record (timelapse why RUN {question}); here "
            if name in run.counts
            else meant(name, kinds)
        )
        raise RunError(
            f"the log has no event type {name!r}", code="TL606",
            hint=f"{other}name the event: its seq, or TYPE:FIELD=VALUE with a type of {', '.join(kinds) or 'none'}",
        )  # fmt: skip
    names = [f.name for f in kinds[name].fields]
    wanted = _wanted(name, fields, (), names)
    found, others = None, 0
    for chunk in reader.chunks(0, 2**63 - 1, {name: [f for f, _ in wanted]}):
        table = chunk.tables.get(name)
        if table is None:
            continue
        hits = table["seq"].filter(_mask(table, wanted, names))
        if len(hits):
            found = hits[0].as_py() if found is None else found
            others += len(hits)
    if found is None:
        said = ", ".join(f"{f}={v}" for f, v in wanted)
        raise RunError(
            f"the log has no {name} with {said}",
            code="TL606",
            hint=f"{_meant_field(fields, names)}its fields: {', '.join(names)}",
        )
    return Found(found, others=others - 1)


def read_named(question: str) -> Named | None:
    """`NAME@TIME` or `NAME@TIME#N`; None for another question.

    Raises UsageError: TL841 for a TIME that is none, TL840 for an N below 1.
    """
    fits = _NAMED.fullmatch(question.strip())
    if fits is None:
        return None
    place = int(fits["place"] or 1)
    if place < 1:
        raise UsageError(
            f"{question!r}: the first at a time is number 1",
            hint=f"{fits['name']}@{fits['time']}#1",
            code="TL840",
        )
    return Named(fits["name"], read_time(fits["time"]), place)


_NAMED = re.compile(r"(?P<name>\w+)@(?P<time>[^#]+)(?:#(?P<place>\d{1,9}))?")


def _seq_of(reader: EventReader, named: Named) -> int:
    """The seq of the N-th event of a type at a time."""
    found: list[int] = []
    if named.name in {t.name for t in reader.types}:
        for chunk in reader.chunks(reader.seq_at(named.ts), reader.seq_at(named.ts + 1), {named.name: []}):
            if named.name in chunk.tables:
                found += chunk.tables[named.name]["seq"].to_pylist()
    if len(found) < named.place:
        raise nothing_named(named, len(found), [t.name for t in reader.types])
    return found[named.place - 1]


def nothing_named(named: Named, count: int, known: Sequence[str]) -> RunError:
    """The error where nothing has that name at that time, or not so many."""
    return RunError(
        f"there is no {named.name} number {named.place} at {time_text(named.ts)}: there are {count}",
        hint=f"{'' if named.name in known else meant(named.name, known)}names: {', '.join(known)}", code="TL606",
    )  # fmt: skip


def _seq(question: str | int) -> int | None:
    if isinstance(question, int):
        return question
    if not isinstance(question, str):
        raise UsageError(
            f"{question!r} names no output or event",
            hint="ask by text, as Spam:88121, or by seq",
            code="TL840",
        )
    text = question.strip().replace(",", "").replace("_", "")
    return int(text) if text.isdecimal() else None


def _read(question: str) -> tuple[str, str]:
    name, colon, fields = question.partition(":")
    if not colon or not name or not fields:
        raise UsageError(
            f"{question!r} names no output or event",
            hint="write TYPE:KEY (Spam:88121), TYPE:FIELD=VALUE (Message:id=88121), NAME@TIME#N (Spam@2026-10-03T12:00), or the seq of an event", code="TL840",
        )  # fmt: skip
    return name, fields


def _key(run: StoredRun, name: str) -> tuple[str, ...]:
    return next((r.key for r in run.manifest.records if r.name == name), ())


def _wanted(name: str, text: str, key: tuple[str, ...], known: Sequence[str]) -> list[tuple[str, str]]:
    """The fields and their values, as texts."""
    if "=" in text and text.partition("=")[0].strip() in known:
        pairs = [part.partition("=") for part in _parts(text, known)]
        return [(f.strip(), v) for f, _, v in pairs]
    if not key:
        field, equals, _ = text.partition("=")
        raise UsageError(
            f"{name} has no field {field.strip()!r}" if equals else f"{name} has no key: say which field",
            hint=f"{_meant_field(text, known)}write {name}:FIELD=VALUE; fields: {', '.join(known)}", code="TL840",
        )  # fmt: skip
    values = [text] if len(key) == 1 else text.split(",")
    if len(values) != len(key):
        raise UsageError(f"the key of {name} is {', '.join(key)}: {len(key)} values", code="TL840")
    return list(zip(key, values, strict=True))


def _meant_field(text: str, known: Sequence[str]) -> str:
    """The field that was meant by `usre=1`, where no field has that name: a value of text may look like this too."""
    names = [piece.partition("=")[0].strip() for piece in text.split(",") if "=" in piece]
    return next((found for n in names if n not in known and (found := meant(n, known))), "")


def _parts(text: str, known: Sequence[str]) -> list[str]:
    """`a=1,b=2` at the commas that a field follows: values may have commas."""
    parts: list[str] = []
    for piece in text.split(","):
        if parts and piece.partition("=")[0].strip() not in known:
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _mask(table: pa.Table, wanted: Sequence[tuple[str, str]], known: Sequence[str]) -> pa.Array:
    """The rows that have these values. `known`: all fields there are, of which the table may have some."""
    masks = [np.asarray(pc.fill_null(_equal(table, f, v, known), False)) for f, v in wanted]
    return pa.array(np.logical_and.reduce(masks)) if masks else pa.array(np.zeros(table.num_rows, np.bool_))


def _equal(table: pa.Table, field: str, text: str, known: Sequence[str]) -> Any:
    if field not in table.column_names:
        raise UsageError(
            f"there is no field {field!r}",
            hint=f"{meant(field, known)}fields: {', '.join(known)}",
            code="TL840",
        )
    column = table.column(field)
    kind = column.type
    try:
        value: Any = text
        if pa.types.is_timestamp(kind):
            column, value = column.cast(pa.int64()), int(text)
        elif pa.types.is_integer(kind):
            value = int(text)
        elif pa.types.is_floating(kind):
            value = float(text)
        elif pa.types.is_decimal(kind):
            value = of_text(text)
        elif pa.types.is_boolean(kind):
            value = {"true": True, "false": False}[text.strip().lower()]
        elif pa.types.is_large_binary(kind) or pa.types.is_binary(kind):
            value = bytes.fromhex(text)
        elif pa.types.is_large_string(kind) or pa.types.is_string(kind):
            return pc.is_in(column, pa.array([text, *_quoted(text)], column.type))
        else:
            raise ValueError(kind)
        return pc.equal(column, pa.scalar(value, column.type))
    except (ValueError, KeyError, OverflowError, pa.ArrowInvalid):
        raise UsageError(
            f"{text!r} is no value of {field} ({kind})", code="TL840",
            hint=f"{_meant_field(text, known)}write TYPE:FIELD=VALUE to ask by another field: {', '.join(known)}",
        ) from None  # fmt: skip


def _quoted(text: str) -> list[str]:
    """The text that is meant by one in quotes, as answers show texts (`'b.example'`)."""
    if text[:1] not in ("'", '"'):
        return []
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    return [value] if isinstance(value, str) else []


def _shown(rows: pa.Table) -> str:
    first = rows.slice(0, 1).to_pylist()[0]
    return ", ".join(f"{n}={brief(v)}" for n, v in first.items() if n not in ("ts", "phase", "ordinal"))[:200]
