"""The generated network: what it promises of its events, whoever makes them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from timelapse.errors import UsageError
from timelapse.synth.network import BLOCK, TICK, Network, Tables, block, dotted

SMALL: dict[str, Any] = {"users": 500, "addresses": 40, "rate": 20.0}


def made(network: Network, number: int = 0) -> Any:
    return block(network, Tables.make(network), number)


def test_a_shorter_log_is_the_beginning_of_a_longer_one() -> None:
    """Event i depends on the settings and i, not on how many events there are."""
    long = made(Network.make(BLOCK, seed=3, **SMALL))
    short = made(Network.make(1000, seed=3, **SMALL))
    assert short.ts.tolist() == long.ts[:1000].tolist()
    messages = short.messages.num_rows
    assert short.messages.slice(0, messages - 5).equals(long.messages.slice(0, messages - 5))


def test_blocks_follow_each_other_in_time_without_a_shared_instant() -> None:
    """Times never fall, some are tied, and no tie reaches over a block's border."""
    network = Network.make(3 * BLOCK, seed=3, **SMALL)
    tables = Tables.make(network)
    parts = [block(network, tables, number).ts for number in range(3)]
    for part in parts:
        assert (np.diff(part) >= 0).all()
        assert (part % TICK == 0).all()
        assert 0.02 < (np.diff(part) == 0).mean() < 0.2
    assert parts[0][-1] < parts[1][0]
    assert parts[1][-1] < parts[2][0]
    assert parts[0][0] >= network.start


def test_ties_put_friendships_first() -> None:
    """Events of one time are in the order of the declared types, as ingest would have put them."""
    first = made(Network.make(BLOCK, seed=3, **SMALL))
    tied = np.diff(first.ts) == 0
    assert tied.any()
    assert (np.diff(first.kinds)[tied] >= 0).all()


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.5, 4.0])
def test_senders_follow_the_power_law(exponent: float) -> None:
    """The shares of the first five ranks are what rank ** -exponent says."""
    network = Network.make(BLOCK, exponent=exponent, seed=11, **SMALL)
    tables = Tables.make(network)
    senders = block(network, tables, 0).messages["sender"].to_numpy()
    weights = np.arange(1, network.users + 1) ** -exponent
    for rank in range(5):
        share = (senders == tables.user_of_rank[rank]).mean()
        wanted = weights[rank] / weights.sum()
        assert abs(share - wanted) < 5 * np.sqrt(wanted / len(senders)) + 1e-9


def test_extreme_exponents_keep_everything_in_range() -> None:
    """Exponents up to 10 make no address or user outside the ranking."""
    for exponent in (0.0, 10.0):
        network = Network.make(5000, exponent=exponent, seed=1, users=2, addresses=1)
        messages = made(network).messages
        assert set(messages["sender"].to_pylist()) | set(messages["recipient"].to_pylist()) <= {0, 1}
        assert all(m["sender"] != m["recipient"] for m in messages.to_pylist())


def test_spammers_write_to_strangers_with_addresses_in_the_text() -> None:
    """2% of the users do, from few addresses; the others seldom do."""
    network = Network.make(BLOCK, seed=7, users=5000)
    tables = Tables.make(network)
    first = block(network, tables, 0)
    shift_free = first.messages.to_pylist()
    mails: dict[int, list[bool]] = {}
    for row in shift_free:
        mails.setdefault(row["sender"], []).append("@" in row["text"])
    busy = {who: np.mean(seen) for who, seen in mails.items() if len(seen) >= 30}
    spammers = {who for who, share in busy.items() if share > 0.5}
    assert 0.005 < len(spammers) / len(busy) < 0.05
    assert all(share < 0.25 for who, share in busy.items() if who not in spammers)
    theirs = {row["ip"] for row in shift_free if row["sender"] in spammers and "@" in row["text"]}
    assert len(theirs) < len({row["ip"] for row in shift_free}) / 2


def test_texts_are_awkward_enough() -> None:
    """Quotes, commas and letters beyond ASCII occur, so that whoever reads them has to cope."""
    texts = made(Network.make(20_000, seed=7, **SMALL)).messages["text"].to_pylist()
    for wanted in ('"', ",", "'", "é", "🙂", "人"):
        assert any(wanted in text for text in texts)
    assert len(set(texts)) > 1000


def test_the_generator_is_pinned() -> None:
    """The same settings give the same events in every version: a change here is a change of all logs."""
    first = made(Network.make(2000, seed=42, **SMALL))
    sink = hashlib.sha256(first.ts.tobytes() + first.kinds.tobytes())
    for table in (first.friendships, first.messages):
        for row in table.to_pylist():
            sink.update(repr(row).encode())
    assert sink.hexdigest()[:16] == "b119acf998e3214e"


def test_seeds_differ() -> None:
    """Another seed is another log."""
    one, two = (made(Network.make(1000, seed=seed, **SMALL)) for seed in (1, 2))
    assert one.ts.tolist() != two.ts.tolist()
    assert not one.messages.equals(two.messages)


def test_addresses_are_distinct_dotted_quads() -> None:
    """Different numbers are different addresses in 10.0.0.0/8."""
    names = dotted(np.arange(100_000)).to_pylist()
    assert len(set(names)) == 100_000
    assert all(name.startswith("10.") and name.count(".") == 3 for name in names)
    assert dotted(np.arange(3)).type == pa.large_string()


@pytest.mark.parametrize(
    "options",
    [
        {"events": -1}, {"events": 10, "exponent": -0.1}, {"events": 10, "exponent": float("nan")},
        {"events": 10, "users": 1}, {"events": 10, "spammers": 1.5}, {"events": 10, "friendships": -1.0},
        {"events": 10, "addresses": 2**25}, {"events": 10, "seed": -1}, {"events": 10**12, "rate": 1e-9},
        {"events": 10, "rate": float("inf")}, {"events": 10, "rate": -3.0}, {"events": 10, "rate": float("nan")},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(options: dict[str, Any]) -> None:
    """They raise TL812 with the range, and nothing else."""
    with pytest.raises(UsageError) as caught:
        Network.make(**options)
    assert caught.value.code == "TL812"
