"""`timelapse init`: looks at data, and writes event classes and a log's definition for it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timelapse.cli.options import Json, examples
from timelapse.display import many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from timelapse.ingest.inferring import Seen
    from timelapse.ingest.looking import Looked


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "timelapse init raw/transactions raw/logins.jsonl Chargeback=raw/chargebacks.parquet",
            "timelapse init data/*.csv.gz --out antifraud --log logs/oct",
        )
    )(init)


def init(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="[TYPE=]PATH...",
            help="For each event type its files: a path, folder or glob. Files whose names differ by numbers are of one type.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for events.py and log.toml.")] = Path(),
    log: Annotated[str, typer.Option("--log", help="Where the log will go.")] = "log",
    as_json: Json = False,
) -> None:
    """Look at data, and write events.py and log.toml for it, with comments on what was seen and guessed.

    Samples of some files are read, nothing is ingested. Read both files, correct them, and run `timelapse ingest log.toml`.
    """
    from timelapse.cli.console import line, print_json
    from timelapse.errors import Place, UsageError
    from timelapse.ingest.looking import look, type_name

    target = out.expanduser()
    events, definition = target / "events.py", target / "log.toml"
    for path in (events, definition):
        if path.exists():
            raise UsageError(
                "there is such a file already",
                place=Place(str(path)),
                code="TL808",
                hint="remove it, or choose another folder: --out",
            )
    wanted: dict[str, list[str]] = {}
    for one in data:
        name, equals, path_ = one.partition("=")
        named = bool(equals) and name.isidentifier() and not Path(one).exists()
        type_, place = (name, path_) if named else (type_name(one), one)
        if not type_.isidentifier():
            raise UsageError(
                f"{type_} is no name for the events of {place}", code="TL808", hint=f"name them: Row={shlex.quote(place)}"
            )  # fmt: skip
        wanted.setdefault(type_, []).append(place)
    found = [look(places, type_) for type_, places in wanted.items()]
    target.mkdir(parents=True, exist_ok=True)
    texts = {events: events_text(found), definition: definition_text(found, target, log)}
    for path, text in texts.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    todo = [
        f"{f.type} is plain text of no common shape: say its columns by a regex, and declare them as fields"
        if f.format == "text"
        else f"{f.type} has no rows: its types and its time are not known"
        if not f.rows
        else f"{f.type} has no column that looks like a time"
        for f in found
        if f.ts is None
    ]
    if as_json:
        print_json({
            "events": str(events), "definition": str(definition), "todo": todo,
            "types": [{"type": f.type, "files": f.files, "rows": f.rows, "format": f.format, "ts": None if f.ts is None else f.ts.name,
                       "columns": {c.name: c.type for c in f.columns}} for f in found],
        })  # fmt: skip
        return
    for f in found:
        when = "no time" if f.ts is None else f"time {f.ts.name!r}"
        line(
            (f.type, "bold"),
            f"  {many(f.files, f'{f.format} file', f'{f.format} files')}, {many(len(f.columns), 'column', 'columns')}, {when} ({f.rows:,} rows looked at)",
        )
    for what in todo:
        line(("to do     ", "yellow"), what)
    line(f"wrote {events} and {definition}: read them, they say what was guessed")
    line(("next: ", "dim"), f"timelapse ingest {shlex.quote(str(definition))}")


def _comment(text: str) -> str:
    """What data hold, for a comment: one line, without anything that could end it."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _fields(found: Looked) -> list[tuple[str, Seen]]:
    """The fields of a type, with names that are its own each."""
    used: set[str] = set()
    fields: list[tuple[str, Seen]] = []
    for column in found.columns:
        if column is found.ts:
            continue
        name = column.field
        while name in used:
            name += "_"
        used.add(name)
        fields.append((name, column))
    return fields


def events_text(found: Sequence[Looked]) -> str:
    """The text of events.py."""
    lines = [
        '"""Event classes. The event time is not a field: every event has it as `ts`."""',
        "",
        "import timelapse as tl",
        "",
    ]
    for one in found:
        lines += ["", f"class {one.type}(tl.Event):"]
        fields = _fields(one)
        for name, column in fields:
            said = [
                *(
                    [f"for example {json.dumps(column.example, ensure_ascii=False)}"]
                    if column.example
                    else []
                ),
                *column.notes,
            ]
            if column.type == "float":
                said.append("money? then Annotated[Decimal, tl.scale(2)]: docs/semantics.md#decimals")
            remark = f"  # {_comment('; '.join(said))}" if said else ""
            lines.append(f"    {name}: {column.type}{' | None' if column.missing else ''}{remark}")
        if not fields:
            lines.append("    pass")
        lines.append("")
    return "\n".join(lines)


def definition_text(found: Sequence[Looked], folder: Path, log: str) -> str:
    """The text of log.toml: paths relative to its folder where the data are below it."""
    lines = [
        "# What the log is made of: docs/ingest.md has all keys. Guesses are marked.",
        'events = "events.py"',
        f"log = {_text(log)}",
        "",
    ]
    for one in found:
        lines += list(_source(one, folder))
    return "\n".join(lines)


def _source(one: Looked, folder: Path) -> Iterator[str]:
    yield "[[source]]"
    yield f'type = "{one.type}"'
    places = [_text(_relative(place, folder)) for place in one.data]
    files = places[0] if len(places) == 1 else f"[{', '.join(places)}]"
    yield f"files = {files}  # {many(one.files, 'file', 'files')}; {one.rows:,} rows looked at"
    if len(places) > 1:
        yield "# a glob in their place also takes files that come later"
    if one.guessed:
        yield f'format = "{one.format}"  # guessed from the first lines'
    if one.format == "text" and one.shape is not None:
        yield f"regex = {_text(one.shape.regex)}  # guessed: {one.shape.what}"
        if one.shape.null:
            yield f"null = {_text(one.shape.null)}  # guessed"
    elif one.format == "text":
        yield '# regex = "^(?P<ts>\\\\S+) (?P<name>\\\\w+) (?P<rest>.*)"  # to do: its named groups are the columns. The first lines:'
        yield from (f"#     {_comment(line[:200])}" for line in one.lines)
    if one.format == "csv":
        if one.sep != ",":
            yield f"sep = {_text(one.sep)}  # guessed"
        if one.broken:
            yield "multiline = true"
        if not one.header:
            yield "header = false  # guessed: the first line looks like values"
            yield f"columns = [{', '.join(_text(c.name) for c in one.columns)}]"
    for note in one.notes:
        yield f"# {_comment(note)}"
    if one.ts is None:
        yield '# ts = "..."  # to do: ' + (
            "a group of regex" if one.format == "text" else "no column looks like a time"
        )
    else:
        others = [c.name for c in one.columns if c.time and c is not one.ts]
        yield f"ts = {_text(one.ts.name)}  # guessed{_comment(f'; also times: {chr(44).join(others)}') if others else ''}"
        if one.ts.unit is not None:
            yield f'unit = "{one.ts.unit}"  # guessed from the size of the numbers'
        if one.ts.time_format is not None:
            yield f"time_format = {_text(one.ts.time_format)}  # guessed"
        if one.year is not None:
            yield f"year = {one.year}  # assumed, since times have none: the last in which they are not later than the file's last change"
        for note in one.ts.notes:
            yield f"# {_comment(note)}"
    if naive := [c.name for c in one.columns if c.time and c.naive]:
        yield f'tz = "UTC"  # assumed, since times have no zone: say which one they are in, such as "Europe/Berlin"{_comment(f" ({chr(44).join(naive)})")}'
    for old, new in one.renamed:
        yield f"# {_comment(f'{old.name} and {new.name} are never in the same file. One column, renamed? fields = ')}{{ {old.field} = [{_text(old.name)}, {_text(new.name)}] }}"
    fields = [(name, column.name) for name, column in _fields(one) if name != column.name]
    if fields:
        yield f"fields = {{ {', '.join(f'{name} = {_text(column)}' for name, column in fields)} }}"
    if len(lists := {c.name.partition("[]")[0] for c in one.columns if "[]" in c.name}) > 1:
        yield f"# to do: one list can be taken apart, and there are {len(lists)}"
    own = {"id", f"{one.type}id".lower(), f"{one.type}_id".lower()}
    keys = [name for name, column in _fields(one) if column.field.lower() in own]
    if keys:
        yield f'# unique = ["{keys[0]}"]  # rows that are sent twice count once'
    yield ""


def _relative(data: str, folder: Path) -> str:
    if "://" in data:
        return data
    path = Path(data).expanduser().absolute()
    try:
        return str(path.relative_to(folder.absolute()))
    except ValueError:
        return str(path)


def _text(text: str) -> str:
    """A text of TOML: JSON's escapes are among its own."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
