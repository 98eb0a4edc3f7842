"""Programs put together from parts: base classes, mixins, helpers in files of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.patience import LONG
from timelapse.errors import DefinitionError
from timelapse.program.load import load_program
from timelapse.program.program import spec_of
from timelapse.testing import check_replay, random_log

EVENTS = """
import timelapse as tl


class Message(tl.Event):
    sender: int
    text: str


class Block(tl.Event):
    user: int


class Hit(tl.Record):
    user: int
    why: str
    score: int
"""

PARTS = '''
import timelapse as tl

from shared_events import Block, Hit, Message


def words(text):
    return text.count("a") + 1


class Counting(tl.Program):
    """Counts what everybody sends."""

    sent: tl.Counter[int]

    @tl.on(Message)
    def count(self, m):
        self.sent[m.sender] += words(m.text)

    def score(self, user):
        return self.sent[user]


class Blocking(tl.Program):
    blocked: tl.Set[int]

    @tl.on(Block)
    def block(self, b):
        self.blocked.add(b.user)

    def guard(self, user):
        if user in self.blocked:
            self.reject("blocked")
'''

RULES = '''
import timelapse as tl

from shared_events import Hit, Message
from shared_parts import Blocking, Counting


class Rules(Blocking, Counting):
    """Both parts, and rules of its own."""

    limit: int = 3

    @tl.on(Message)
    def flag(self, m):
        self.guard(m.sender)
        if self.score(m.sender) > self.limit:
            self.emit(Hit(user=m.sender, why="often", score=self.score(m.sender)))


class Stricter(Rules):
    limit: int = 1
    warned: tl.Set[int]

    def score(self, user):
        return 2 * super().score(user)

    @tl.on(Message)
    def count(self, m):
        if m.text:
            super().count(m)

    @tl.on(Message)
    def warn(self, m):
        if m.sender not in self.warned:
            self.warned.add(m.sender)
            self.emit(Hit(user=m.sender, why="first", score=0))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("parts")
    for name, text in (("shared_events", EVENTS), ("shared_parts", PARTS), ("rules", RULES)):
        (found / f"{name}.py").write_text(text)
    return found


@pytest.fixture(scope="module")
def strict(folder: Path) -> Any:
    return load_program(f"{folder / 'rules.py'}:Stricter")


def test_states_parameters_and_handlers_come_from_all_parts(strict: Any) -> None:
    spec = spec_of(strict)
    assert set(spec.states) == {"sent", "blocked", "warned"}
    # Base classes first, in the order in which Python looks names up, the most basic one first.
    assert [h.name for h in spec.handlers] == ["count", "block", "flag", "warn"]
    assert spec.params["limit"].default == 1


@pytest.mark.parametrize("seed", range(3))
def test_replay_is_exact(strict: Any, seed: int) -> None:
    events = random_log(list(spec_of(strict).events), seed=seed, values={"text": ["", "a", "aa"]})
    run = check_replay(strict, events, slices=(1, 3))
    assert run.counts["Hit"] > 0


def test_it_does_what_is_written_out_by_hand(strict: Any) -> None:
    kinds = {cls.__name__: cls for cls in spec_of(strict).events}
    events = random_log(list(kinds.values()), seed=5, count=80, values={"text": ["", "a", "aa"]})
    sent: dict[int, int] = {}
    blocked: set[int] = set()
    warned: set[int] = set()
    hits, refused = [], []
    for i, e in enumerate(events):
        if type(e) is kinds["Block"]:
            blocked.add(e.user)  # type: ignore[attr-defined]
            continue
        who, text = e.sender, e.text  # type: ignore[attr-defined]
        if who in blocked:
            refused.append(i)
            continue
        if text:
            sent[who] = sent.get(who, 0) + text.count("a") + 1
        if 2 * sent.get(who, 0) > 1:
            hits.append((i, who, "often", 2 * sent[who]))
        if who not in warned:
            warned.add(who)
            hits.append((i, who, "first", 0))
    run = tl.replay(strict, events, slices=4, spark=False)
    assert (
        list(zip(*(run.table("Hit")[c].to_pylist() for c in ("seq", "user", "why", "score")), strict=True))
        == hits
    )
    assert run.rejected["seq"].to_pylist() == refused


def test_two_parts_cannot_declare_one_state_differently() -> None:
    class Ping(tl.Event):
        k: int

    class A(tl.Program):
        n: tl.Counter[int]

        @tl.on(Ping)
        def a(self, e: Ping) -> None:
            self.n[e.k] += 1

    with pytest.raises(DefinitionError, match="two states 'n' that differ") as caught:

        class B(A):
            n: tl.Set[int]  # type: ignore[assignment]

    assert caught.value.code == "TL105"


def test_from_the_command_line_and_from_another_folder(folder: Path, tmp_path: Path) -> None:
    """The files beside the program are found wherever the command is run."""
    script = (
        "import sys, timelapse as tl\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "from shared_events import Message\n"
        "tl.Log.from_events('log', [Message(sender=1, text='a', ts=i) for i in range(5)], "
        "[Message, __import__('shared_events').Block])\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=LONG)
    done = subprocess.run(
        [sys.executable, "-m", "timelapse.cli.main", "replay", f"{folder / 'rules.py'}:Rules", "log", "--json"],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=LONG, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"Hit": 4' in done.stdout


def test_a_part_may_change_a_states_default() -> None:
    class Ping(tl.Event):
        k: int

    class Told(tl.Record):
        v: int

    class A(tl.Program):
        x: tl.Value[int, int] = tl.state(default=1)

        @tl.on(Ping)
        def go(self, e: Ping) -> None:
            self.emit(Told(v=self.x[e.k]))
            self.x[e.k] = self.x[e.k] * 10

    class B(A):
        x: tl.Value[int, int] = tl.state(default=2)

    run = tl.replay(B, [Ping(k=1, ts=1), Ping(k=1, ts=2)], spark=False)
    assert run.table(Told)["v"].to_pylist() == [2, 20]
