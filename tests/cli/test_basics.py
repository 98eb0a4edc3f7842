"""The command line itself: help, versions, wrong usage, errors, hostile text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import timelapse
from tests.cli.run_cli import cli, command
from timelapse.cli.catalogue import CODES, markdown
from timelapse.cli.console import clean, one_line
from timelapse.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def test_help_lists_the_commands_that_exist() -> None:
    """Nothing is listed that later versions bring."""
    shown = cli("--help")
    assert shown.code == 0
    listed = re.findall(r"^│ (\w[\w-]*(?: \w+)?)  ", shown.out, re.MULTILINE)
    assert tuple(listed) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_examples(name: str) -> None:
    """Every command's help has at least one line that can be copied."""
    shown = cli(name, "--help")
    assert shown.code == 0
    assert "Examples" in shown.out
    assert f"timelapse {name}" in shown.out.split("Examples")[1]


def test_commands_of_two_words() -> None:
    for words in (["state", "partition", "--help"], ["help", "state", "partition"]):
        shown = cli(*words)
        assert shown.code == 0
        assert "Usage: timelapse state partition" in shown.out
        assert "state-" not in shown.out
    assert "Usage: timelapse state [" in cli("help", "state").out


def test_help_loads_neither_spark_nor_pandas() -> None:
    """The command line imports only what the command needs."""
    code = (
        "import sys, timelapse.cli.main as m; m.run(['--help']); "
        "bad = {'pyspark', 'pandas', 'numba', 'py4j'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_package_is_the_command() -> None:
    """`python -m timelapse`."""
    done = subprocess.run(
        [sys.executable, "-m", "timelapse", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"timelapse {timelapse.__version__}\n"


def test_version() -> None:
    """--version prints the package's version."""

    assert cli("--version").out.strip() == f"timelapse {timelapse.__version__}"


@pytest.mark.parametrize(
    "args",
    [("nonsense",), ("synth",), ("synth", "--evnts", "3"), ("synth", "--events", "many", "--out", "x"), ("log",),
     ("replay", "x.py"), ("verify",), ("log", "a", "b")],
)  # fmt: skip
def test_wrong_usage_is_an_error_with_a_hint(args: tuple[str, ...]) -> None:
    """Exit 2, a code, and the command whose help to read; on stderr, without a traceback."""
    shown = cli(*args)
    assert shown.code == 2
    assert shown.out == ""
    assert shown.err.startswith("TL800 ")
    assert "--help" in shown.err
    assert "Traceback" not in shown.err


def test_errors_as_json(tmp_path: Path) -> None:
    """With --json an error is one JSON line on stderr, with code, place, message and hint."""
    shown = cli("log", tmp_path / "nothing", "--json")
    assert shown.code == 2
    assert shown.out == ""
    error = json.loads(shown.err)["error"]
    assert error["code"] == "TL403"
    assert str(tmp_path) in error["place"]
    assert error["message"]
    assert error["hint"]


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    """--debug may stand anywhere and adds Timelapse's own traceback."""
    assert "Traceback" in cli("log", "--debug", tmp_path / "nothing").err
    assert "Traceback" not in cli("log", tmp_path / "nothing").err


def test_an_operating_system_error_is_named(tmp_path: Path) -> None:
    """A path that cannot be used is TL809 or better, and no traceback."""
    (tmp_path / "file").write_text("x")
    shown = cli("synth", "--events", 10, "--out", tmp_path / "file" / "log")
    assert shown.code == 2
    assert "Traceback" not in shown.err
    assert re.match(r"TL(809|4\d\d) ", shown.err)


@pytest.mark.parametrize(
    "nasty", ["[red]x[/red]", "[/]", "\x1b[31mred\x1b[0m", "a\x00b", "\u202eevil", ":smile:", "é\n[b]"]
)
def test_hostile_paths_are_shown_verbatim(tmp_path: Path, nasty: str) -> None:
    """Text from users is neither markup nor terminal control."""
    shown = cli("log", f"{tmp_path}/{nasty}")
    assert shown.code == 2
    assert not CONTROL.search(shown.err.replace("\n", ""))
    if "\n" not in nasty and not CONTROL.search(nasty) and "\u202e" not in nasty:
        assert nasty in shown.err


def test_clean_keeps_text_and_escapes_controls() -> None:
    """Letters, tabs and newlines stay; controls, direction overrides and lone surrogates become escapes."""
    assert clean("a\tb\nç 🙂") == "a\tb\nç 🙂"
    assert clean("\x1b[0m\x9b\u202e\ud800") == "\\x1b[0m\\x9b\\u202e\\ud800"
    assert one_line("a\nb" + "x" * 300, 10) == "a\\nbxxxxx…"


def test_a_closed_pipe_is_no_error() -> None:
    """`timelapse help | head -1` ends quietly."""
    found = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(command('help'))} | head -1"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0
    assert found.stdout.startswith("TL000")
    assert found.stderr == ""


def test_the_end_of_a_file_that_is_read_is_not_the_user_s(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser takes an EOFError for the end of what a person types: it was told as "cancelled"."""

    def torn() -> None:
        raise EOFError("marshal data too short")

    app = typer.Typer()
    app.command()(torn)
    monkeypatch.setattr("timelapse.cli.main.parser", lambda *_, **__: app)
    with pytest.raises(SystemExit, match="2"):
        main([])
    told = capsys.readouterr().err
    assert "TL000" in told
    assert "marshal data too short" in told
    assert "cancelled" not in told


def used_codes() -> set[str]:
    """The codes that the package's source raises or reports."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        pattern = r"code=\"(TL\d{3})\"" if path.name == "catalogue.py" else r"[\"'](TL\d{3})[\"']"
        found |= set(re.findall(pattern, path.read_text(encoding="utf-8")))
    return found


def test_every_code_is_explained_and_every_explained_code_is_used() -> None:
    """`timelapse help CODE` knows exactly the codes of the source."""
    assert sorted(used_codes() - set(CODES)) == []
    assert sorted(set(CODES) - used_codes()) == []
    assert list(CODES) == sorted(CODES)


def test_the_document_is_the_catalogue() -> None:
    """docs/errors.md is what the catalogue prints."""
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == markdown()


def test_help_for_a_code() -> None:
    """However the code is written; an unknown one is TL814."""
    assert cli("help", "tl114").out.startswith("TL114")
    assert cli("help", "114").out == cli("help", "TL114").out
    assert cli("help", "TL114", "--json").json["code"] == "TL114"
    assert cli("help", "TL9999").err.startswith("TL814")


def test_doctor_reports_without_spark(tmp_path: Path) -> None:
    """The checks as text and as JSON."""
    assert "Python" in cli("doctor", tmp_path, "--no-spark").out
    found = cli("doctor", tmp_path, "--no-spark", "--json")
    assert found.json["ok"] is True
    assert {"Python", "Java", "cores", "memory"} <= {c["name"] for c in found.json["checks"]}


def test_the_demo_runs_the_examples() -> None:
    """The programs that `demo` copies are the ones in examples/."""
    for name in ("antispam.py", "collegemsg.py"):
        packaged = ROOT / "src" / "timelapse" / "cli" / "demo_programs" / name
        assert packaged.read_bytes() == (ROOT / "examples" / name).read_bytes()
