"""The programs over time once more, from their definitions: each looks at all events before, with times compared directly."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass

from tests.programs.oracles import DAY, SECOND, Out, Rows

MINUTE = 60 * SECOND


def windowed_spam(rows: Rows) -> Out:
    out: Out = []
    friends: set[frozenset[int]] = set()
    sent: list[
        tuple[int, int, int, str, bool, bool]
    ] = []  # time, sender, recipient, text, to a friend, response
    for kind, ts, f in rows:
        if kind == "Friendship":
            friends.add(frozenset(f))
            continue
        number, s, r, text = f
        answer = any(x[1] == r and x[2] == s and ts - x[0] < 7 * DAY for x in sent)
        sent.append((ts, s, r, text, frozenset((s, r)) in friends, answer))
        own = [x for x in sent if x[1] == s]
        far = [x for x in own if not x[4]]
        lately = [x for x in far if ts - x[0] < 120 * MINUTE]
        month = [x for x in own if ts - x[0] < 30 * DAY]
        week, day = ([x for x in own if ts - x[0] < n * DAY] for n in (7, 1))
        rules = [
            len(own) > 5 and len(far) > 2 * (len(own) - len(far)),
            len(lately) > 7 and len({x[2] for x in lately}) >= 5,
            sum("@" in x[3] for x in month) > 0.5 * len(month),
            ts - own[0][0] >= 7 * DAY and len(day) > 0.2 * len(week),
            sum(x[5] for x in own) < 0.1 * len(own),
        ]
        out.append((ts, "Scored", (number, 10 * sum(rules))))
    return out


def answered_in_a_day(rows: Rows) -> Out:
    out: Out = []
    sent: list[tuple[int, int, int]] = []
    for _, ts, (number, s, r, _) in rows:
        settled = [x for x in sent if x[1] == s and ts - 7 * DAY < x[0] <= ts - DAY]
        answered = [
            x for x in settled if any(y[1] == x[2] and y[2] == s and x[0] < y[0] < x[0] + DAY for y in sent)
        ]
        out.append((ts, "Answered", (number, len(answered) / len(settled) if settled else None)))
        sent.append((ts, s, r))
    return out


def recent_brute_force(rows: Rows) -> Out:
    out: Out = []
    failed: list[tuple[int, str]] = []
    for kind, ts, f in rows:
        if kind == "Failed":
            failed.append((ts, f[0]))
        else:
            count = sum(a == f[0] and ts - t < 10 * MINUTE for t, a in failed)
            if count >= 5:
                out.append((ts, "Break", (*f, count)))
    return out


def toll_processing(rows: Rows) -> Out:
    out: Out = []
    place: dict[int, int] = {}
    seen: list[tuple[int, int, int, int]] = []
    for _, ts, (vehicle, segment, speed) in rows:
        entered = place.get(vehicle) != segment
        place[vehicle] = segment
        seen.append((ts, vehicle, segment, speed))
        if entered:
            here = [x for x in seen if x[2] == segment and ts - x[0] < 5 * MINUTE]
            cars = len({x[1] for x in here})
            slow = sum(x[3] for x in here) / len(here) < 60.0
            out.append((ts, "Toll", (vehicle, segment, 2 * (cars - 3) ** 2 if slow and cars > 3 else 0)))
    return out


def message_features(rows: Rows) -> Out:
    out: Out = []
    friends: set[frozenset[int]] = set()
    reported: set[str] = set()
    # time, sender, recipient, address; to somebody who had written, to a friend, found, reported; a new conversation
    sent: list[tuple[int, int, int, str, bool, bool, bool, bool, bool]] = []
    for kind, ts, f in rows:
        if kind == "Friendship":
            friends.add(frozenset(f))
            continue
        if kind == "Report":
            reported.update(re.findall(r"[\w.]+@[\w.]+", f[0]))
            continue
        number, s, r, address, text = f
        found = re.findall(r"[\w.]+@[\w.]+", text)
        sent.append((
            ts, s, r, address,
            any(x[1] == r and x[2] == s and ts - x[0] < 14 * DAY for x in sent),
            frozenset((s, r)) in friends, bool(found), not reported.isdisjoint(found),
            all({x[1], x[2]} != {s, r} or ts - x[0] >= 30 * DAY for x in sent),
        ))  # fmt: skip
        own = [x for x in sent if x[1] == s]
        week, month = ([x for x in own if ts - x[0] < n * DAY] for n in (7, 30))
        began = [x for x in sent if x[8] and s in x[1:3] and ts - x[0] < 7 * DAY]
        there = [ts - x[0] for x in sent if x[3] == address and ts - x[0] < 7 * DAY]
        busy = sum(age < DAY for age in there)
        out.append((ts, "Row", (
            number, sum(ts - x[0] < DAY for x in week) / len(week), sum(x[4] for x in week) / len(week),
            sum(x[5] for x in week) / len(week), sum(x[1] == s for x in began) / len(began) if began else None,
            sum(x[6] for x in month) / len(month), sum(x[7] for x in month) / len(month), busy, busy / len(there) > 0.5,
        )))  # fmt: skip
    return out


def answered_by_now(rows: Rows) -> Out:
    out: Out = []
    sent: list[tuple[int, int, int]] = []
    for kind, ts, f in rows:
        if kind == "Message":
            number, s, r = f[:3]
            sent.append((ts, s, r))
            week = [(i, x) for i, x in enumerate(sent) if x[1] == s and ts - x[0] < 7 * DAY]
            answered = [x for i, x in week if any(y[1:] == (x[2], x[1]) for y in sent[i + 1 :])]
            out.append((ts, "AnswerRow", (number, len(answered) / len(week))))
    return out


@dataclass
class _Vote:
    ts: int
    voter: int
    receiver: int
    up: bool
    score: float
    is_answer: bool
    asks: bool
    answered: bool = False


def recent_votes(rows: Rows) -> Out:
    out: Out = []
    votes: list[_Vote] = []
    for kind, ts, f in rows:
        if kind != "Vote":
            continue
        number, v, r, up, score = f
        got = [x for x in votes if x.receiver == r]
        lately = [x for x in got if ts - x.ts < 30 * DAY]
        asking = [x for x in votes if x.receiver == v and x.asks and ts - x.ts < 7 * DAY]
        own = [x.score for x in votes if x.voter == v and not x.is_answer and ts - x.ts < 30 * DAY]
        out.append((ts, "RecentRow", (
            number, sum(x.up for x in lately) / len(lately) if lately else None,
            sum(x.score > 0.8 for x in got), sum(x.score > 0.8 for x in lately),
            sum(not x.answered for x in asking) / len(asking) if asking else None,
            sum(round(1000 * x) for x in own) / len(own) if own else None, min(own, default=None),
        )))  # fmt: skip
        waiting = [x for x in votes if x.voter == r and x.receiver == v and x.asks and not x.answered]
        asked = any(x.voter == v and x.receiver == r and x.asks and not x.answered for x in votes)
        for x in waiting:
            x.answered = True
        votes.append(_Vote(ts, v, r, up, score, bool(waiting), not waiting and not asked))
    return out


def _ticks(times: list[int], period: int) -> list[int]:
    """Multiples of the period from the first event to the last: periods divide the day."""
    first = -(-times[0] // period) * period
    return list(range(first, times[-1] + 1, period))


def top_words(rows: Rows) -> Out:
    posts = [(ts, f[0]) for _, ts, f in rows]
    out: Out = []
    for tick in _ticks([ts for ts, _ in posts], 10 * SECOND):
        counts = Counter(w for ts, words in posts if tick - 30 * SECOND <= ts < tick for w in words)
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
        out.extend((tick, "Top", (rank, word, n)) for rank, (word, n) in enumerate(best, 1))
    return out


def alerts_per_user(rows: Rows) -> Out:
    events = list(rows)
    user: dict[int, int] = {}
    joined: list[tuple[int, int]] = []
    for kind, ts, f in events:
        if kind == "Process":
            user[f[0]] = f[1]
        elif f[0] in user:
            joined.append((ts, user[f[0]]))
    out: Out = []
    for tick in _ticks([ts for _, ts, _ in events], 5 * SECOND):
        for width in (5, 15):
            counts = Counter(u for ts, u in joined if tick - width * SECOND <= ts < tick)
            out.extend((tick, "Alerts", (width, u, counts[u])) for u in sorted(counts))
    return out


def components(rows: Rows) -> Out:
    """Breadth first from where the news begins, nearest numbers first: what a node hears first is the smallest."""
    out: Out = []
    near: dict[int, set[int]] = {}
    label: dict[int, int] = {}
    for _, ts, (a, b) in rows:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
        label.setdefault(a, a)
        label.setdefault(b, b)
        if label[a] == label[b]:
            continue
        new = min(label[a], label[b])
        todo = deque([b if label[a] < label[b] else a])
        while todo:
            node = todo.popleft()
            if new < label[node]:
                label[node] = new
                out.append((ts, "Joined", (node, new)))
                todo.extend(sorted(near[node]))
    return out
