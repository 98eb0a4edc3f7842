"""The examples, run by the serial meaning over the real data, against plain-Python oracles."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.example_programs import logs, oracles
from timelapse import serial
from timelapse.program.load import load_events


def records(program: tl.Program, events: list[tl.Event]) -> list[tuple[int, Any]]:
    return [(o.position.ts, o.record) for o in serial.run(program, events).outputs]


@pytest.mark.parametrize(("limit", "ratio"), [(30, 5.0), (20, 2.0), (1, 0.5)])
def test_strangers_on_collegemsg(data_dir: Path, limit: int, ratio: float) -> None:
    """The program finds who the oracle finds, at the same messages with the same counts."""
    rows = oracles.college_rows(data_dir / "CollegeMsg.txt")
    found = records(logs.program(logs.STRANGERS, limit=limit, ratio=ratio), logs.college_events(rows))
    wanted = oracles.strangers(rows, limit, ratio)
    assert [(ts, r.sender, r.unanswered, r.answered) for ts, r in found] == wanted
    assert len(wanted) > 50


def test_defaults_find_a_sensible_number(data_dir: Path) -> None:
    """90 of the 1,899 students are named by the example's defaults."""
    rows = oracles.college_rows(data_dir / "CollegeMsg.txt")
    assert len(records(logs.program(logs.STRANGERS), logs.college_events(rows))) == 90


def breaking_in(lines: list[str]) -> list[str]:
    """The log with two attackers' later failures turned into logins that work."""
    planted = list(lines)
    for address in ("187.141.143.180", "183.62.140.253"):
        where = [i for i, text in enumerate(lines) if f" from {address} port" in text and "Failed" in text]
        for index in (where[5], where[40]):
            planted[index] = lines[index].replace("Failed", "Accepted").replace("invalid user ", "")
    return planted


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize(("limit", "suspicious"), [(10, 1), (3, 0), (1, 1)])
def test_brute_force_on_openssh(data_dir: Path, planted: bool, limit: int, suspicious: int) -> None:
    """Attacks and break-ins are the oracle's, on the real log and with logins planted in it."""
    lines = logs.sshd_lines(data_dir / "OpenSSH_2k.log")
    if planted:
        lines = breaking_in(lines)
    program = logs.program(logs.BRUTE_FORCE, limit=limit, suspicious=suspicious)
    found = [
        ("attack", ts, r.address, r.failures, r.users)
        if type(r).__name__ == "Attack"
        else ("break", ts, r.address, r.failures, r.user)
        for ts, r in records(program, logs.sshd_events(lines))
    ]
    wanted = oracles.sshd_findings(lines, logs.YEAR, limit, suspicious)
    assert found == wanted
    assert len(wanted) > 5
    assert not planted or sum(w[0] == "break" for w in wanted) >= 4


def test_antispam_against_its_oracle() -> None:
    """The program of the README flags the messages that the oracle flags."""
    classes: dict[str, Any] = dict(load_events(logs.ANTISPAM))
    random_ = random.Random(5)
    rows: list[tuple[str, tuple[Any, ...]]] = []
    events: list[tl.Event] = []
    for number in range(4000):
        if random_.random() < 0.2:
            rows.append(("Friendship", (random_.randrange(30), random_.randrange(30))))
        else:
            text = random_.choice(["hello", "write to a@b.example", 'ok, "fine"'])
            ip = f"10.0.0.{random_.randrange(6)}"
            rows.append(("Message", (number, random_.randrange(30), random_.randrange(30), ip, text)))
        events.append(classes[rows[-1][0]](*rows[-1][1], ts=number // 3))
    found = records(logs.program(logs.ANTISPAM, ratio=1.5, share=0.3), events)
    wanted = oracles.spam(rows, 1.5, 0.3)
    assert [(r.message, r.sender) for _, r in found] == wanted
    assert 50 < len(wanted) < 3500
