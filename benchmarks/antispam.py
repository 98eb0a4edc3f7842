"""The anti-spam program three ways on the same log in one run: plain Python, Numba by hand, Timelapse.

    .venv/bin/python benchmarks/antispam.py LOG [ROUNDS]

LOG is made by `timelapse synth`. Everything runs in this process, warm, and reads the same Parquet files;
the spam that is found is compared before times are shown. Prints a table and one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import numba as nb
import numpy as np
import pyarrow.compute as pc
from antispam import Antispam, Friendship, Message, Spam, pair

import timelapse as tl

COLUMNS = {"Friendship": ["a", "b"], "Message": ["id", "sender", "recipient", "ip", "text"]}


def plain_python(log: tl.Log) -> list[int]:
    """A loop over dicts."""
    friends: set[tuple[int, int]] = set()
    to_friends: dict[int, int] = defaultdict(int)
    to_others: dict[int, int] = defaultdict(int)
    sent: dict[str, int] = defaultdict(int)
    with_email: dict[str, int] = defaultdict(int)
    found = []
    for e in log.reader.events(0, log.reader.count, {"Friendship": Friendship, "Message": Message}):
        if type(e) is Friendship:
            friends.add(pair(e.a, e.b))
            continue
        assert isinstance(e, Message)
        if pair(e.sender, e.recipient) in friends:
            to_friends[e.sender] += 1
        else:
            to_others[e.sender] += 1
        sent[e.ip] += 1
        if "@" in e.text:
            with_email[e.ip] += 1
        if to_others[e.sender] > 2.0 * to_friends[e.sender] and with_email[e.ip] > 0.2 * sent[e.ip]:
            found.append(e.id)
    return found


@nb.njit(cache=True)
def _slot(keys: Any, mask: Any, key: Any) -> Any:
    x = np.uint64(key)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    i = np.int64(x & np.uint64(mask))
    while keys[i] != -1 and keys[i] != key:
        i = (i + 1) & mask
    return i


@nb.njit(cache=True)
def _loop(
    is_message: Any, a: Any, b: Any, ids: Any, ip: Any, email: Any, ips: int, pairs: int, users: int
) -> Any:
    friends = np.full(pairs, -1, np.int64)
    names = np.full(users, -1, np.int64)
    to_friends, to_others = np.zeros(users, np.int64), np.zeros(users, np.int64)
    sent, with_email = np.zeros(ips, np.int64), np.zeros(ips, np.int64)
    found = np.zeros(len(a), np.int64)
    count = 0
    for j in range(len(a)):
        x, y = a[j], b[j]
        key = (x << 32) | y if x < y else (y << 32) | x
        s = _slot(friends, pairs - 1, key)
        if not is_message[j]:
            friends[s] = key
            continue
        u = _slot(names, users - 1, x)
        names[u] = x
        i = ip[j]
        if friends[s] == key:
            to_friends[u] += 1
        else:
            to_others[u] += 1
        sent[i] += 1
        if email[j]:
            with_email[i] += 1
        if to_others[u] > 2.0 * to_friends[u] and with_email[i] > 0.2 * sent[i]:
            found[count] = ids[j]
            count += 1
    return found[:count]


def _room(keys: int) -> int:
    return 1 << max(10, (2 * keys).bit_length())


def by_hand(log: tl.Log) -> list[int]:
    """One thread: read everything, merge both types by seq, encode addresses, one Numba loop."""
    seqs, types, firsts, seconds, ids, ips, emails = [], [], [], [], [], [], []
    for chunk in log.reader.chunks(0, log.reader.count, COLUMNS):
        for name, table in chunk.tables.items():
            message = name == "Message"
            rows = table.num_rows
            seqs.append(table["seq"].to_numpy())
            types.append(np.full(rows, message))
            firsts.append(table["sender" if message else "a"].to_numpy())
            seconds.append(table["recipient" if message else "b"].to_numpy())
            ids.append(table["id"].to_numpy() if message else np.zeros(rows, np.int64))
            ips.append(table["ip"] if message else rows)
            text = pc.match_substring(table["text"], "@").to_numpy() if message else np.zeros(rows, np.bool_)
            emails.append(text)
    order = np.argsort(np.concatenate(seqs), kind="stable")
    codes: dict[str, int] = {}
    parts = []
    for part in ips:
        if isinstance(part, int):
            parts.append(np.zeros(part, np.int64))
            continue
        encoded = part.combine_chunks().dictionary_encode()
        encoded = encoded.chunk(0) if hasattr(encoded, "chunk") else encoded
        known = np.array([codes.setdefault(v, len(codes)) for v in encoded.dictionary.to_pylist()], np.int64)
        parts.append(known[encoded.indices.to_numpy()])
    columns = [np.concatenate(c)[order] for c in (types, firsts, seconds, ids, parts, emails)]
    friendships = int(len(order) - columns[0].sum())
    room = _room(friendships), _room(len(np.unique(columns[1])))
    found: list[int] = _loop(*columns, max(1, len(codes)), *room).tolist()
    return found


def ours(kernel: str, slices: int) -> Callable[[tl.Log], list[int]]:
    def run(log: tl.Log) -> list[int]:
        os.environ["TIMELAPSE_KERNEL"] = kernel
        done = tl.replay(Antispam, log, slices=slices, spark=False)
        found: list[int] = done.table(Spam)["message"].to_pylist()
        return found

    return run


def main(path: str, rounds: int) -> None:
    log = tl.Log.open(path)
    candidates: dict[str, Callable[[tl.Log], list[int]]] = {
        "plain Python over dicts": plain_python,
        "Numba by hand, one thread": by_hand,
        "Timelapse, compiled, 1 slice": ours("native", 1),
        "Timelapse, compiled, 2 slices": ours("native", 2),
        "Timelapse, compiled, 4 slices": ours("native", 4),
    }
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    reference: list[int] | None = None
    for round_ in range(rounds + 1):
        for name, call in candidates.items():
            started = time.perf_counter()
            found = call(log)
            if round_:  # the first round warms up
                seconds[name].append(time.perf_counter() - started)
            reference = found if reference is None else reference
            if found != reference:
                sys.exit(f"{name} found something else")
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    hand = medians["Numba by hand, one thread"]
    print(f"{log.reader.count:,} events, {rounds} rounds, medians, equal results")
    for name, middle in medians.items():
        print(f"{name:32} {middle:7.2f} s   {middle / hand:6.2f} of by hand")
    print(json.dumps({"events": log.reader.count, "rounds": rounds, "seconds": medians}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
