"""`timelapse init` on text logs of common shapes, on files without rows, and on cells with line breaks: what it writes is ingested as it is."""

from __future__ import annotations

import os
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.run_cli import cli
from timelapse.ingest.line_shapes import columns_of, shape_of
from timelapse.log import Log

COMBINED = [
    r'203.0.113.7 - ann [10/Oct/2026:13:55:36 +0200] "GET /a?q=\"x\" HTTP/1.1" 200 2326 "https://x.org/" "Mozilla/5.0 (X; \"y\")"',
    '203.0.113.8 - - [10/Oct/2026:13:55:37 +0200] "-" 408 - "-" "-"',
]
COMMON = [
    '::1 - - [10/Oct/2026:13:55:36 -0700] "GET / HTTP/1.0" 200 2326',
    '::1 - - [10/Oct/2026:13:55:39 -0700] "GET /x HTTP/1.0" 404 9',
]
SYSLOG = [
    "Dec 10 06:55:46 host sshd[24200]: Invalid user web master: from 203.0.113.1",
    "Dec  1 06:55:48 host kernel: [ 12.5] usb",
    "<34>Dec 11 06:55:48 host su[7]: x",
]
RSYSLOG = [
    "2026-10-01T02:03:04.123456+02:00 host cron[5]: (root) CMD (x)",
    "2026-10-01T02:03:05+02:00 host cron[6]: y",
]
LEVELS = [
    "2026-10-01 12:00:00,123 INFO a.b: said: x",
    "[2026-10-01 12:00:01] [ERROR] z",
    "2026-10-01T12:00:02Z WARNING: careful",
]
MESSAGES = [
    "2026-10-01T12:00:00Z what it says",
    "2026-10-01T12:00:01Z: ",
    "2026-10-01T12:00:02Z more - of it",
]
NGINX = ['2026/10/01 12:00:00 [error] 12#0: *5 open() "/x" failed', "2026/10/01 12:00:01 [warn] 12#0: y"]
PAIRS = [
    'ts=2026-10-01T12:00:00Z level=info msg="it said \\"x\\" = y" user=7 dur.ms=1.5',
    "user=8 ts=2026-10-01T12:00:01Z level=warn msg=short",
    'level="" ts=2026-10-01T12:00:02Z user=9 msg="a b"',
]
AFTER_TIME = ["2026-10-01T12:00:00Z user=7 cents=5", "2026-10-01T12:00:01Z cents=6 user=8"]

CASES: dict[str, tuple[list[str], dict[str, list[Any]]]] = {
    "combined": (COMBINED, {"address": ["203.0.113.7", "203.0.113.8"], "user": ["ann", None], "status": [200, 408], "size": [2326, None], "agent": [r"Mozilla/5.0 (X; \"y\")", None]}),
    "common": (COMMON, {"status": [200, 404], "request": ["GET / HTTP/1.0", "GET /x HTTP/1.0"]}),
    "syslog": (SYSLOG, {"program": ["kernel", "sshd", "su"], "pid": [None, 24200, 7], "message": ["[ 12.5] usb", "Invalid user web master: from 203.0.113.1", "x"]}),
    "rsyslog": (RSYSLOG, {"program": ["cron", "cron"], "pid": [5, 6]}),
    "levels": (LEVELS, {"level": ["INFO", "ERROR", "WARNING"], "message": ["a.b: said: x", "z", "careful"]}),
    "messages": (MESSAGES, {"message": ["what it says", None, "more - of it"]}),
    "nginx": (NGINX, {"level": ["error", "warn"], "pid": [12, 12]}),
    "pairs": (PAIRS, {"level": ["info", "warn", None], "user": [7, 8, 9], "msg": [r'it said \"x\" = y', "short", "a b"], "dur_ms": [1.5, None, None]}),
    "after": (AFTER_TIME, {"user": [7, 8], "cents": [5, 6]}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_init_guesses_of_a_text_log_is_ingested(name: str, tmp_path: Path) -> None:
    lines, expected = CASES[name]
    (tmp_path / "app.log").write_text("\n".join(lines) + "\n")
    done = cli("init", tmp_path / "app.log", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "to do" not in done.out
    text = (tmp_path / "out" / "log.toml").read_text()
    (source,) = tomllib.loads(text)["source"]
    assert (source["format"], source["ts"]) == ("text", "ts")
    assert "# guessed: " in text
    made = cli("ingest", tmp_path / "out" / "log.toml")
    assert made.code == 0, made.err
    log = Log.open(tmp_path / "out" / "log")
    assert log.count == len(lines)
    events = list(log.events())
    for field, values in expected.items():
        assert [getattr(e, field) for e in events] == values, field
    assert len({e.ts for e in events}) == len(lines)


@pytest.mark.parametrize(("month", "year"), [(12, 2024), (6, 2023)])
def test_times_without_a_year_are_not_later_than_the_file(month: int, year: int, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("\n".join(SYSLOG) + "\n")
    changed = datetime(2024, month, 20, tzinfo=UTC).timestamp()
    os.utime(tmp_path / "app.log", (changed, changed))
    assert cli("init", tmp_path / "app.log", "--out", tmp_path / "out").code == 0
    text = (tmp_path / "out" / "log.toml").read_text()
    assert tomllib.loads(text)["source"][0]["year"] == year
    assert "assumed, since times have none" in text


def test_pairs_within_quotes_are_of_the_text(tmp_path: Path) -> None:
    """`dur=5` in a message was the line's `dur`, without a word."""
    lines = [
        f'ts=2026-10-01T12:00:{n:02}Z level=info msg="took dur=5 \\" level=x ok"  dur={n}' for n in range(40)
    ]
    shape = shape_of(lines)
    assert shape is not None
    columns, others = columns_of(shape, lines)
    assert (columns["dur"], others) == ([str(n) for n in range(40)], 0)
    assert set(columns["level"]) == {"info"}
    assert not columns_of(shape, ["x " * 20_000 + '"' * 3 + " " * 20_000])[0]["dur"]


def test_local_times_may_be_ahead_of_utc(tmp_path: Path) -> None:
    """A file that is being written in Japan was of the year before."""
    (tmp_path / "app.log").write_text(
        "\n".join(f"Jun 10 09:00:{n:02} host su[7]: x" for n in range(30)) + "\n"
    )
    changed = datetime(2024, 6, 10, 0, 1, tzinfo=UTC).timestamp()
    os.utime(tmp_path / "app.log", (changed, changed))
    assert cli("init", tmp_path / "app.log", "--out", tmp_path / "out").code == 0
    assert tomllib.loads((tmp_path / "out" / "log.toml").read_text())["source"][0]["year"] == 2024


def test_a_log_over_new_year_is_told_of(tmp_path: Path) -> None:
    lines = [f"Dec 31 23:59:{n:02} host su[7]: x" for n in range(30)] + ["Jan  1 00:00:00 host su[7]: y"]
    (tmp_path / "app.log").write_text("\n".join(lines) + "\n")
    assert cli("init", tmp_path / "app.log", "--out", tmp_path / "out").code == 0
    assert "go from December to January" in (tmp_path / "out" / "log.toml").read_text()


def test_lines_of_another_shape_are_told_of(tmp_path: Path) -> None:
    lines = [*(f"2026-10-01T12:00:{n:02}Z ERROR failed" for n in range(50)), "  at x.y(Z.java:7)"]
    (tmp_path / "app.log").write_text("\n".join(lines) + "\n")
    assert cli("init", tmp_path / "app.log", "--out", tmp_path / "out").code == 0
    assert (
        "1 of 51 lines looked at have another shape: they are skipped"
        in (tmp_path / "out" / "log.toml").read_text()
    )
    assert cli("ingest", tmp_path / "out" / "log.toml").code == 0
    (told,) = Log.open(tmp_path / "out" / "log").manifest.ingests[0].sources
    assert (told.rows, told.skipped) == (50, 1)


def test_text_of_no_common_shape_is_shown(tmp_path: Path) -> None:
    (tmp_path / "odd.log").write_text("*** one\n~~~ two three\n!\n")
    done = cli("init", tmp_path / "odd.log", "--out", tmp_path / "out")
    assert done.code == 0
    assert "plain text of no common shape" in done.out
    text = (tmp_path / "out" / "log.toml").read_text()
    assert '# regex = "^(?P<ts>\\\\S+)' in text
    for line in ("*** one", "~~~ two three", "!"):
        assert f"#     {line}\n" in text
    tomllib.loads(text)
    assert shape_of([]) is None


def test_tables_of_text_stay_tables(tmp_path: Path) -> None:
    """A time in the first column makes no text log of CSV, whatever the suffix."""
    (tmp_path / "a.dat").write_text("".join(f"2026-10-01T12:00:0{n}Z,u{n},{n}\n" for n in range(9)))
    assert cli("init", tmp_path / "a.dat", "--out", tmp_path / "out").code == 0
    (source,) = tomllib.loads((tmp_path / "out" / "log.toml").read_text())["source"]
    assert (source["format"], source["columns"]) == ("csv", ["c1", "c2", "c3"])


def test_real_sshd_lines_are_read(data_dir: Path) -> None:
    lines = (data_dir / "OpenSSH_2k.log").read_text().splitlines()
    shape = shape_of(lines)
    assert shape is not None
    columns, others = columns_of(shape, lines)
    assert (shape.what, others, len(columns["message"])) == ("syslog", 0, len(lines))


def test_a_file_with_a_header_only_and_one_with_line_breaks_say_so(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("id,when,at\n")
    done = cli("init", tmp_path / "empty.csv", "--out", tmp_path / "out")
    assert done.code == 0
    text = (tmp_path / "out" / "log.toml").read_text()
    assert "the files looked at have no rows: types are not known" in text
    assert 'ts = "at"' in text
    assert "no column looks like a time" not in text
    (tmp_path / "broken.csv").write_text(
        "id,note,at\n" + "".join(f'{n},"a\nb, c\n",2026-10-01T12:00:0{n}Z\n' for n in range(9))
    )
    done = cli("init", tmp_path / "broken.csv", "--out", tmp_path / "two")
    assert done.code == 0
    assert "no column that looks like a time" not in done.out
    text = (tmp_path / "two" / "log.toml").read_text()
    assert "9 of the records looked at have cells with line breaks" in text
    assert 'ts = "at"' in text
    assert "multiline = true" in text
    assert "id: int" in (tmp_path / "two" / "events.py").read_text()
    assert cli("ingest", tmp_path / "two" / "log.toml").code == 0
    assert [getattr(e, "note", None) for e in Log.open(tmp_path / "two" / "log").events()] == [
        "a\nb, c\n"
    ] * 9
