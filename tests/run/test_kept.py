"""Runs keep their program's files: they can be looked into after these have been edited, moved or removed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import timelapse as tl
from timelapse.errors import RunError
from timelapse.program import kept
from timelapse.program.load import load_program
from timelapse.run import Run

RULES = """
import timelapse as tl
import kept_pack.deep
from kept_limits import BASE


class Login(tl.Event):
    user: int


class Many(tl.Record, key="user"):
    user: int
    count: int


class Rules(tl.Program):
    limit: int = 2

    logins: tl.Counter[int]

    @tl.on(Login)
    def count(self, e):
        self.logins[e.user] += 1
        if self.logins[e.user] > self.limit + BASE + kept_pack.deep.more():
            self.emit(Many(user=e.user, count=self.logins[e.user]))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "kept_pack").mkdir()
    (tmp_path / "kept_pack" / "__init__.py").write_text("")
    (tmp_path / "kept_pack" / "deep.py").write_text(
        "from . import deeper\ndef more():\n    return deeper.MORE\n"
    )
    (tmp_path / "kept_pack" / "deeper.py").write_text("MORE = 1\n")
    (tmp_path / "kept_pack" / "unused.py").write_text("")
    (tmp_path / "kept_limits.py").write_text("BASE = 1\n")
    (tmp_path / "kept_rules.py").write_text(RULES)
    return tmp_path


def _replayed(place: Path) -> Run:
    program = load_program(f"{place / 'kept_rules.py'}:Rules")
    login = program.count.__globals__["Login"]  # type: ignore[attr-defined]
    log = tl.Log.from_events(place / "log", [login(user=n % 3, ts=n) for n in range(40)])
    return tl.replay(program(limit=3), log, place / "run", spark=False, slices=3)


def _files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*.py")}


def test_what_ran_is_there_after_an_edit(place: Path) -> None:
    """The program's file, a helper's constant and a package's module have other contents, then none."""
    digest = _replayed(place).digest
    assert _files(place / "run" / "program") == {
        "kept_rules.py", "kept_limits.py", "kept_pack/__init__.py", "kept_pack/deep.py", "kept_pack/deeper.py",
    }  # fmt: skip
    (place / "kept_rules.py").write_text(RULES.replace("> self.limit", ">= self.limit"))
    (place / "kept_limits.py").write_text("BASE = 7\n")
    (place / "kept_pack" / "deeper.py").write_text("MORE = 5\n")
    load_again(place)
    edited = load_program(f"{place / 'kept_rules.py'}:Rules")
    opened = Run.open(place / "run")
    assert type(opened.need_program()) is not edited
    assert opened.verify().ok
    assert opened.digest == digest
    conditions = [c for h in opened.why("Many:0").trace.handlers for c in h.conditions]
    assert [c.outcome for c in conditions] == [True]
    for gone in ("kept_rules.py", "kept_limits.py"):
        (place / gone).unlink()
    shutil.rmtree(place / "kept_pack")
    load_again(place)
    assert Run.open(place / "run").verify().ok


def test_what_was_kept_is_checked(place: Path) -> None:
    """Kept files that somebody changed are not taken for what ran; nor are today's."""
    _replayed(place)
    (place / "run" / "program" / "kept_limits.py").write_text("BASE = 0\n")
    assert Run.open(place / "run").verify().ok  # the program itself is as it was
    (place / "kept_rules.py").write_text(RULES.replace("> self.limit", ">= self.limit"))
    load_again(place)
    with pytest.raises(RunError) as caught:
        Run.open(place / "run").verify()
    assert caught.value.code == "TL605"
    (place / "kept_rules.py").unlink()
    load_again(place)
    with pytest.raises(RunError) as caught:
        Run.open(place / "run").verify()
    assert caught.value.code == "TL604"


def load_again(place: Path) -> None:
    """As in another process: nothing of the folder is loaded."""
    import sys

    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(place)):
            del sys.modules[name]


def test_too_much_is_not_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_FILES", 3)
    _replayed(place)
    assert not (place / "run" / "program").exists()
