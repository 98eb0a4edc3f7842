"""The generated network, block by block. A block is a pure function of the settings and its number.

All randomness is Philox's raw output, which numpy keeps stable, keyed by (seed, what it is for) and
started at a counter that holds the block's number. So event i is the same whoever makes it, and a
shorter log with the same settings is the beginning of a longer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import UsageError
from timelapse.ids import DAY
from timelapse.synth.text import texts

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

BLOCK = 128 * 1024
"""Events in a block."""
MAX_USERS = 1_000_000
"""Cap of the default number of users; more can be asked for."""
TICK = 1000
"""Times are whole milliseconds, in microseconds."""
START = 1_790_812_800_000_000
"""2026-10-01 00:00 UTC."""
MAX_ADDRESSES = 1 << 24

TIES = 0.05  # share of events at the time of the one before
NEIGHBOURS = 12  # friends live within so many numbers on either side
AT_HOME = 0.85  # share of a normal user's messages that go to the neighbourhood
ABROAD = 0.97  # share of a spammer's messages that go to strangers
SPAM_MAIL = 0.8  # share of a spammer's messages that show an e-mail address
MAIL = 0.03  # the same for others
SPAM_ADDRESS = 0.95  # share of a spammer's messages that come from the few addresses of spammers


@dataclass(frozen=True)
class Network:
    """Settings of a generated log. `rate` is events per second, `start` microseconds UTC."""

    events: int
    exponent: float
    seed: int
    users: int
    addresses: int
    spammers: float
    friendships: float
    start: int
    rate: Fraction

    @classmethod
    def make(
        cls,
        events: int,
        *,
        exponent: float = 0.8,
        seed: int = 1,
        users: int | None = None,
        addresses: int | None = None,
        spammers: float = 0.02,
        friendships: float = 0.2,
        start: int = START,
        rate: float | None = None,
    ) -> Network:
        """Settings with defaults: users = events / 10 (10 to a million), addresses = users / 10, 30 days.

        Raises UsageError (TL812) for settings out of range.
        """
        users = max(10, min(MAX_USERS, events // 10)) if users is None else users
        addresses = max(1, min(MAX_ADDRESSES, users // 10)) if addresses is None else addresses
        if rate is not None and not 1e-9 <= rate <= 1e9:
            raise UsageError(f"rate is {rate}", hint="from 1e-09 to 1e+09 events per second", code="TL812")
        speed = Fraction(max(events, 1), 30 * 86_400) if rate is None else Fraction(rate)
        limits: list[tuple[str, float, float, float]] = [
            ("events", events, 0, 10**12), ("exponent", exponent, 0.0, 10.0), ("seed", seed, 0, 2**63 - 1),
            ("users", users, 2, 10**8), ("addresses", addresses, 1, MAX_ADDRESSES),
            ("spammers", spammers, 0.0, 1.0), ("friendships", friendships, 0.0, 1.0),
            ("start", start, -(2**61), 2**61),
        ]  # fmt: skip
        for name, value, low, high in limits:
            if not low <= value <= high:
                raise UsageError(f"{name} is {value}", hint=f"from {low:g} to {high:g}", code="TL812")
        start -= start % TICK
        if start + int(events / speed) * 1_000_000 > 2**62:
            raise UsageError("the log would end after the year 100,000", hint="a higher rate", code="TL812")
        return cls(events, exponent, seed, users, addresses, spammers, friendships, start, speed)

    @property
    def blocks(self) -> int:
        return -(-self.events // BLOCK)

    @property
    def days(self) -> float:
        return float(self.events / self.rate) * 1_000_000 / DAY

    def time_of_block(self, number: int) -> int:
        """When a block begins: whole milliseconds, so no tie reaches over its border."""
        micros = int(number * BLOCK * 1_000_000 / self.rate)
        return self.start + micros - micros % TICK


@dataclass(frozen=True)
class Tables:
    """What all blocks share: for each rank an upper edge in 64-bit random numbers, and who has that rank.

    Made once and given to all workers, so that no worker's mathematics library can differ.
    """

    user_edges: U64
    address_edges: U64
    user_of_rank: I64

    @classmethod
    def make(cls, network: Network) -> Tables:
        order = np.argsort(_raw(network.seed, 100, 0, network.users), kind="stable").astype(np.int64)
        return cls(
            _edges(network.users, network.exponent), _edges(network.addresses, network.exponent), order
        )


def _edges(count: int, exponent: float) -> U64:
    """Rank k of 1..count has weight k ** -exponent: the edges of the cumulative weights, as parts of 2**64."""
    sums = np.cumsum(np.arange(1, count + 1, dtype=np.float64) ** -exponent)
    below = np.minimum(sums[:-1] / sums[-1] * 2.0**64, 2.0**64 - 2048)  # the largest float below 2**64
    edges = below.astype(np.uint64)
    return np.append(edges, np.uint64(2**64 - 1))


def _raw(seed: int, purpose: int, block: int, count: int) -> U64:
    """`count` 64-bit random numbers for one purpose in one block."""
    bits = np.random.Philox(
        key=np.array([seed, purpose], np.uint64), counter=np.array([0, 0, 0, block], np.uint64)
    )
    return bits.random_raw(count)


def _unit(raw: U64) -> F64:
    """Numbers in [0, 1) with 53 random bits."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class Block:
    """Events in log order: times, type (0 Friendship, 1 Message), and each type's fields."""

    ts: I64
    kinds: I64
    friendships: pa.Table
    messages: pa.Table


@dataclass(frozen=True)
class Numbers:
    """Events in log order as numbers, before texts and addresses are written out; one entry per event each.

    What only messages have (`other` to `letters`) is drawn for friendships too, and means nothing there.
    """

    ts: I64
    kinds: I64
    number: I64
    """A message's id."""
    who: I64
    near: I64
    other: I64
    home: I64
    mail: npt.NDArray[np.bool_]
    spammer: npt.NDArray[np.bool_]
    letters: U64


def numbers(network: Network, tables: Tables, number: int) -> Numbers:
    """Block `number` of the log: events number * BLOCK to the next block's first, or the log's end."""
    own = network.seed

    def draw(purpose: int) -> U64:
        return _raw(own, purpose, number, BLOCK)

    ts = _times(network, number, draw(0), draw(1))
    is_message = _unit(draw(2)) >= network.friendships
    rank = np.searchsorted(tables.user_edges, draw(3), side="right").clip(max=network.users - 1)
    who = tables.user_of_rank[rank]
    spammer = _spammers(network, rank)
    choice = draw(4)
    near = _neighbour(network, who, choice)
    stranger = ((draw(5) >> np.uint64(32)) * np.uint64(network.users) >> np.uint64(32)).astype(np.int64)
    stranger = np.where(stranger == who, (stranger + 1) % network.users, stranger)
    away = _unit(draw(6)) >= np.where(spammer, 1 - ABROAD, AT_HOME)
    other = np.where(is_message & away, stranger, near)
    home = _addresses(network, tables, spammer, rank, draw(7), draw(8))
    mail = _unit(draw(9)) < np.where(spammer, SPAM_MAIL, MAIL)

    keep = min(BLOCK, network.events - number * BLOCK)
    kinds = is_message.astype(np.int64)[:keep]
    ts = ts[:keep]
    order = np.lexsort((kinds, ts))  # ties: friendships first, as declared
    return Numbers(
        ts[order], kinds[order], number * BLOCK + order, who[order], near[order], other[order], home[order],
        mail[order], spammer[order], draw(10)[order],
    )  # fmt: skip


def block(network: Network, tables: Tables, number: int) -> Block:
    """The same with texts: what a log of `synth.events` holds."""
    n = numbers(network, tables, number)
    messages, friendships = n.kinds == 1, n.kinds == 0
    who = n.who[messages]
    return Block(
        n.ts,
        n.kinds,
        pa.table({"a": n.who[friendships], "b": n.near[friendships]}),
        pa.table(
            {
                "id": n.number[messages],
                "sender": who,
                "recipient": n.other[messages],
                "ip": dotted(n.home[messages]),
                "text": texts(
                    n.letters[messages], n.mail[messages], n.spammer[messages], who.astype(np.uint64)
                ),
            }
        ),
    )


def _times(network: Network, number: int, place: U64, tie: U64) -> I64:
    """Random times within the block's span, in order; some at the time of the one before."""
    first, end = network.time_of_block(number), network.time_of_block(number + 1)
    ticks = (end - first) // TICK
    offsets = np.sort((_unit(place) * ticks).astype(np.int64))
    again = _unit(tie) < TIES
    again[0] = False
    source = np.maximum.accumulate(np.where(again, 0, np.arange(BLOCK)))
    return first + offsets[source] * TICK


def _spammers(network: Network, rank: I64) -> npt.NDArray[np.bool_]:
    """Spread evenly over the ranks, so that every exponent gets its share of them."""
    shift = _unit(_raw(network.seed, 101, 0, 1))[0]
    spread: npt.NDArray[np.bool_] = np.floor((rank + 1) * network.spammers + shift) > np.floor(
        rank * network.spammers + shift
    )
    return spread


def _neighbour(network: Network, who: I64, raw: U64) -> I64:
    """A user near `who` on a ring, the nearer the likelier (1 / distance)."""
    reach = max(1, min(NEIGHBOURS, (network.users - 1) // 2))
    distance = 1 + np.searchsorted(_distances(reach), raw, side="right").clip(max=reach - 1)
    sign = np.where(raw & np.uint64(1), 1, -1)
    found: I64 = (who + sign * distance) % network.users
    return found


@lru_cache(maxsize=8)
def _distances(reach: int) -> U64:
    return _edges(reach, 1.0)


def _addresses(
    network: Network, tables: Tables, spammer: npt.NDArray[np.bool_], rank: I64, raw: U64, other: U64
) -> I64:
    """Where each message comes from: spammers share the last few addresses of the ranking."""
    usual = np.searchsorted(tables.address_edges, raw, side="right").clip(max=network.addresses - 1)
    few = max(1, round(network.addresses * network.spammers))
    shared = network.addresses - 1 - rank % few
    return np.where(spammer & (_unit(other) < SPAM_ADDRESS), shared, usual)


def dotted(address: I64) -> pa.Array:
    """Address numbers (below 2**24) as 10.x.y.z, scattered: the first ones are not all in one net."""
    scattered = (address * 0x9E3779) & 0xFFFFFF  # odd factor: one to one
    octets = [(scattered >> shift) & 0xFF for shift in (16, 8, 0)]
    names = pa.array([str(n) for n in range(256)])
    parts = [pc.take(names, pa.array(octet)) for octet in octets]
    return pc.cast(pc.binary_join_element_wise("10", *parts, "."), pa.large_string())
