"""replay, verify and explain from the command line; demo; cancelling."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.cli.run_cli import cli, command
from tests.patience import LONG
from tests.run.unsealed import unsealed
from timelapse.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
ANTISPAM = f"{ROOT}/examples/antispam.py:Antispam"

SLOW = '''
import timelapse as tl


class Friendship(tl.Event):
    a: int
    b: int


class Busy(tl.Program):
    """Takes its time."""

    n: tl.Counter[int]

    @tl.on(Friendship)
    def work(self, e):
        for i in range(50_000):
            i * i
        self.n[e.a] += 1
'''

TRANSFERS = '''
import timelapse as tl


class Friendship(tl.Event):
    a: int
    b: int


class Chained(tl.Program):
    """A state that depends on itself."""

    height: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Friendship)
    def climb(self, e):
        self.height[e.a] = self.height[e.b] * 2 % 1000 + 1
'''

RAISING = '''
import timelapse as tl


class Friendship(tl.Event):
    a: int
    b: int


class Raising(tl.Program):
    """Fails at some event. [red]not markup[/red]"""

    seen: tl.Counter[int]

    @tl.on(Friendship)
    def fail(self, e):
        self.seen[e.a] += 1
        if self.seen[e.a] > 3:
            raise ValueError(f"[red]too many[/red] \\x1b[31m for {e.a}")
'''


@pytest.fixture(scope="module")
def social(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "social"
    assert cli("synth", "--events", 6000, "--users", 200, "--seed", 7, "--out", path).code == 0
    return path


def test_replays_are_equal_whatever_the_slicing(tmp_path: Path, social: Path) -> None:
    """The acceptance of the issue in small: two slicings, one digest, equal to the serial meaning."""
    one = cli("replay", ANTISPAM, social, "--slices", 4, "--out", tmp_path / "a", "--json")
    two = cli(
        "replay", ANTISPAM, social, "--slices", 7, "--set", "ratio=2.0", "--out", tmp_path / "b", "--json"
    )
    assert one.code == two.code == 0, one.err + two.err
    assert one.json["digest"] == two.json["digest"]
    assert (one.json["slices"], two.json["slices"]) == (4, 7)
    checked = cli("verify", tmp_path / "a", "--events", 6000, "--json")
    assert checked.code == 0
    assert checked.json["ok"] is True
    assert checked.json["digest"] == one.json["digest"]
    other = cli("replay", ANTISPAM, social, "--set", "ratio=0.5", "--out", tmp_path / "c", "--json")
    assert other.json["digest"] != one.json["digest"]
    assert other.json["params"]["ratio"] == 0.5


def test_runs_are_named_and_found(tmp_path: Path, social: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --out a run goes to runs/<Program>-<n>; @n and @last find it."""
    monkeypatch.chdir(tmp_path)
    first = cli("replay", ANTISPAM, social, "--verify", "5%")
    assert first.code == 0, first.err
    assert "run @1" in first.out
    assert "equal to the serial reference: the first 300 of" in first.out
    assert cli("replay", ANTISPAM, social, "--strategy", "chain").code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["Antispam-1", "Antispam-2"]
    last = cli("verify", "@last")
    assert last.code == 0
    assert "verified" in last.out
    digests = {re.search(r"digest (\w+)", shown)[1] for shown in (first.out, last.out)}  # type: ignore[index]
    assert len(digests) == 1
    assert cli("verify", "@7").err.startswith("TL807")


@pytest.mark.parametrize("asked", ["100%", "6000", "99,999"])
def test_all_of_a_log_is_verified_where_all_is_asked_for(asked: str, tmp_path: Path, social: Path) -> None:
    """So many events as the log has, or more: compared, and told, as a part is."""
    done = cli("replay", ANTISPAM, social, "--out", tmp_path / "run", "--verify", asked)
    assert done.code == 0, done.err
    assert "verified equal to the serial reference: all 6,000 events" in done.out
    assert "it went on to" not in done.out
    again = cli(
        "replay", ANTISPAM, social, "--out", tmp_path / "run", "--overwrite", "--verify", asked, "--json"
    )
    assert again.json["verification"]["events"] == 6000


@pytest.mark.spark
def test_a_session_that_is_there_is_used(spark: SparkSession, tmp_path: Path, social: Path) -> None:
    """--master takes the running session as it is; the result is the same."""
    here = cli("replay", ANTISPAM, social, "--local", "--slices", 3, "--out", tmp_path / "a", "--json")
    there = cli(
        "replay", ANTISPAM, social, "--master", "local[2]", "--slices", 3, "--out", tmp_path / "b", "--json"
    )
    assert there.code == 0, there.err
    assert "Spark" in there.json["executor"]
    assert "Spark" not in here.json["executor"]
    assert here.json["digest"] == there.json["digest"]
    assert cli("replay", ANTISPAM, social, "--local", "--master", "local[2]").code == 2


def test_verify_says_where_a_run_differs(tmp_path: Path, social: Path) -> None:
    """A row changed in the stored run: exit 1 and the first difference with both values."""
    run = tmp_path / "a"
    assert cli("replay", ANTISPAM, social, "--slices", 2, "--out", run).code == 0
    part = sorted((run / "outputs" / "Spam").glob("*.parquet"))[0]
    table = pq.read_table(part)
    column = table.column("sender").to_pylist()
    column[3] += 1
    index = table.schema.get_field_index("sender")
    pq.write_table(table.set_column(index, table.schema.field(index), [column]), part)
    shown = cli("verify", run)
    assert shown.code == 2
    assert "TL931" in shown.err
    unsealed(run)  # as a replay with a bug would have left it
    shown = cli("verify", run)
    assert shown.code == 1
    assert "DIFFERS" in shown.out
    assert "row 3" in shown.out
    assert str(column[3]) in shown.out
    as_json = cli("verify", run, "--json")
    assert as_json.code == 1
    assert as_json.json["ok"] is False
    assert cli("verify", run, "--events", 1).code == 0


@pytest.mark.parametrize(
    ("reference", "code"),
    [("nowhere.py:X", "TL803"), (f"{ROOT}/examples/antispam.py:Nope", "TL804"), ("no_such_module:X", "TL803"),
     (f"{ROOT}/examples:X", "TL803"), (":", "TL803"), (f"{ROOT}/examples/antispam.py:Spam", "TL804")],
)  # fmt: skip
def test_wrong_program_references(social: Path, reference: str, code: str) -> None:
    """What is missing is named, with what there is."""
    shown = cli("replay", reference, social)
    assert shown.code == 2
    assert shown.err.startswith(code), shown.err


def test_a_file_that_fails_shows_its_own_traceback(tmp_path: Path, social: Path) -> None:
    """Import errors carry the user's frames and no others; syntax errors the line."""
    (tmp_path / "broken_a.py").write_text("import timelapse as tl\n\n1 / 0\n")
    shown = cli("replay", f"{tmp_path}/broken_a.py:X", social)
    assert shown.err.startswith("TL805")
    assert "broken_a.py:3" in shown.err
    assert "ZeroDivisionError" in shown.err
    assert "importlib" not in shown.err
    (tmp_path / "broken_c.py").write_text("import timelapse as tl\n\nx = tl.Nowhere\n")
    shown = cli("replay", f"{tmp_path}/broken_c.py:X", social)
    assert shown.err.startswith(f"TL805 {tmp_path}/broken_c.py:3"), (
        shown.err
    )  # not the library's line that raises
    (tmp_path / "broken_b.py").write_text("x = (\n")
    assert "broken_b.py:1" in cli("replay", f"{tmp_path}/broken_b.py:X", social).err
    (tmp_path / "broken_c.py").write_text("import not_installed_anywhere\n")
    assert "not_installed_anywhere.py" in cli("replay", f"{tmp_path}/broken_c.py:X", social).err


def test_siblings_of_a_program_can_be_imported(tmp_path: Path, social: Path) -> None:
    """The file's folder is on the path, as when Python runs the file."""
    text = (ROOT / "examples" / "antispam.py").read_text()
    (tmp_path / "pairs_helper.py").write_text("def pair(a, b):\n    return (a, b) if a < b else (b, a)\n")
    head, tail = text.split("def pair", 1)
    rest = tail.split("\n\n\n", 1)[1]
    (tmp_path / "split-rules.py").write_text(f"{head}from pairs_helper import pair\n\n\n{rest}")
    made = cli(
        "replay", f"{tmp_path}/split-rules.py", social, "--slices", 2, "--out", tmp_path / "run", "--json"
    )
    assert made.code == 0, made.err
    same = cli("replay", ANTISPAM, social, "--slices", 3, "--out", tmp_path / "run2", "--json")
    assert made.json["digest"] == same.json["digest"]


def test_a_handler_that_raises(tmp_path: Path, social: Path) -> None:
    """The event, the handler and the user's traceback, verbatim and harmless; nothing is left."""
    (tmp_path / "raising.py").write_text(RAISING)
    shown = cli("replay", f"{tmp_path}/raising.py:Raising", social, "--slices", 3, "--out", tmp_path / "run")
    assert shown.code == 2
    assert shown.err.splitlines()[-1].strip() == "timelapse help TL502"
    assert "Raising.fail" in shown.err
    assert "[red]too many[/red]" in shown.err
    assert "\x1b" not in shown.err
    assert "raise ValueError" in shown.err
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["raising.py"]


def test_a_program_that_does_not_fit_the_log(tmp_path: Path, social: Path) -> None:
    """TL402 with the differences."""
    shown = cli("replay", f"{ROOT}/examples/sshd.py:BruteForce", social, "--out", tmp_path / "run")
    assert shown.code == 2
    assert shown.err.startswith("TL402")
    assert "Failed" in shown.err


@pytest.mark.parametrize("value", ["ratio=x", "nope=1", "ratio"])
def test_wrong_settings(social: Path, value: str) -> None:
    """TL806."""
    assert cli("replay", ANTISPAM, social, "--set", value).err.startswith("TL806")


def test_no_slices_are_refused(tmp_path: Path, social: Path) -> None:
    for slices in ("0", "-1"):
        result = cli("replay", ANTISPAM, social, "--slices", slices, "--out", tmp_path / "run")
        assert result.code == 2
        assert f"TL810 --slices is {slices}" in result.err
        assert not (tmp_path / "run").exists()


def test_the_next_command_can_be_pasted(tmp_path: Path, social: Path) -> None:
    result = cli("replay", ANTISPAM, social, "--out", tmp_path / "a run")
    found = next(line for line in result.out.splitlines() if line.startswith("next: "))
    assert shlex.split(found)[1:] == ["timelapse", "verify", str(tmp_path / "a run")]


def test_an_occupied_place_stays(tmp_path: Path, social: Path) -> None:
    """A folder with something else in it is never replaced; a run only with --overwrite."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    assert (
        cli("replay", ANTISPAM, social, "--out", tmp_path / "mine", "--overwrite")
        .err.splitlines()[-3]
        .startswith("TL508")
    )
    assert cli("replay", ANTISPAM, social, "--out", tmp_path / "run").code == 0
    assert cli("replay", ANTISPAM, social, "--out", tmp_path / "run").code == 2
    assert cli("replay", ANTISPAM, social, "--out", tmp_path / "run", "--overwrite").code == 0


def test_explain_as_text_json_and_picture(tmp_path: Path, social: Path) -> None:
    """States with strategy and line; an SVG; the log's counts."""
    shown = cli("explain", ANTISPAM, social, "--svg", tmp_path / "plans" / "a.svg")
    assert shown.code == 0, shown.err
    for word in ("friends", "to_others", "scan", "antispam.py:"):
        assert word in shown.out
    assert (tmp_path / "plans" / "a.svg").read_text().lstrip().startswith("<svg")
    body = cli("explain", ANTISPAM, "--set", "ratio=3", "--json").json
    assert {s["state"] for s in body["states"]} == {
        "friends",
        "to_friends",
        "to_others",
        "sent",
        "with_email",
    }


def test_explain_fails_in_ci_when_a_state_would_be_slower(tmp_path: Path) -> None:
    """--max-strategy: exit 1 with state, line and rewrite; exit 0 where everything scans; exit 2 for nonsense."""
    (tmp_path / "chained.py").write_text(TRANSFERS)
    reference = f"{tmp_path}/chained.py:Chained"
    slower = cli("explain", reference, "--max-strategy", "scan")
    assert slower.code == 1
    assert "TL352" in slower.err
    assert "height" in slower.err
    assert cli("explain", reference, "--max-strategy", "chain").code == 0
    assert cli("explain", ANTISPAM, "--max-strategy", "scan").code == 0
    assert cli("explain", ANTISPAM, "--max-strategy", "warp").code == 2


SAYS = "still here"
TALKING = f"""#!/bin/sh
(while echo {SAYS} >&2; do sleep 0.01; done) > /dev/null &
exec {sys.executable} "$@"
"""


@pytest.mark.parametrize("where", ["--local", pytest.param("--master=local[2]", marks=pytest.mark.spark)])
def test_ctrl_c_leaves_nothing(
    tmp_path: Path, social: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in the middle, as a terminal does it: exit 130, a line that says so, no run and no partial one.

    What Spark's workers still say as they end is not shown after that line.
    """
    (tmp_path / "slow.py").write_text(SLOW)
    if where != "--local":
        (tmp_path / "python").write_text(TALKING)
        (tmp_path / "python").chmod(0o755)
        monkeypatch.setenv("PYSPARK_PYTHON", f"{tmp_path}/python")
    out = tmp_path / "out" / "run"
    args = command("replay", f"{tmp_path}/slow.py:Busy", social, "--slices", 2, where, "--out", out)
    process = subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    awaited = {"final"} if where == "--local" else {"final", SAYS}
    while awaited:
        line = process.stderr.readline()
        assert line, awaited
        awaited = {word for word in awaited if word not in line}
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130, err
    assert "cancelled" in err
    assert SAYS not in err.partition("cancelled")[2]
    assert "Traceback" not in err
    assert list((tmp_path / "out").iterdir()) == []


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All five steps, and everything where it says; a changed program is used and kept."""
    monkeypatch.chdir(tmp_path)
    shown = cli("demo", "--events", 20_000, "--local")
    assert shown.code == 0, shown.err
    for word in (
        "1. ",
        "5. ",
        "6. ",
        "ratio=3.0",
        "gone",
        "report.html",
        "verified",
        "Spam:",
        "per day",
        "Try next",
        "runs/demo",
    ):
        assert word in shown.out
    assert {"antispam.py", "raw", "log", "run", "changed", "report.html"} <= {
        p.name for p in (tmp_path / "runs" / "demo").iterdir()
    }
    program = tmp_path / "runs" / "demo" / "antispam.py"
    program.write_text(program.read_text().replace("ratio: float = 2.0", "ratio: float = 3.0"))
    for commands in re.findall(r"^  (timelapse .*?)  ", shown.out, re.MULTILINE):
        assert cli(*commands.split()[1:]).code == 0 or "verify" in commands


@pytest.mark.spark
def test_demo_on_real_messages(
    spark: SparkSession, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--data runs it over CollegeMsg."""
    monkeypatch.chdir(tmp_path)
    shown = cli("demo", "--data", data_dir / "CollegeMsg.txt", "--out", tmp_path / "d")
    assert shown.code == 0, shown.err
    assert "59,835 events" in shown.out
    assert "Stranger: 90" in shown.out
    for word in ("engine spark was asked for", "4 slices", "the same digest", "Spark SQL", "ORDER BY n DESC"):
        assert word in shown.out
    found = Run.open(tmp_path / "d" / "run").certificate["engine"]
    assert found["tasks"] >= 4
    assert cli("demo", "--data", tmp_path / "nothing").err.startswith("TL809")


def test_what_a_handler_prints_is_no_part_of_the_answer(tmp_path: Path, social: Path) -> None:
    """JSON on standard output can be read; what is printed goes to standard error."""
    program = tmp_path / "loud.py"
    program.write_text(
        "import timelapse as tl\n\n\nclass Friendship(tl.Event):\n    a: int\n    b: int\n\n\n"
        "class Loud(tl.Program):\n    @tl.on(Friendship)\n    def go(self, e):\n        print('heard', e.a)\n"
    )
    done = cli("replay", f"{program}:Loud", social, "--out", tmp_path / "run", "--local", "--json")
    assert done.code == 0, done.err
    assert done.json["program"] == "Loud"
    assert "heard" in done.err
    plain = cli("replay", f"{program}:Loud", social, "--out", tmp_path / "again", "--local")
    assert "heard" in plain.out
    assert cli("replay", "--help", "--json").out
