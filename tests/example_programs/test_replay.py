"""The examples as their docstrings say: ingested from the real files, replayed in slices, against the oracles."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.example_programs import logs, oracles
from timelapse.program.load import load_program
from timelapse.synth import Network, generate
from timelapse.synth.network import Tables, block

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def commands_of(example: str) -> list[list[str]]:
    """The commands in an example's docstring."""
    import ast

    text = ast.get_docstring(ast.parse((logs.EXAMPLES / example).read_text(encoding="utf-8"))) or ""
    joined = text.replace("\\\n", " ")
    return [shlex.split(line) for line in joined.splitlines() if line.strip().startswith("timelapse ")]


def ingest(example: str, folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> tl.Log:
    """Run the example's own ingest command in `folder`, over `data`."""
    monkeypatch.chdir(folder)
    (folder / "examples").symlink_to(logs.EXAMPLES)
    (folder / name).write_bytes(data.read_bytes())
    args = next(c for c in commands_of(example) if c[1] == "ingest")[1:]
    made = cli(*args)
    assert made.code == 0, made.err
    return tl.Log.open(args[2])


def check_all(
    program: tl.Program,
    log: tl.Log,
    spark: SparkSession,
    wanted: list[Any],
    got: Callable[[tl.Run], list[Any]],
) -> None:
    """The serial meaning and every replay give what the oracle found, and one digest."""
    serial = tl.run_serial(program, log)
    assert got(serial) == wanted
    for slices in (1, 2, 3, 7):
        run = tl.replay(program, log, slices=slices, spark=False)
        assert run.slices == slices
        assert run.digest == serial.digest
        assert run.state_digest == serial.state_digest
        assert got(run) == wanted
    on_spark = tl.replay(program, log, slices=3, spark=spark)
    assert on_spark.digest == serial.digest
    assert got(on_spark) == wanted
    proof = on_spark.verify()
    assert proof.ok, proof.text
    assert proof.events == log.count


def strangers_of(run: tl.Run) -> list[Any]:
    rows = run.stored("Stranger").to_pylist()
    return [(r["ts"], r["sender"], r["unanswered"], r["answered"]) for r in rows]


@pytest.mark.spark
def test_collegemsg(
    spark: SparkSession, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documented commands over the real messages find who the oracle finds."""
    log = ingest("collegemsg.py", tmp_path, data_dir / "CollegeMsg.txt", monkeypatch, "CollegeMsg.txt")
    rows = oracles.college_rows(data_dir / "CollegeMsg.txt")
    assert log.count == len(rows) == 59_835
    wanted = oracles.strangers(rows, 30, 5.0)
    check_all(logs.program(logs.STRANGERS), log, spark, wanted, strangers_of)


@pytest.mark.spark
def test_collegemsg_with_broken_lines(
    spark: SparkSession, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken lines are quarantined with their numbers; the result is that of the lines that are left."""
    lines = (data_dir / "CollegeMsg.txt").read_text(encoding="ascii").splitlines()
    broken = {100: "1 2", 2_000: "x y 1082040961", 30_000: "1 2 3 4", 59_000: "9 9 99999999999999999999"}
    for number, text in broken.items():
        lines[number - 1] = text
    (tmp_path / "broken.txt").write_text("\n".join(lines) + "\n")
    log = ingest("collegemsg.py", tmp_path, tmp_path / "broken.txt", monkeypatch, "CollegeMsg.txt")
    assert sorted(log.quarantine()["line"].to_pylist()) == sorted(broken)
    good = [text for number, text in enumerate(lines, 1) if number not in broken]
    (tmp_path / "good.txt").write_text("\n".join(good) + "\n")
    wanted = oracles.strangers(oracles.college_rows(tmp_path / "good.txt"), 30, 5.0)
    run = tl.replay(logs.program(logs.STRANGERS), log, slices=3, spark=False)
    assert strangers_of(run) == wanted


@pytest.mark.spark
@pytest.mark.parametrize(("limit", "suspicious"), [(10, 1), (1, 0)])
def test_sshd(
    spark: SparkSession,
    tmp_path: Path,
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    suspicious: int,
) -> None:
    """The documented commands over the real sshd log find the oracle's attacks and logins."""
    log = ingest("sshd.py", tmp_path, data_dir / "OpenSSH_2k.log", monkeypatch, "OpenSSH_2k.log")
    lines = logs.sshd_lines(data_dir / "OpenSSH_2k.log")
    wanted = sorted(oracles.sshd_findings(lines, logs.YEAR, limit, suspicious), key=lambda f: (f[0], f[1]))

    def found(run: tl.Run) -> list[Any]:
        attacks = run.stored("Attack").to_pylist() if "Attack" in run.counts else []
        breaks = run.stored("Break").to_pylist() if "Break" in run.counts else []
        return [("attack", r["ts"], r["address"], r["failures"], r["users"]) for r in attacks] + [
            ("break", r["ts"], r["address"], r["failures"], r["user"]) for r in breaks
        ]

    program = logs.program(logs.BRUTE_FORCE, limit=limit, suspicious=suspicious)
    check_all(program, log, spark, wanted, found)


@pytest.mark.spark
def test_antispam(spark: SparkSession, tmp_path: Path) -> None:
    """The program of the README over a generated log flags the oracle's messages."""
    network = Network.make(30_000, seed=7, users=600)
    generate(tmp_path / "log", network, spark=False)
    made = block(network, Tables.make(network), 0)
    pending = {0: iter(made.friendships.to_pylist()), 1: iter(made.messages.to_pylist())}
    names = ("Friendship", "Message")
    rows = [(names[kind], tuple(next(pending[kind]).values())) for kind in made.kinds.tolist()]
    wanted = oracles.spam(rows, 2.0, 0.2)
    assert 100 < len(wanted) < 15_000

    def found(run: tl.Run) -> list[Any]:
        return [(r["message"], r["sender"]) for r in run.stored("Spam").to_pylist()]

    check_all(load_program(logs.ANTISPAM)(), tl.Log.open(tmp_path / "log"), spark, wanted, found)


def test_the_documented_commands_are_complete() -> None:
    """Each example says how to ingest, replay and verify (antispam: how to generate)."""
    for example in ("collegemsg.py", "sshd.py"):
        assert {"ingest", "replay", "verify"} <= {c[1] for c in commands_of(example)}
