"""The real data as events, read without Timelapse's ingest: the oracles' inputs and the serial meaning's."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import timelapse as tl
from timelapse.program.load import load_events, load_program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ANTISPAM = f"{EXAMPLES}/antispam.py:Antispam"
STRANGERS = f"{EXAMPLES}/collegemsg.py:Strangers"
BRUTE_FORCE = f"{EXAMPLES}/sshd.py:BruteForce"
YEAR = 2016

_STAMP = r"^(?P<ts>\w{3} +\d+ [\d:]+) \S+ sshd\[\d+\]: "
_WHO = r"(?P<user>.*) from (?P<address>\S+) port \d+"
FAILED = _STAMP + r"(?:message repeated (?P<times>\d+) times: \[ )?Failed \w+ for (?:invalid user )?" + _WHO
ACCEPTED = _STAMP + r"Accepted \w+ for " + _WHO


def program(reference: str, **params: Any) -> tl.Program:
    return load_program(reference)(**params)


def sshd_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def college_events(rows: list[tuple[int, int, int]]) -> list[tl.Event]:
    message: Any = load_events(STRANGERS)["Message"]
    return [message(sender=s, recipient=r, ts=t) for s, r, t in rows]


def sshd_events(lines: list[str]) -> list[tl.Event]:
    """Failed before Accepted where the second is the same; then by line."""
    classes: dict[str, Any] = dict(load_events(BRUTE_FORCE))
    events: list[tl.Event] = []
    for name, pattern in (("Failed", FAILED), ("Accepted", ACCEPTED)):
        for line in lines:
            match = re.search(pattern, line)
            if match is None:
                continue
            fields: dict[str, Any] = match.groupdict()
            stamp = dt.datetime.strptime(f"{YEAR} {fields.pop('ts')}", "%Y %b %d %H:%M:%S")
            ts = int(stamp.replace(tzinfo=dt.UTC).timestamp()) * 1_000_000
            if name == "Failed":
                fields["times"] = None if fields["times"] is None else int(fields["times"])
            events.append(classes[name](**fields, ts=ts))
    return sorted(events, key=lambda e: e.ts)
