"""The README's program and commands do what the README says; its links and commands exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run_cli import cli
from tests.patience import LONG
from timelapse.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, number: int = 0) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return found[number]


def test_the_first_program_prints_what_the_readme_says(tmp_path: Path) -> None:
    """As a script of its own, without Spark."""
    (tmp_path / "first.py").write_text(block("python"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=LONG
    )
    assert done.stderr == ""
    assert done.stdout == block("text")


def test_from_raw_files_to_a_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands as they stand, in an empty folder; what is shown as an example after them is there."""
    monkeypatch.chdir(tmp_path)
    Path("rules.py").write_text(block("python"), encoding="utf-8")
    subprocess.run([sys.executable, "-c", block("python", 1)], check=True, timeout=LONG)
    section = README.partition("## From raw files to a diff")[2].partition("## ")[0]
    commands = [
        shlex.split(line, comments=True)[1:]
        for line in section.splitlines()
        if line.startswith("    timelapse")
    ]
    first, later = commands[:4], commands[4:]
    assert [c[0] for c in first] == ["ingest", "explain", "replay", "diff"]
    found = [cli(*command) for command in first]
    assert [r.code for r in found] == [0, 0, 0, 1], [r.err for r in found]
    assert "58 outputs" in found[2].out
    assert re.search(r"Guessed +58 +40 +18 +0 +0", found[3].out)
    assert Path("diff.html").stat().st_size > 10_000
    (why,) = (c for c in later if c[0] == "why")
    shown = cli(*why)
    assert shown.code == 0, shown.err
    assert "emit Guessed(user=578" in shown.out


def test_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands as they stand, over files as they are named there; a rule begins as it says."""
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    for n in (1, 2):
        rows = "".join(f"2026-10-0{n} 12:{m:02};u{m % 7};{m}.50\n" for m in range(60))
        Path(f"raw/orders-{n}.csv").write_text("Booked at;User;Amount\n" + rows)
    Path("raw/refunds.jsonl").write_text('{"at": "2026-10-02T13:00:00", "user": "u1"}\n' * 20)
    section = README.partition("## Your own data")[2].partition("## ")[0]
    commands = [
        shlex.split(line, comments=True)[1:]
        for line in section.splitlines()
        if line.startswith("    timelapse")
    ]
    found = [cli(*command) for command in commands]
    assert [r.code for r in found] == [0, 0, 0], [r.err for r in found]
    (begin,) = re.findall("`(from events import .*?)`", section)
    Path("rules.py").write_text(
        f"import timelapse as tl\n{begin}\n\n\nclass Rule(tl.Program):\n    seen: tl.Counter[str]\n\n    @tl.on(Orders)\n"
        "    def count(self, e):\n        self.seen[e.User] += 1\n"
    )
    done = cli("replay", "rules.py:Rule", "log")
    assert done.code == 0, done.err
    assert "140 events" in done.out


def test_links_lead_somewhere() -> None:
    """Every relative link in the documents is a file."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_commands_in_the_documents_exist() -> None:
    """Every `timelapse NAME` that is shown as a command is one."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"(?:^    |`)(?:\.venv/bin/)?timelapse ([a-z-]+)", text, re.MULTILINE):
            assert name in COMMANDS, f"{path.name}: timelapse {name}"


def test_files_named_in_the_documents_exist() -> None:
    """Every file of the source that a document names is there."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:src|examples|tests|docs)/[\w/.]+|[a-z_]+/[\w/]+\.py)`", text):
            places = (ROOT / name, ROOT / "src" / "timelapse" / name, ROOT / "src" / name)
            assert any(place.exists() for place in places), f"{path.name}: {name}"
