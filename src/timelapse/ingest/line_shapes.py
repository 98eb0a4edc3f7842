"""Lines of text that nobody has described: the regular expression that reads them, where they have a common shape."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

ENOUGH = 0.8
"""The share of lines that a shape has to read."""
_KEYS = 40
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_PAIR = re.compile(r'(?:^|\s)([A-Za-z_][\w.-]*)=(?:"((?:[^"\\]|\\.)*)"|(\S*))')
_TIME_KEYS = ("ts", "time", "timestamp", "at", "datetime", "date", "t")


@dataclass(frozen=True)
class Shape:
    """How lines are read: a pattern whose groups are columns, what it is called, which group is the time, and how that is read."""

    regex: str
    what: str
    ts: str = "ts"
    time_format: str | None = None
    has_year: bool = True
    null: str = ""


_COMMON = r'^(?P<address>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?P<size>\d+|-)'
_SHAPES = (
    Shape(
        _COMMON + r' "(?P<referrer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"',
        "a web server's combined format", time_format="%d/%b/%Y:%H:%M:%S %z", null="-",
    ),
    Shape(_COMMON, "a web server's common format", time_format="%d/%b/%Y:%H:%M:%S %z", null="-"),
    Shape(
        r"^(?:<\d+>)?(?P<ts>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>\S+) (?P<program>[^\s:\[]+)(?:\[(?P<pid>\d+)\])?: ?(?P<message>.*)",
        "syslog", time_format="%b %d %H:%M:%S", has_year=False,
    ),
    Shape(
        rf"^(?:<\d+>)?(?P<ts>{_ISO}) (?P<host>\S+) (?P<program>[^\s:\[]+)\[(?P<pid>\d+)\]: ?(?P<message>.*)",
        "syslog with ISO times",
    ),
    Shape(
        r"^(?P<ts>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) \[(?P<level>\w+)\] (?P<pid>\d+)#\d+: (?P<message>.*)",
        "nginx's error log", time_format="%Y/%m/%d %H:%M:%S",
    ),
    Shape(rf"^\[?(?P<ts>{_ISO})\]?\s+\[?(?P<level>{_LEVEL})\b\]?:?\s*(?P<message>.*)", "a time, a level and a message"),
    Shape(rf"^\[?(?P<ts>{_ISO})\]?[\s:,-]+(?P<message>.*)", "a time and a message"),
)  # fmt: skip
"""The most particular first: of those that read as many lines the first is taken."""


def shape_of(lines: Sequence[str]) -> Shape | None:
    """The shape that reads most of the lines; None where none reads enough of them."""
    shapes = [one for one in (_of_pairs(lines),) if one is not None] + list(_SHAPES)
    read = [sum(re.search(one.regex, line) is not None for line in lines) for one in shapes]
    best = max(read, default=0)
    return shapes[read.index(best)] if lines and best >= ENOUGH * len(lines) else None


def _of_pairs(lines: Sequence[str]) -> Shape | None:
    """`key=value` pairs in any order, some of which may be missing, with the time among them or in front."""
    counts: Counter[str] = Counter()
    several = 0
    for line in lines:
        rest = re.sub(rf"^{_ISO}", "", line)
        pairs = list(_PAIR.finditer(rest))
        counts.update(own := {pair[1] for pair in pairs})
        # most of the line: pairs within a message make no such line
        several += len(own) > 1 and 2 * sum(len(pair[0]) for pair in pairs) > len(rest)
    if not lines or several < ENOUGH * len(lines):
        return None
    keys = [key for key, n in counts.most_common(_KEYS) if n >= 0.01 * len(lines)]
    names = {key: _group(key) for key in keys}
    if len(set(names.values())) < len(names):
        return None
    front = rf"^(?P<ts>{_ISO})\s" if "ts" not in names.values() else ""
    if front and sum(re.search(front, line) is not None for line in lines) >= ENOUGH * len(lines):
        return Shape(front + "".join(_ahead(k, names[k]) for k in keys), "a time and key=value pairs")
    time = next((k for k in _TIME_KEYS if k in names), None)
    if time is None:
        return None
    others = "".join(_ahead(k, names[k]) for k in keys if k != time)
    return Shape(rf"^(?={_pair(time, names[time])})" + others, "key=value pairs", ts=names[time])


def _group(key: str) -> str:
    return re.sub(r"\W", "_", key)


_WORD = r'(?:[^\s"]|"(?:[^"\\]|\\.)*")*\s'
"""What stands in front of a pair: a text in quotes is gone over whole, as what is in it may look like a pair."""


def _pair(key: str, name: str) -> str:
    return rf'(?:{_WORD})*?{re.escape(key)}="?(?P<{name}>(?<=")(?:[^"\\]|\\.)*|(?<!")\S*)'


def _ahead(key: str, name: str) -> str:
    """A pair that may stand anywhere, or nowhere."""
    return f"(?=(?:{_pair(key, name)})?)"


def columns_of(shape: Shape, lines: Sequence[str]) -> tuple[dict[str, list[Any]], int]:
    """The columns of the lines that a shape reads, and how many it does not read."""
    found = [m for line in lines if (m := re.search(shape.regex, line)) is not None]
    columns: dict[str, list[Any]] = {
        name: [None if m[name] == shape.null else m[name] for m in found]
        for name in re.compile(shape.regex).groupindex
    }
    return columns, len(lines) - len(found)


def year_of(shape: Shape, lines: Sequence[str], modified: int | None) -> int:
    """The year of times without one: the last in which none is later than the file was changed (nanoseconds since 1970; None: now)."""
    when = datetime.now(UTC) if modified is None else datetime.fromtimestamp(modified / 1e9, UTC)
    latest = when + timedelta(hours=14)  # local time may be ahead of UTC so much
    for text in columns_of(shape, lines)[0][shape.ts]:
        with suppress(ValueError):  # 29 February is of another year
            if (
                datetime.strptime(f"{when.year} {text}", f"%Y {shape.time_format}").replace(tzinfo=UTC)
                > latest
            ):
                return when.year - 1
    return when.year


def over_new_year(shape: Shape, lines: Sequence[str]) -> bool:
    """Whether times without a year go from December to January."""
    months = [text[:3] for text in columns_of(shape, lines)[0][shape.ts]]
    return ("Dec", "Jan") in itertools.pairwise(months)
