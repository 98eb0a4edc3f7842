"""`timelapse diff`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import timelapse as tl
from timelapse.cli.main import run as run_cli

RULES = """
import timelapse as tl

class E(tl.Event):
    n: int
    who: str

class Hit(tl.Record, key="n"):
    n: int
    who: str

class Rules(tl.Program):
    limit: int = 2
    seen: tl.Counter[str]

    @tl.on(E)
    def go(self, e):
        self.seen[e.who] += 1
        if self.seen[e.who] > self.limit:
            self.emit(Hit(n=e.n, who=e.who))
"""


class E(tl.Event):
    n: int
    who: str


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rules_to_compare.py").write_text(RULES)
    names = ["a", "b", "[red]\x1b[31m"]
    events = [E(n=i, who=names[i % 3], ts=i * 40_000_000_000) for i in range(30)]
    tl.Log.from_events(tmp_path / "log", events)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_settings(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts, entities, the first difference, exit code 1; nothing of the log is markup or control."""
    arguments = [
        "diff",
        "rules_to_compare.py:Rules",
        "rules_to_compare.py:Rules",
        "log",
        "--local",
        "--by",
        "who",
    ]
    assert run_cli([*arguments, "--set-b", "limit=4"]) == 1
    out = capsys.readouterr().out
    assert "limit=2" in out
    assert "limit=4" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["Hit", "24", "18", "6", "0", "0"] in rows
    assert ["by", "who", "3", "3", "0", "0"] in rows
    assert "seq 6 Hit gone: n=6, who='a'" in out
    assert "[red]" in out
    assert "\x1b[31m" not in out
    assert run_cli(arguments) == 0
    assert "the same" in capsys.readouterr().out


def test_two_settings_of_one_program_named_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["diff", "rules_to_compare.py:Rules", "log", "--local"]
    assert run_cli([*arguments, "--set-b", "limit=4"]) == 1
    out = capsys.readouterr().out
    assert "A rules_to_compare.py:Rules   limit=2" in out
    assert "B rules_to_compare.py:Rules   limit=4" in out
    assert run_cli(arguments) == 2
    assert "--set-b NAME=VALUE" in capsys.readouterr().err


def test_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document with counts, days, examples."""
    assert (
        run_cli(
            [
                "diff",
                "rules_to_compare.py",
                "rules_to_compare.py",
                "log",
                "--local",
                "--set-a",
                "limit=9",
                "--json",
                "--by",
                "who",
            ]
        )
        == 1
    )
    found = json.loads(capsys.readouterr().out)
    hit = found["records"]["Hit"]
    assert (hit["a"], hit["b"], hit["new"], hit["identity"]) == (3, 24, 21, ["n"])
    top = [{"value": who, "gone": 0, "new": 7} for who in ("[red]\x1b[31m", "a", "b")]
    assert hit["by"]["who"] == {"a": 3, "b": 3, "freed": 0, "hit": 0, "top": top}
    assert found["first"]["seq"] == 6
    assert len(hit["examples"]) == 5
    assert sum(day["new"] for day in hit["by_day"]) == 21


def test_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finished runs by name, and a program against a run."""
    for limit in ("2", "3"):
        assert run_cli(["replay", "rules_to_compare.py", "log", "--local", "--set", f"limit={limit}"]) == 0
    assert run_cli(["diff", "@1", "@2"]) == 1
    assert run_cli(["diff", "@1", "@1"]) == 0
    assert run_cli(["diff", "@1", "rules_to_compare.py", "log", "--local"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["rules_to_compare.py", "rules_to_compare.py"], "TL800"), (["@7", "@8"], "TL807"),
     (["rules_to_compare.py", "rules_to_compare.py", "log", "--by", "x"], "TL816"),
     (["rules_to_compare.py", "rules_to_compare.py", "log", "--key", "Hit:x"], "TL816"),
     (["rules_to_compare.py:Rules@nowhere", "rules_to_compare.py", "log"], "TL817"),
     (["rules_to_compare.py", "no_log"], "TL800"),
     (["rules_to_compare.py", "rules_to_compare.py", "log", "--labels", "Miss:labels.csv"], "TL818")],
)  # fmt: skip
def test_mistakes(place: Path, arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its code, and exit code 2."""
    Path("labels.csv").write_text("n,label\n1,yes\n")
    assert run_cli(["diff", *arguments, "--local"]) == 2
    assert capsys.readouterr().err.lstrip().splitlines()[-1].strip() == f"timelapse help {code}"


def test_a_mistake_in_a_setting_names_its_option(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = "rules_to_compare.py:Rules"
    twice = ["--set-b", "limit=3", "--set-b", "limit=4"]
    assert run_cli(["diff", rules, rules, "log", "--local", *twice]) == 2
    assert "--set-b limit is given twice" in capsys.readouterr().err


def test_labels_that_judge_nothing_say_so(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table, and one of other outputs."""
    told = []
    for rows in ("", "1000,yes\n1001,no\n", "20,yes\n"):
        Path("labels.csv").write_text(f"n,label\n{rows}")
        arguments = ["rules_to_compare.py", "log", "--set-b", "limit=5", "--labels", "labels.csv", "--local"]
        assert run_cli(["diff", *arguments]) == 1
        told.append("nothing was judged" in capsys.readouterr().out)
    assert told == [True, True, False]


def test_labels(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Precision and recall, by day and segment; hostile labels stay text; conditions decide the exit code."""
    rows = [f"{n},{'true' if n % 2 else 'false'},{'[bold]' if n % 3 else chr(27)}" for n in range(30)]
    (place / "known.csv").write_text("key,label,land\n" + "\n".join(rows) + "\n")
    for limit in ("2", "4"):
        assert run_cli(["replay", "rules_to_compare.py", "log", "--local", "--set", f"limit={limit}"]) == 0
    capsys.readouterr()
    arguments = ["diff", "@1", "@2", "--labels", "known.csv", "--segment", "land", "--by", "who"]
    assert run_cli([*arguments, "--items", "E.n"]) == 1
    out = capsys.readouterr().out
    assert "Hit precision 50.0% -> 50.0%   recall 80.0% -> 60.0%" in out
    assert "[bold]" in out
    assert "\x1b" not in out
    assert "who hit without anything right: 0 -> 0" in out
    assert run_cli([*arguments, "--fail-if", "precision < .4", "--fail-if", "new > 0"]) == 0
    capsys.readouterr()
    assert run_cli([*arguments, "--fail-if", "recall < recall_a", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["fails"] == ["recall < recall_a"]
    assert found["labels"]["b"]["recall"] == 0.6
    assert found["labels"]["by_day"][0]["day"] == "1970-01-03"
    assert run_cli([*arguments, "--labels-until", "then"]) == 2
    assert run_cli(["diff", "@1", "@2", "--segment", "land"]) == 2
    assert (
        run_cli(["diff", "@1", "@2", "--labels", "Hit:known.csv", "--weight", "n", "--fail-if", "bad"]) == 2
    )
    assert (
        run_cli(
            ["diff", "@1", "@2", "--labels", "Hit:known.csv", "--weight", "n", "--labels-until", "1970-01-01"]
        )
        == 1
    )


def test_a_report_of_the_comparison(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two versions that leave no runs behind can be reported all the same; redacted too."""
    arguments = ["diff", "rules_to_compare.py:Rules", "rules_to_compare.py:Rules", "log", "--local"]
    settings = ["--set-b", "limit=4", "--report", "found.html"]
    assert run_cli([*arguments, *settings]) == 1
    assert "found.html" in capsys.readouterr().out
    html = (place / "found.html").read_text(encoding="utf-8")
    assert "rules_to_compare.py:Rules" in html
    assert "[red]" in html
    assert re.search(r"go:\d+", html)  # the condition that differs
    assert run_cli([*arguments, *settings, "--redact", "who"]) == 1
    redacted = (place / "found.html").read_text(encoding="utf-8")
    assert "[red]" not in redacted
    assert "(redacted)" in redacted
    capsys.readouterr()
    assert run_cli([*arguments, "--redact", "who"]) == 2
    assert "--report" in capsys.readouterr().err


def test_enforced(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program, or a finished run, beside itself enforced; the warning is there; mistakes have codes."""
    program = "rules_to_compare.py:Rules"
    assert run_cli(["diff", program, "log", "--enforce", "event", "--local", "--set-a", "limit=4"]) == 1
    out = capsys.readouterr().out
    assert "B is A enforced (event): 18 events blocked" in out
    assert "warning: the same events under other rules" in out
    assert "report: the same command with --report diff.html" in out
    assert run_cli(["replay", program, "log", "--local"]) == 0
    capsys.readouterr()
    # Each of three has an event every 33.3 hours: the third one bans, that is two more are dropped, and so on.
    assert run_cli(["diff", "@1", "--enforce", "who", "--for", "67h", "--json", "--local"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["enforced"]["blocked"] == 15
    assert found["records"]["Hit"]["gone"] == 15
    assert "behave differently" in found["enforced"]["warning"]
    assert run_cli(["diff", "@1", "--enforce", "who", "--for", "67h", "--local"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"B dropped it: \S+ is banned until \d{4}-\d\d-\d\d \d\d:", out)
    assert re.search(r"^B @1, flagged who banned for 67h   Rules_enforced", out, re.MULTILINE)
    for arguments, code in (
        (["@1", "--enforce", "who"], "TL821"), (["@1", "--enforce", "who", "--for", "4y"], "TL821"),
        (["@1", "log", "--enforce", "event"], "TL800"), ([program, "--enforce", "event"], "TL800"),
        (["@1", "--for", "4d"], "TL800"), (["@1"], "TL800"),
    ):  # fmt: skip
        assert run_cli(["diff", *arguments, "--local"]) == 2
        assert capsys.readouterr().err.lstrip().splitlines()[-1].strip() == f"timelapse help {code}"
