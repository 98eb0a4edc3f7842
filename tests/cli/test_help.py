"""Help that helps: examples that would run, names that were meant, the list of runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli, with_loaded
from timelapse.cli.main import COMMANDS, parser
from timelapse.errors import RunError, meant

RULES = """
import timelapse as tl


class Message(tl.Event):
    sender: int


class Seen(tl.Record):
    sender: int


class Antispam(tl.Program):
    ratio: float = 2.0
    count: tl.Counter[int]

    @tl.on(Message)
    def go(self, m):
        self.count[m.sender] += 1
        self.emit(Seen(sender=m.sender))
"""


class Message(tl.Event):
    sender: int


def commands() -> dict[str, Any]:
    """All commands with their options, as the parser has them."""
    found: dict[str, Any] = parser().commands
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rules.py").write_text(RULES)
    tl.Log.from_events("log", [Message(sender=i, ts=i) for i in range(3)])
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_command_lines_that_parse(name: str) -> None:
    """Every option and argument in an example exists, and has a value of its type."""
    command = commands()[name]
    text = (command.epilog or "").replace("\\[", "[")
    lines = re.findall(r"^\s*(timelapse .*)$", text, re.MULTILINE)
    assert lines
    for line in lines:
        _, *args = shlex.split(line, comments=True)
        words = len(name.split()) if args[: len(name.split())] == name.split() else 1
        own = " ".join(args[:words])
        commands()[own].make_context(own, args[words:])  # raises for what does not parse


@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "demo"])
def test_every_command_can_answer_in_json(name: str) -> None:
    """All but the demo, which is for eyes."""
    command = commands()[name]
    options = [option for p in command.params for option in p.opts]
    assert "--json" in options, options


def test_help_takes_commands_too() -> None:
    assert "timelapse verify @last" in cli("help", "verify").out


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("replay", "rules.py:Antispm", "log"), "did you mean Antispam?"),
        (("replay", "rule.py:Antispam", "log"), "did you mean rules.py?"),
        (("replay", "rules.py:Antispam", "log", "--set", "rato=1"), "did you mean ratio?"),
        (("replya", "rules.py:Antispam", "log"), "Did you mean 'replay'"),
        (("replay", "rules.py:Antispam", "log", "--slcies", "2"), "--slices"),
        (("verify", "@lst"), "did you mean @last?"),
        (("features", "rules.py:Antispam", "log", "--record", "Sen"), "did you mean Seen?"),
    ],
)
def test_typos(folder: Path, args: tuple[str, ...], hint: str) -> None:
    assert cli("replay", "rules.py:Antispam", "log", "--json").code == 0
    shown = cli(*args)
    assert shown.code == 2
    assert hint in shown.err


def test_no_suggestion_where_nothing_is_close() -> None:
    assert meant("zebra", ["ratio", "share"]) == ""
    assert meant("RATIO", ["ratio", "share"]) == "did you mean ratio? "


def test_a_states_name(folder: Path) -> None:
    run = tl.Run.open(cli("replay", "rules.py:Antispam", "log", "--json").json["path"])
    with pytest.raises(RunError, match="did you mean count"):
        run.state("cuont")


def test_runs_are_listed_and_named(folder: Path) -> None:
    assert "no runs" in cli("runs").out
    assert cli("runs", "--json").json == []
    cli("replay", "rules.py:Antispam", "log")
    cli("replay", "rules.py:Antispam", "log", "--set", "ratio=3.0")
    Path("runs/Broken-7").mkdir()
    Path("runs/Broken-7/run.json").write_text("{}")
    shown = cli("runs")
    assert re.search(r"^@1 .*Antispam-1 .*3 events.*3 Seen.*ratio=2.0", shown.out, re.MULTILINE)
    assert re.search(r"^@2 .*ratio=3.0", shown.out, re.MULTILINE)
    assert "Broken-7" in shown.out
    told = cli("runs", "--json").json
    assert [(r["name"], r["params"]["ratio"], r["outputs"]) for r in told] == [
        ("@1", "2.0", {"Seen": 3}), ("@2", "3.0", {"Seen": 3}),
    ]  # fmt: skip
    assert cli("verify", "Antispam-2", "--json").json["run"] == "runs/Antispam-2"
    assert cli("verify", "@2").code == 0


def test_a_log_of_a_runs_outputs(folder: Path) -> None:
    Path("second.py").write_text(
        "import timelapse as tl\n\n\nclass Sight(tl.Event):\n    sender: int\n    cause: int\n\n\n"
        "class Count(tl.Program):\n    n: tl.Counter[int]\n\n"
        "    @tl.on(Sight)\n    def go(self, s):\n        self.n[s.sender] += s.cause\n"
    )
    cli("replay", "rules.py:Antispam", "log")
    made = cli("derive", "second.py", "sights", "@last", "Sight=Seen", "--origin", "cause", "--json")
    assert made.code == 0, made.err
    assert (made.json["events"], made.json["types"]) == (3, {"Sight": 3})
    done = cli("replay", "second.py:Count", "sights", "--verify", "100%", "--json")
    assert done.code == 0, done.err
    assert tl.Run.open(done.json["path"]).state("n")["value"].to_pylist() == [1, 2]  # a counter at 0 is gone
    for wrong in ("Sight", "Sigt=Seen", "Sight=Seem"):
        shown = cli("derive", "second.py", "other", "@1", wrong)
        assert shown.code == 2
        assert wrong == "Sight" or "did you mean" in shown.err
    assert (
        "3 events"
        in cli("derive", "second.py", "sights", "@1", "Sight=Seen", "--origin", "cause", "--overwrite").out
    )


def test_the_list_of_commands_is_that_of_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """It is made without their options, which take longer than all else."""
    shown = []
    for titles in (True, False):
        parser(titles=titles)(["--help"], prog_name="timelapse", standalone_mode=False)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert all(f" {name} " in shown[0] for name in COMMANDS)


def test_help_loads_little() -> None:
    """Nothing that shows Markdown, checks values or reads tables."""
    heavy = "markdown_it", "pydantic", "pyarrow", "numpy", "rich.traceback"
    left, loaded = with_loaded(heavy, "--help")
    assert (left.code, loaded) == (0, []), left.err
    assert "why-not" in left.out


def test_options_name_every_strategy() -> None:
    """What `--strategy` and `--max-strategy` take is what there is."""
    from timelapse.plan.strategy import Strategy

    for command, option in (("replay", "strategy"), ("explain", "max_strategy")):
        (one,) = (p for p in commands()[command].params if p.name == option)
        missing = [s for s in Strategy if s.replace(" ", "-") not in one.help]
        assert missing == [], command
