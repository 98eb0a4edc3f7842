"""The README's program runs and prints what the README says; its links and commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from timelapse.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_program_prints_what_the_readme_says(tmp_path: Path) -> None:
    """As a script of its own, without Spark."""
    (tmp_path / "first.py").write_text(block("python"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    assert done.stdout == block("text")


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
