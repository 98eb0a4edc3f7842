"""What is asked of a comparison is checked before anything is replayed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import UsageError
from timelapse.log import Log
from timelapse.run import start

RULES = """
import timelapse as tl


class E(tl.Event):
    n: int
    who: str


class Hit(tl.Record, key="n"):
    n: int
    who: str


class Other(tl.Record):
    what: str


class Rules(tl.Program):
    limit: int = 3
    seen: tl.Counter[str]

    @tl.on(E)
    def go(self, e):
        self.seen[e.who] += 1
        if self.seen[e.who] > self.limit:
            put(self, e)


def put(program, e):
    program.emit(Hit(n=e.n, who=e.who))
"""


class E(tl.Event):
    n: int
    who: str


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log, a program whose record only a helper names, and labels."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text(RULES)
    Log.from_events(tmp_path / "log", [E(n=n, who="ab"[n % 2], ts=n) for n in range(20)])
    labels = pa.table({"n": list(range(20)), "label": [n % 3 == 0 for n in range(20)], "land": ["x"] * 20})
    pa.csv.write_csv(labels, tmp_path / "labels.csv")
    pa.csv.write_csv(labels.rename_columns(["m", "label", "land"]), tmp_path / "unnamed.csv")
    return tmp_path


DIFF = ("diff", "rules.py:Rules", "log", "--set-b", "limit=5", "--local")
MISTAKES = [
    (("--by", "hwo"), "TL816", "did you mean who?"), (("--key", "Hitt:n"), "TL816", "did you mean Hit?"),
    (("--key", "Hit:m"), "TL816", "no field 'm'"), (("--fail-if", "Hit.goen > 3"), "TL819", "did you mean Hit.gone?"),
    (("--fail-if", "precision < .5"), "TL819", "no figure 'precision'"),
    (("--fail-if", "precison < .5"), "TL819", "did you mean precision? precision needs --labels; "),
    (("--fail-if", "f1_a < .5"), "TL819", "f1 needs --labels"), (("--fail-if", "good_a < 2"), "TL819", "good needs --by and --labels"),
    (("--labels", "labels.csv", "--segment", "lnad"), "TL816", "--segment lnad"),
    (("--labels", "labels.csv", "--weight", "amount"), "TL816", "--weight amount"),
    (("--labels", "labels.csv", "--items", "E.m"), "TL816", "the log has no E.m"),
    (("--labels", "Hits:labels.csv"), "TL818", "no record type Hits"), (("--labels", "unnamed.csv"), "TL818", "--label-key"),
    (("--labels", "labels.csv", "--label", "lable"), "TL818", "did you mean label?"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "code", "words"), MISTAKES)
def test_mistakes_cost_no_replay(
    place: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], code: str, words: str
) -> None:
    def replayed(*_: object, **__: object) -> None:
        raise AssertionError("a replay began")

    monkeypatch.setattr(start, "replay_one_of", replayed)
    done = cli(*DIFF, *asked)
    assert done.code == 2
    assert done.err.startswith(code)
    assert words in done.err


def test_what_is_right_goes_through(place: Path) -> None:
    """A record that only a helper names is known all the same; labels, figures and fields of it."""
    done = cli(*DIFF, "--labels", "labels.csv", "--segment", "land", "--by", "who", "--items", "E.n", "--key", "Hit:n",
               "--fail-if", "precision < 0 or Hit.gone > 1000 or freed > 1000")  # fmt: skip
    assert done.code == 0, done.err
    assert "precision" in done.out


def test_sweeps_ask_first_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replayed(*_: object, **__: object) -> None:
        raise AssertionError("a replay began")

    monkeypatch.setattr(start, "replay_as", replayed)
    done = cli(
        "sweep",
        "rules.py:Rules",
        "log",
        "limit=2..4",
        "--labels",
        "labels.csv",
        "--weight",
        "amount",
        "--local",
    )
    assert (done.code, done.err[:5]) == (2, "TL816")


def test_python_says_the_same(place: Path) -> None:
    """A sweep with labels that name nothing."""
    from timelapse.program.load import load_program

    with pytest.raises(UsageError, match="no column names the outputs"):
        tl.sweep(load_program("rules.py:Rules"), "log", {"limit": [1, 2]}, labels="unnamed.csv", spark=False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="closes a pipe as a shell does")
def test_what_nobody_reads_is_no_answer(place: Path) -> None:
    """`timelapse diff ... | head -1`: exit code 0 would say that nothing differs."""
    command = f"{sys.executable} -m timelapse {' '.join(DIFF)}"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, "Traceback" in done.stderr) == ("141\n", False)
