"""The programs over time as loops that one would write for speed: what is measured against (docs/programs.md).

Each goes through the events once and keeps counts; what leaves a window waits in a list that is in the order of time, with
the place up to which it has left. tests/programs/timed_oracles.py has their definitions, with which these are compared.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque

from tests.programs.oracles import DAY, SECOND, Out, Rows
from tests.programs.timed_oracles import MINUTE


def windowed_spam(rows: Rows) -> Out:
    out: Out = []
    friends: set[tuple[int, int]] = set()
    latest: dict[tuple[int, int], int] = {}
    sent: dict[int, int] = defaultdict(int)
    near: dict[int, int] = defaultdict(int)
    answers: dict[int, int] = defaultdict(int)
    first: dict[int, int] = {}
    month: dict[int, int] = defaultdict(int)
    mails: dict[int, int] = defaultdict(int)
    week: dict[int, int] = defaultdict(int)
    day: dict[int, int] = defaultdict(int)
    lately: dict[int, int] = defaultdict(int)
    distinct: dict[int, int] = defaultdict(int)
    newest: dict[tuple[int, int], int] = {}
    log: list[tuple[int, int, bool]] = []
    strange: list[tuple[int, int, tuple[int, int]]] = []
    in_month = in_week = in_day = in_hours = 0
    for kind, ts, f in rows:
        if kind == "Friendship":
            a, b = f
            friends.add((a, b) if a < b else (b, a))
            continue
        number, s, r, text = f
        mail = "@" in text
        log.append((ts, s, mail))
        while log[in_month][0] <= ts - 30 * DAY:
            _, user, had = log[in_month]
            month[user] -= 1
            if had:
                mails[user] -= 1
            in_month += 1
        while log[in_week][0] <= ts - 7 * DAY:
            week[log[in_week][1]] -= 1
            in_week += 1
        while log[in_day][0] <= ts - DAY:
            day[log[in_day][1]] -= 1
            in_day += 1
        while in_hours < len(strange) and strange[in_hours][0] <= ts - 120 * MINUTE:
            _, user, pair = strange[in_hours]
            lately[user] -= 1
            if newest[pair] == in_hours:
                distinct[user] -= 1
            in_hours += 1
        sent[s] += 1
        month[s] += 1
        week[s] += 1
        day[s] += 1
        if mail:
            mails[s] += 1
        there = (s, r)
        if (there if s < r else (r, s)) in friends:
            near[s] += 1
        else:
            lately[s] += 1
            if newest.get(there, -1) < in_hours:
                distinct[s] += 1
            newest[there] = len(strange)
            strange.append((ts, s, there))
        before = latest.get((r, s))
        if before is not None and before > ts - 7 * DAY:
            answers[s] += 1
        latest[there] = ts
        score = 0
        n = sent[s]
        if n > 5 and n - near[s] > 2 * near[s]:
            score += 10
        if lately[s] > 7 and distinct[s] >= 5:
            score += 10
        if mails[s] > 0.5 * month[s]:
            score += 10
        if ts - first.setdefault(s, ts) >= 7 * DAY and day[s] > 0.2 * week[s]:
            score += 10
        if answers[s] < 0.1 * n:
            score += 10
        out.append((ts, "Scored", (number, score)))
    return out


def answered_in_a_day(rows: Rows) -> Out:
    out: Out = []
    sent: deque[tuple[int, int, int]] = deque()  # not settled yet
    settled: deque[tuple[int, int, bool]] = deque()
    times: dict[tuple[int, int], list[int]] = defaultdict(list)
    of: dict[int, int] = defaultdict(int)
    answered: dict[int, int] = defaultdict(int)
    for _, ts, (number, s, r, _) in rows:
        while sent and sent[0][0] <= ts - DAY:
            then, user, other = sent.popleft()
            # An answer of the moment a day later itself is not there yet, one of the moment itself has left.
            got = any(then < t < then + DAY for t in times[other, user])
            settled.append((then, user, got))
            of[user] += 1
            answered[user] += got
        while settled and settled[0][0] <= ts - 7 * DAY:
            _, user, got = settled.popleft()
            of[user] -= 1
            answered[user] -= got
        out.append((ts, "Answered", (number, answered[s] / of[s] if of[s] else None)))
        sent.append((ts, s, r))
        mine = times[s, r]
        if mine and mine[0] <= ts - 2 * DAY:
            mine[:] = [t for t in mine if t > ts - 2 * DAY]
        mine.append(ts)
    return out


def message_features(rows: Rows) -> Out:
    out: Out = []
    pattern = re.compile(r"[\w.]+@[\w.]+")
    friends: set[tuple[int, int]] = set()
    reported: set[str] = set()
    latest: dict[tuple[int, int], int] = {}
    day: dict[int, int] = defaultdict(int)
    week: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])  # sent, responses, to friends
    month: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])  # sent, with an address, with a reported one
    began: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # conversations, begun oneself
    busy: dict[str, list[int]] = defaultdict(lambda: [0, 0])  # today, this week
    log: list[tuple[int, int, int, str, bool, bool, bool, bool, bool]] = []
    in_day = in_week = in_month = 0
    for kind, ts, f in rows:
        if kind == "Friendship":
            a, b = f
            friends.add((a, b) if a < b else (b, a))
            continue
        if kind == "Report":
            reported.update(pattern.findall(f[0]))
            continue
        number, s, r, address, text = f
        found = pattern.findall(text)
        mail, bad = bool(found), not reported.isdisjoint(found)
        there, back = latest.get((s, r)), latest.get((r, s))
        new = (there is None or there <= ts - 30 * DAY) and (back is None or back <= ts - 30 * DAY)
        answer = back is not None and back > ts - 14 * DAY
        near = ((s, r) if s < r else (r, s)) in friends
        latest[s, r] = ts
        log.append((ts, s, r, address, answer, near, mail, bad, new))
        while log[in_day][0] <= ts - DAY:
            x = log[in_day]
            day[x[1]] -= 1
            busy[x[3]][0] -= 1
            in_day += 1
        while log[in_week][0] <= ts - 7 * DAY:
            x = log[in_week]
            counts = week[x[1]]
            counts[0] -= 1
            counts[1] -= x[4]
            counts[2] -= x[5]
            busy[x[3]][1] -= 1
            if x[8]:
                began[x[1]][0] -= 1
                began[x[1]][1] -= 1
                if x[1] != x[2]:
                    began[x[2]][0] -= 1
            in_week += 1
        while log[in_month][0] <= ts - 30 * DAY:
            x = log[in_month]
            counts = month[x[1]]
            counts[0] -= 1
            counts[1] -= x[6]
            counts[2] -= x[7]
            in_month += 1
        day[s] += 1
        mine, long, traffic = week[s], month[s], busy[address]
        mine[0] += 1
        mine[1] += answer
        mine[2] += near
        long[0] += 1
        long[1] += mail
        long[2] += bad
        traffic[0] += 1
        traffic[1] += 1
        if new:
            began[s][0] += 1
            began[s][1] += 1
            if s != r:
                began[r][0] += 1
        n, all_began = mine[0], began[s]
        out.append((ts, "Row", (
            number, day[s] / n, mine[1] / n, mine[2] / n, all_began[1] / all_began[0] if all_began[0] else None,
            long[1] / long[0], long[2] / long[0], traffic[0], 2 * traffic[0] > traffic[1],
        )))  # fmt: skip
    return out


def answered_by_now(rows: Rows) -> Out:
    out: Out = []
    week: deque[tuple[int, int, int]] = deque()
    sent: dict[int, int] = defaultdict(int)
    answered: dict[int, int] = defaultdict(int)
    counts: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])  # waiting, answered
    for kind, ts, f in rows:
        while week and week[0][0] <= ts - 7 * DAY:
            _, s, r = week.popleft()
            sent[s] -= 1
            pair = counts[s, r]
            if pair[1]:
                pair[1] -= 1
                answered[s] -= 1
            else:
                pair[0] -= 1
        if kind != "Message":
            continue
        number, s, r = f[:3]
        back = counts[r, s]
        answered[r] += back[0]
        back[1] += back[0]
        back[0] = 0
        counts[s, r][0] += 1
        week.append((ts, s, r))
        sent[s] += 1
        out.append((ts, "AnswerRow", (number, answered[s] / sent[s])))
    return out


def recent_votes(rows: Rows) -> Out:
    out: Out = []
    votes: deque[tuple[int, int, bool, bool]] = deque()  # time, receiver, positive, strong
    got: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])  # in 30 days: votes, positive, strong
    strong: dict[int, int] = defaultdict(int)
    asked: deque[tuple[int, int, int]] = deque()  # time, receiver, voter
    asking: dict[int, int] = defaultdict(int)
    waiting: dict[int, dict[int, int]] = defaultdict(dict)  # by receiver, by voter: when
    outstanding: dict[int, int] = defaultdict(int)  # in 7 days
    own: dict[int, deque[tuple[int, float]]] = defaultdict(deque)
    total: dict[int, int] = defaultdict(int)
    lowest: dict[int, deque[tuple[int, float]]] = defaultdict(deque)  # ascending: what may yet be the lowest
    for kind, ts, f in rows:
        if kind != "Vote":
            continue
        number, v, r, up, score = f
        while votes and votes[0][0] <= ts - 30 * DAY:
            _, user, was_up, was_strong = votes.popleft()
            counts = got[user]
            counts[0] -= 1
            counts[1] -= was_up
            counts[2] -= was_strong
        while asked and asked[0][0] <= ts - 7 * DAY:
            then, user, other = asked.popleft()
            asking[user] -= 1
            if waiting[user].get(other) == then:
                outstanding[user] -= 1
                waiting[user][other] = -1  # still without an answer, and no longer recent
        mine, least = own[v], lowest[v]
        while mine and mine[0][0] <= ts - 30 * DAY:
            total[v] -= round(1000 * mine.popleft()[1])
        while least and least[0][0] <= ts - 30 * DAY:
            least.popleft()
        counts = got[r]
        out.append((ts, "RecentRow", (
            number, counts[1] / counts[0] if counts[0] else None, strong[r], counts[2],
            outstanding[v] / asking[v] if asking[v] else None,
            total[v] / len(mine) if mine else None, least[0][1] if least else None,
        )))  # fmt: skip
        much = score > 0.8
        votes.append((ts, r, up, much))
        counts[0] += 1
        counts[1] += up
        counts[2] += much
        strong[r] += much
        if r in waiting[v]:
            if waiting[v].pop(r) >= 0:
                outstanding[v] -= 1
            continue
        mine.append((ts, score))
        total[v] += round(1000 * score)
        while least and least[-1][1] > score:
            least.pop()
        least.append((ts, score))
        if v not in waiting[r]:
            waiting[r][v] = ts
            outstanding[r] += 1
            asking[r] += 1
            asked.append((ts, r, v))
    return out


def recent_brute_force(rows: Rows) -> Out:
    out: Out = []
    failed: dict[str, deque[int]] = defaultdict(deque)
    for kind, ts, f in rows:
        if kind == "Failed":
            failed[f[0]].append(ts)
        else:
            found = failed.get(f[0])
            if found:
                while found and found[0] <= ts - 10 * MINUTE:
                    found.popleft()
                if len(found) >= 5:
                    out.append((ts, "Break", (*f, len(found))))
    return out


def toll_processing(rows: Rows) -> Out:
    out: Out = []
    place: dict[int, int] = {}
    number: dict[int, int] = defaultdict(int)
    total: dict[int, int] = defaultdict(int)
    cars: dict[int, int] = defaultdict(int)
    newest: dict[tuple[int, int], int] = {}
    log: deque[tuple[int, int, int, tuple[int, int]]] = deque()
    gone = 0
    for _, ts, (vehicle, segment, speed) in rows:
        while log and log[0][0] <= ts - 5 * MINUTE:
            _, there, fast, pair = log.popleft()
            number[there] -= 1
            total[there] -= fast
            if newest[pair] == gone:
                cars[there] -= 1
                del newest[pair]
            gone += 1
        pair = (segment, vehicle)
        if pair not in newest:
            cars[segment] += 1
        newest[pair] = gone + len(log)
        log.append((ts, segment, speed, pair))
        number[segment] += 1
        total[segment] += speed
        if place.get(vehicle) != segment:
            place[vehicle] = segment
            n = cars[segment]
            slow = n > 3 and total[segment] / number[segment] < 60.0
            out.append((ts, "Toll", (vehicle, segment, 2 * (n - 3) ** 2 if slow else 0)))
    return out


def top_words(rows: Rows) -> Out:
    out: Out = []
    counts: dict[str, int] = {}
    log: deque[tuple[int, list[str]]] = deque()
    due = None
    for _, ts, (words,) in rows:
        if due is None:
            due = -(-ts // (10 * SECOND)) * 10 * SECOND
        while due <= ts:
            while log and log[0][0] < due - 30 * SECOND:
                for word in log.popleft()[1]:
                    counts[word] -= 1
                    if not counts[word]:
                        del counts[word]
            best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]
            out += [(due, "Top", (rank, word, n)) for rank, (word, n) in enumerate(best, 1)]
            due += 10 * SECOND
        log.append((ts, words))
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    return out


def alerts_per_user(rows: Rows) -> Out:
    out: Out = []
    user_of: dict[int, int] = {}
    short: dict[int, int] = {}
    long: dict[int, int] = {}
    log: deque[tuple[int, int]] = deque()
    waiting: deque[tuple[int, int]] = deque()  # what is to leave the short window
    windows = ((5, short, waiting), (15, long, log))
    due = None
    for kind, ts, f in rows:
        if due is None:
            due = -(-ts // (5 * SECOND)) * 5 * SECOND
        while due <= ts:
            for width, counts, leaving in windows:
                while leaving and leaving[0][0] < due - width * SECOND:
                    user = leaving.popleft()[1]
                    counts[user] -= 1
                    if not counts[user]:
                        del counts[user]
                out += [(due, "Alerts", (width, user, counts[user])) for user in sorted(counts)]
            due += 5 * SECOND
        if kind == "Process":
            user_of[f[0]] = f[1]
        elif (alerted := user_of.get(f[0])) is not None:
            for _, counts, leaving in windows:
                counts[alerted] = counts.get(alerted, 0) + 1
                leaving.append((ts, alerted))
    return out
