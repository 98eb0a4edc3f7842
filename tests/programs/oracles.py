"""Each program once more, as a plain loop over dicts. Nothing here knows of Timelapse.

An oracle takes the events as (type, time, fields) and gives the outputs as (time, record type, fields), in order.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Rows = Iterable[tuple[str, int, tuple[Any, ...]]]
Out = list[tuple[int, str, tuple[Any, ...]]]
SECOND = 1_000_000
DAY = 86_400 * SECOND


def ip_spam(rows: Rows) -> Out:
    out: Out = []
    friends: set[frozenset[int]] = set()
    near: dict[int, int] = defaultdict(int)
    far: dict[int, int] = defaultdict(int)
    sent: dict[str, int] = defaultdict(int)
    mails: dict[str, int] = defaultdict(int)
    for kind, ts, f in rows:
        if kind == "Friendship":
            friends.add(frozenset(f))
        elif kind == "Message":
            number, sender, recipient, ip, text = f
            (near if frozenset((sender, recipient)) in friends else far)[sender] += 1
            sent[ip] += 1
            mails[ip] += "@" in text
            if (
                near[sender] + far[sender] > 5
                and far[sender] > 2 * near[sender]
                and mails[ip] > 0.2 * sent[ip]
            ):
                out.append((ts, "Spam", (number, sender)))
    return out


def simple_spam(rows: Rows) -> Out:
    out: Out = []
    friends: set[frozenset[int]] = set()
    near: dict[int, int] = defaultdict(int)
    far: dict[int, int] = defaultdict(int)
    by: dict[int, int] = defaultdict(int)
    total = 0
    for kind, ts, f in rows:
        if kind == "Friendship":
            friends.add(frozenset(f))
        elif kind == "Message":
            number, sender, recipient, _, _ = f
            total += 1
            (near if frozenset((sender, recipient)) in friends else far)[sender] += 1
            if near[sender] + far[sender] > 5 and far[sender] > 2 * near[sender]:
                by[sender] += 1
                out.append((ts, "Spam", (number, sender)))
        else:
            out.append((ts, "Totals", (total, sum(by.values()), len(by))))
            best = sorted(by.items(), key=lambda item: (-item[1], item[0]))[: f[0]]
            out.extend((ts, "Place", (rank, *item)) for rank, item in enumerate(best, 1))
    return out


def nothing(rows: Rows) -> Out:
    for _ in rows:
        pass
    return []


def count_messages(rows: Rows) -> Out:
    sent: dict[int, int] = defaultdict(int)
    for kind, _, f in rows:
        if kind == "Message":
            sent[f[1]] += 1
    return []


def ninth(rows: Rows) -> Out:
    out: Out = []
    sent: dict[int, int] = defaultdict(int)
    for kind, ts, f in rows:
        if kind == "Message":
            sent[f[1]] += 1
            if sent[f[1]] == 9:
                out.append((ts, "Heavy", (f[1],)))
    return out


def ewma(rows: Rows) -> Out:
    out: Out = []
    mean: dict[int, float] = {}
    for _, ts, (sensor, value) in rows:
        if sensor not in mean:
            mean[sensor] = value
        else:
            if abs(value - mean[sensor]) > 3.0:
                out.append((ts, "Deviation", (sensor, value, mean[sensor])))
            mean[sensor] += 0.2 * (value - mean[sensor])
    return out


def rate_limiter(rows: Rows) -> Out:
    out: Out = []
    buckets: dict[str, tuple[int, int]] = {}
    for _, ts, (client,) in rows:
        left, since = buckets.get(client, (5 * SECOND, ts))
        left = min(5 * SECOND, left + 2 * (ts - since))
        if left < SECOND:
            out.append((ts, "Refused", (client,)))
        else:
            left -= SECOND
        buckets[client] = left, ts
    return out


def sessions(rows: Rows) -> Out:
    out: Out = []
    current: dict[int, list[int]] = {}
    ended: dict[int, int] = defaultdict(int)
    for _, ts, (user,) in rows:
        clicks = current.setdefault(user, [])
        if clicks and ts - clicks[-1] > 1800 * SECOND:
            ended[user] += 1
            out.append((ts, "Session", (user, ended[user], len(clicks), clicks[-1] - clicks[0])))
            clicks.clear()
        clicks.append(ts)
    return out


def ledger(rows: Rows) -> Out:
    out: Out = []
    balance: dict[int, int] = defaultdict(lambda: 100)
    for kind, ts, f in rows:
        if kind == "Deposit":
            balance[f[0]] += f[1]
            continue
        source, target, amount = f
        # To oneself nothing moves, but an account that is below zero refuses even that.
        left = balance[source] - (amount if source != target else 0)
        if left < 0:
            out.append((ts, "Refused", (source, target, -left)))
        else:
            balance[source] -= amount
            balance[target] += amount
    return out


def grep_sum(rows: Rows) -> Out:
    out: Out = []
    cells: dict[int, int] = defaultdict(lambda: 1)
    for _, ts, (reads, target, value) in rows:
        total = value + sum(cells[c] for c in reads)
        cells[target] = total % 1_000_003
        out.append((ts, "Sum", (target, total)))
    return out


def vote_features(rows: Rows) -> Out:
    out: Out = []
    born: dict[int, int] = {}
    region: dict[int, str] = {}
    acted: dict[int, int] = {}
    ups: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # votes, positive
    lately: dict[int, float] = {}
    since: dict[int, int] = defaultdict(int)
    pending: dict[int, dict[int, int]] = defaultdict(dict)  # receiver -> voter -> when
    waits: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # answers, how long all took
    borders = [{"north", "east"}, {"east", "south"}, {"south", "west"}]
    for kind, ts, f in rows:
        if kind == "Profile":
            born[f[0]] = f[1]
        elif kind == "Login":
            region[f[0]] = f[1]
            acted[f[0]] = ts
        else:
            number, v, r, up, _ = f
            here, there = region.get(v), region.get(r)
            both = v in born and r in born
            got = ups[r]
            out.append((ts, "Row", (
                number, v, r, up, here is not None and here == there, {here, there} in borders,
                abs(born[v] - born[r]) if both else None, both and born[v] // 5 == born[r] // 5,
                ts - acted[v] if v in acted else None, r in acted and ts - acted[r] <= 7 * DAY,
                got[1] / got[0] if got[0] else None, lately.get(r), since[v], len(pending[v]),
                waits[v][1] / waits[v][0] if waits[v][0] else None,
            )))  # fmt: skip
            acted[v] = ts
            got[0] += 1
            got[1] += up
            lately[r] = lately[r] + 0.1 * (float(up) - lately[r]) if r in lately else float(up)
            since[v] = 0
            since[r] += 1
            if r in pending[v]:
                waits[v][0] += 1
                waits[v][1] += ts - pending[v].pop(r)
            elif v not in pending[r]:
                pending[r][v] = ts
    return out


def search_features(rows: Rows) -> Out:
    out: Out = []
    clicks: list[tuple[int, set[str]]] = []
    total: dict[int, int] = defaultdict(int)
    word_clicks: dict[str, int] = defaultdict(int)
    both_clicks: dict[tuple[str, int], int] = defaultdict(int)
    titles: dict[int, list[str]] = {}
    containing: dict[str, set[int]] = defaultdict(set)
    for kind, ts, f in rows:
        item, words = f[-2:]
        if kind == "Clicked":
            clicks.append((item, set(words)))
            total[item] += 1
            for word in set(words):
                word_clicks[word] += 1
                both_clicks[word, item] += 1
        elif kind == "Title":
            for word in titles.get(item, ()):
                containing[word].discard(item)
            titles[item] = words
            for word in words:
                containing[word].add(item)
        else:
            given, fit = 1.0, 0.0
            for word in words:
                given *= (both_clicks[word, item] + 1) / (word_clicks[word] + 2)
                often = titles.get(item, []).count(word)
                if often:
                    fit += often * math.log(len(titles) / len(containing[word]))
            out.append((ts, "Row", (f[0], item, (total[item] + 1) / (len(clicks) + 2), given, fit)))
    return out


def account_features(rows: Rows) -> Out:
    out: Out = []
    addresses: dict[int, set[str]] = defaultdict(set)
    users: dict[str, set[int]] = defaultdict(set)
    reported: set[str] = set()
    texts: dict[int, list[str]] = defaultdict(list)
    mail: dict[int, int] = defaultdict(int)
    bad: dict[int, int] = defaultdict(int)
    partners: dict[int, set[int]] = defaultdict(set)
    open_: set[tuple[int, int]] = set()
    answered: dict[int, int] = defaultdict(int)
    sent: dict[int, int] = defaultdict(int)
    rate: dict[int, tuple[float, int]] = {}
    pattern = re.compile(r"[\w.]+@[\w.]+")
    for kind, ts, f in rows:
        if kind == "Login":
            number, user, address = f
            new = address not in addresses[user]
            addresses[user].add(address)
            users[address].add(user)
            out.append((ts, "LoginRow", (number, user, new, len(addresses[user]), len(users[address]))))
        elif kind == "Report":
            reported.update(pattern.findall(f[0]))
        else:
            number, sender, recipient, text = f
            found = pattern.findall(text)
            sent[sender] += 1
            mail[sender] += bool(found)
            bad[sender] += not reported.isdisjoint(found)
            partners[sender].add(recipient)
            texts[sender] = [*texts[sender][-4:], text]
            old, last = rate.get(sender, (0.0, ts))
            rate[sender] = old * 2.0 ** -((ts - last) / (3600 * SECOND)) + 1.0, ts
            if (recipient, sender) in open_:
                open_.remove((recipient, sender))
                answered[recipient] += 1
            else:
                open_.add((sender, recipient))
            n = sent[sender]
            out.append((ts, "MessageRow", (
                number, sender, len(partners[sender]), mail[sender] / n, bad[sender] / n, answered[sender] / n,
                len(set(texts[sender])), rate[sender][0],
            )))  # fmt: skip
    return out
