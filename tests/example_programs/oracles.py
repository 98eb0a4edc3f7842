"""What the examples must find, in plain Python, without Timelapse: written from their descriptions."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter, defaultdict
from pathlib import Path


def college_rows(path: Path) -> list[tuple[int, int, int]]:
    """(sender, recipient, microseconds), in file order, which is time order."""
    rows = []
    for line in path.read_text(encoding="ascii").splitlines()[1:]:
        sender, recipient, seconds = line.split(" ")
        rows.append((int(sender), int(recipient), int(seconds) * 1_000_000))
    return rows


def strangers(rows: list[tuple[int, int, int]], limit: int, ratio: float) -> list[tuple[int, int, int, int]]:
    """(ts, sender, unanswered, answered) once per sender, when first found."""
    partners: dict[int, set[int]] = defaultdict(set)
    tally: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    found: dict[int, tuple[int, int, int, int]] = {}
    for sender, recipient, ts in rows:
        partners[sender].add(recipient)
        mine = tally[sender]
        mine[sender in partners[recipient]] += 1
        if mine[0] >= limit and mine[0] > ratio * mine[1]:
            found.setdefault(sender, (ts, sender, mine[0], mine[1]))
    return list(found.values())


def sshd_findings(
    lines: list[str], year: int, limit: int, suspicious: int
) -> list[tuple[str, int, str, int, int | str]]:
    """('attack', ts, address, failures, users) and ('break', ts, address, failures, user), in order."""
    attempts = []
    for number, line in enumerate(lines):
        if " for " not in line or " from " not in line or "sshd[" not in line:
            continue
        stamp = dt.datetime.strptime(f"{year} {line[:15]}", "%Y %b %d %H:%M:%S")
        ts = int((stamp - dt.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
        address = line.rsplit(" from ", 1)[1].split(" ")[0]
        user = line.split(" for ", 1)[1].rsplit(" from ", 1)[0].removeprefix("invalid user ")
        body = line.split("]: ", 1)[1]
        times = 1
        if body.startswith("message repeated "):
            times = int(body.split(" ")[2])
            body = body.split("[ ", 1)[1]
        if body.startswith("Failed "):
            attempts.append((ts, 0, number, address, user, times))
        elif re.match(r"Accepted \w+ for", body):
            attempts.append((ts, 1, number, address, user, 0))
    failures: Counter[str] = Counter()
    users: dict[str, set[str]] = defaultdict(set)
    found: list[tuple[str, int, str, int, int | str]] = []
    for ts, success, _, address, user, times in sorted(attempts):
        if success:
            if failures[address] >= suspicious:
                found.append(("break", ts, address, failures[address], user))
            failures[address] = 0
        else:
            users[address].add(user)
            crossed = failures[address] < limit <= failures[address] + times
            failures[address] += times
            if crossed:
                found.append(("attack", ts, address, failures[address], len(users[address])))
    return found


def spam(rows: list[tuple[str, tuple[object, ...]]], ratio: float, share: float) -> list[tuple[int, int]]:
    """(message, sender) flagged, in order. Rows are ('Friendship', (a, b)) and ('Message', fields)."""
    friends: set[frozenset[object]] = set()
    per_sender: dict[object, list[int]] = defaultdict(lambda: [0, 0])
    per_address: dict[object, list[int]] = defaultdict(lambda: [0, 0])
    flagged = []
    for kind, fields in rows:
        if kind == "Friendship":
            friends.add(frozenset(fields))
            continue
        number, sender, recipient, ip, text = fields
        theirs, here = per_sender[sender], per_address[ip]
        theirs[frozenset((sender, recipient)) in friends] += 1
        here[0] += 1
        here[1] += str(text).count("@") > 0
        if theirs[0] > ratio * theirs[1] and here[1] > share * here[0]:
            flagged.append((number, sender))
    return flagged  # type: ignore[return-value]
