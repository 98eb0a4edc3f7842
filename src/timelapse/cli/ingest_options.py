"""What the options of `ingest`, and of `live`, say of sources: per type, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timelapse.ingest.definition import Definition
    from timelapse.log import Source
    from timelapse.model.events import Event


def paths_of(sources: list[str], classes: dict[str, type[Event]], events: str) -> dict[str, list[str]]:
    """The files of each type, in the order of first mention."""
    from timelapse.errors import Place, UsageError, meant

    found: dict[str, list[str]] = {}
    for source in sources:
        name, equals, path = source.partition("=")
        if not equals or not path:
            raise UsageError(f"{source!r} is not TYPE=PATH", hint="Message=raw/message", code="TL808")
        if name not in classes:
            raise UsageError(
                f"there is no event type {name}", place=Place(events), code="TL808",
                hint=f"{meant(name, classes)}event types there: {', '.join(classes) or 'none'}",
            )  # fmt: skip
        found.setdefault(name, []).append(path)
    return found


def options_of(given: dict[str, list[str] | None], names: list[str]) -> dict[str, dict[str, Any]]:
    """Each type's options: `TYPE=value` for that type, a plain value for the others."""
    from timelapse.errors import UsageError

    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for option, values in given.items():
        general: str | None = None
        own: dict[str, str] = {}
        for value in values or []:
            head, equals, rest = value.partition("=")
            key = head if equals and head in found else None
            flag = "--" + option.replace("_", "-")
            if (key is None and general is not None) or (key is not None and key in own):
                raise UsageError(
                    f"{flag} is given twice{f' for {key}' if key else ''}", code="TL808",
                    hint=f"once for all, or once per type: {flag} {names[0]}=...",
                )  # fmt: skip
            if key is None:
                general = value
            else:
                own[key] = rest
        for name in names:
            chosen = own.get(name, general)
            if chosen is not None:
                found[name][option] = _value(option, chosen)
    return found


def _value(option: str, text: str) -> Any:
    from timelapse.errors import UsageError

    if option == "year":
        if not text.isdecimal():
            raise UsageError(f"--year {text!r} is not a year", hint="--year 2016", code="TL808")
        return int(text)
    if option in ("min_ts", "max_ts"):
        from timelapse.cli.options import parse_time

        return parse_time(f"--{option.replace('_', '-')}", text)
    if option == "sep":
        return {"\\t": "\t", "tab": "\t"}.get(text, text)
    if option == "quote":
        return None if text.lower() in ("none", "") else text
    if option == "max_bad_day":
        return share_of(text, "--max-bad-day")
    if option == "columns":  # of those without a name nothing is read
        return [name.strip() for name in text.split(",")]
    if option == "unique":
        from timelapse.cli.options import names_of

        return names_of("--unique", [text], "id")
    return text


def mapping_of(
    given: list[str], paths: dict[str, list[str]], classes: dict[str, type[Event]]
) -> dict[str, dict[str, str]]:
    """For each type {field: column}. `field=column` without a type is for all types that have the field."""
    from timelapse.errors import UsageError, meant

    found: dict[str, dict[str, str]] = {name: {} for name in paths}
    for entry in given:
        left, equals, column = entry.partition("=")
        name, dot, field = left.rpartition(".")
        if not equals or not column or not field:
            raise UsageError(
                f"--map {entry!r} is not TYPE.FIELD=COLUMN", hint="--map Message.sender=src", code="TL808"
            )
        if dot and name not in paths:
            raise UsageError(
                f"--map {entry!r}: {name} is not one of the types that are ingested",
                hint=f"{meant(name, paths)}types: {', '.join(paths)}", code="TL808",
            )  # fmt: skip
        wanted = [
            kind for kind in ([name] if dot else paths) if field in {f.name for f in classes[kind].__fields__}
        ]
        if not wanted:
            fields = "; ".join(f"{k}: {', '.join(f.name for f in classes[k].__fields__)}" for k in paths)
            close = meant(field, [f.name for k in ([name] if dot else paths) for f in classes[k].__fields__])
            raise UsageError(
                f"--map {entry!r}: there is no field {field}", hint=f"{close}fields: {fields}", code="TL808"
            )
        for kind in wanted:
            found[kind][field] = column
    return found


def window_of(since: str | None, before: str | None) -> dict[str, int]:
    """`--from` and `--to` as options of sources. Raises UsageError."""
    from timelapse.cli.options import parse_span
    from timelapse.errors import UsageError

    times = zip(("since", "before"), parse_span(since, before), strict=True)
    found = {name: time for name, time in times if time is not None}
    if len(found) == 2 and found["since"] >= found["before"]:
        raise UsageError(
            "--from is not before --to: no time lies between them", hint="exchange them", code="TL808"
        )
    return found


def chosen(definition: Definition, span: dict[str, int], types: str | None) -> Definition:
    """A definition with some of its types, and rows of some time only. Raises UsageError."""
    from dataclasses import replace

    from timelapse.cli.options import type_names
    from timelapse.errors import UsageError, meant
    from timelapse.ids import INT64_MIN

    sources = definition.sources
    if types is not None:
        names = type_names([types])
        for name in names:
            if name not in sources:
                raise UsageError(
                    f"--types: {name!r} is not a type of this definition", code="TL808",
                    hint=f"{meant(name, sources)}types: {', '.join(sources)}",
                )  # fmt: skip
        sources = {name: own for name, own in sources.items() if name in names}
    if span:

        def within(one: Source) -> Source:
            """The times that both the source and the options let in."""
            low, high = one.window
            since = max((t for t in (low, span.get("since")) if t is not None), default=None)
            before = min((t for t in (high, span.get("before")) if t is not None), default=None)
            if since is not None and before is not None and since >= before:
                since, before = None, INT64_MIN  # no row, but its files count as taken
            return replace(one, since=since, before=before)

        sources = {name: [within(one) for one in own] for name, own in sources.items()}
    return replace(definition, sources=sources)


def source_of(files: list[str], options: dict[str, Any], fields: dict[str, str]) -> Source:
    from timelapse.log import Source

    data: Any = files if len(files) > 1 else files[0]
    if len(files) == 1 and files[0].partition(":")[0] in ("delta", "iceberg", "table"):
        data = _table(files[0])
    return Source(data, fields=fields, **options)


def _table(text: str) -> Any:
    """`delta:PATH@VERSION`, `iceberg:NAME@SNAPSHOT`, `table:NAME`."""
    from timelapse.errors import UsageError
    from timelapse.log import Delta, Iceberg, SparkTable

    kind, _, name = text.partition(":")
    if kind == "table":
        return SparkTable(name)
    path, at, version = name.rpartition("@")
    if at and not version.isdecimal():
        raise UsageError(f"{text!r}: {version!r} is no version", hint=f"{kind}:NAME@12", code="TL808")
    path, number = (path, int(version)) if at else (name, None)
    return Delta(path, number) if kind == "delta" else Iceberg(path, snapshot=number)


def layouts(
    given: dict[str, list[str] | None],
    mapping: list[str],
    names: list[str],
    classes: dict[str, type[Event]],
    *,
    header: bool,
) -> dict[str, Source]:
    """How the sources of each type are read, without their data. Raises UsageError, IngestError."""
    options = options_of(given, names)
    fields = mapping_of(mapping, {name: [] for name in names}, classes)
    for own in options.values():
        if (not header or {"sep", "columns"} & set(own)) and "regex" not in own:
            own.setdefault("format", "csv")
    return {name: source_of([""], {**options[name], "header": header}, fields[name]) for name in names}


def share_of(text: str, option: str = "--max-bad") -> float:
    """`0.001` or `0.1%`."""
    from timelapse.errors import UsageError

    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"{option} {text!r} is not a share", hint="0.001, 0.1% or 0", code="TL808")
    return value
