"""What errors say on the command line: options, not the keywords of Python; times, not microseconds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.cli.console import as_options
from timelapse.cli.main import COMMANDS, parser

SRC = Path(tl.__file__).parent
OWN = (
    "kinds",
    "model",
    "program",
    "analysis",
    "plan/strategy.py",
    "serial.py",
    "testing",
    "bench",
    "kernels",
    "cli/catalogue.py",
    "compare/enforcing.py",
)
"""What these say is about the user's own Python: `get(k, at=...)` has no option."""
KEYWORD = re.compile(r"(?<![\w.\"'{])([a-z][a-z_]*)=")
IN_CALLS = re.compile(r"\w\([^()]*\)")


def _options() -> set[str]:
    """The names of all options, as Python would write them."""
    found: set[str] = set()
    for name in COMMANDS:
        for command in parser(name).commands.values():
            for option in command.params:
                found |= {o[2:].replace("-", "_") for o in option.opts if o.startswith("--")}
    return found | {"fields", "header", "quarantine", "max_quarantined", "without"}


def _error_texts() -> Iterator[tuple[str, str]]:
    """Every text that a call in the package is given as an error or a hint, and where it stands."""
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        if name.startswith(OWN):
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            called = ast.unparse(call.func).rpartition(".")[2]
            if not (
                called.endswith(
                    ("Error", "Mismatch", "_unfit", "_bad_option", "_refuse", "Program", "Quarantined")
                )
            ):
                continue
            for given in (*call.args, *(k.value for k in call.keywords)):
                parts = {id(v) for j in ast.walk(given) if isinstance(j, ast.JoinedStr) for v in j.values}
                for text in ast.walk(given):
                    if id(text) in parts:
                        continue
                    if isinstance(text, ast.JoinedStr):
                        yield (
                            f"{name}:{text.lineno}",
                            "".join(
                                str(v.value) if isinstance(v, ast.Constant) else "0" for v in text.values
                            ),
                        )
                    elif isinstance(text, ast.Constant) and isinstance(text.value, str) and " " in text.value:
                        yield f"{name}:{text.lineno}", text.value


def test_no_error_names_an_option_as_a_keyword() -> None:
    texts, options = list(_error_texts()), _options()
    assert len(texts) > 300
    assert {"sep", "max_bad", "time_format", "slices"} <= options
    bare = [
        (where, text)
        for where, text in texts
        if set(KEYWORD.findall(IN_CALLS.sub("()", as_options(text)))) & options and "class " not in text
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("both", "shown"),
    [
        ("max_bad= (--max-bad) allows more", "--max-bad allows more"),
        ("overwrite=True (--overwrite) replaces it; append (--append) adds", "--overwrite replaces it; --append adds"),
        ("slices=1 (--slices 1) or higher", "--slices 1 or higher"),
        ("start_from (--start-from) of a log", "--start-from of a log"),
        ("make it anew (--overwrite) with all", "make it anew (--overwrite) with all"),
        ("where it is not (--without FILE with 6 in it)", "where it is not (--without FILE with 6 in it)"),
        ("Message(sender=3, ts=4)", "Message(sender=3, ts=4)"),
        ("the log (see --help)", "the log (see --help)"),
    ],
)  # fmt: skip
def test_of_both_names_the_option_is_shown(both: str, shown: str) -> None:
    assert as_options(both) == shown


EVENTS = """
import timelapse as tl


class Paid(tl.Event):
    user: int
    cents: int
"""


def test_ingest_speaks_of_its_options(tmp_path: Path) -> None:
    (tmp_path / "events.py").write_text(EVENTS)
    (tmp_path / "paid.csv").write_text("ts,user,cents\n1,2,3\n5,2,x\n")
    common = ("ingest", tmp_path / "events.py", tmp_path / "log", f"Paid={tmp_path / 'paid.csv'}")
    for options, wanted, banned in (
        (("--sep", '"'), "--sep '\"' cannot", "sep="),
        (("--no-header",), "need --columns", "columns="),
        (("--quote", "ab"), "--quote none", "quote="),
        (("--tz", "Mars/Base"), "--tz is 'Mars/Base'", "tz="),
        (("--year", "2016"), "--time-format", "year="),
        (("--map", "Paid.cents=amount"), "TL413", "fields="),
        (("--ts", "when"), "map another with --ts", "ts="),
        (("--min-ts", "2026-10-02", "--max-ts", "2026-10-01"), "--min-ts 2026-10-02 00:00:00", "min_ts="),
        ((), "--max-bad allows", "max_bad="),
    ):
        found = cli(*common, *options)
        assert found.code == 2
        assert wanted in found.err, found.err
        assert banned not in found.err, found.err
