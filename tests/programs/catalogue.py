"""The programs of the catalogue: where each is, what it is checked against, and a log for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import timelapse as tl
from tests.programs import loops, oracles, timed_oracles
from tests.programs.data import Draw, Mix, chance, near, number, one_of, several, skewed, some
from timelapse.program.load import load_events, load_program

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = ["red", "blue", "green", "old", "new", "small", "big", "house", "boat", "tree", "lamp", "chair"]
TEXTS = [
    "hello",
    "see you",
    "write to a@b.example",
    "x@spam.example!",
    "ok",
    "yes? me@home.example",
    "no",
    "later",
]
SIZES = {"small": 5, "large": 20_000}


@dataclass(frozen=True)
class Entry:
    """One program. `mix` makes its log for a number of keys."""

    title: str
    place: str
    """`file:Class` below examples/."""
    oracle: Callable[[oracles.Rows], oracles.Out]
    mix: Callable[[int], Mix]
    params: dict[str, Any] = field(default_factory=dict)
    grain: int = 1
    """A time that divides the program's windows, for logs with events exactly on their ends."""

    @property
    def loop(self) -> Callable[[oracles.Rows], oracles.Out]:
        """What one would write instead of the program: the oracle, unless that looks at all events each time."""
        found: Callable[[oracles.Rows], oracles.Out] = getattr(loops, self.oracle.__name__, self.oracle)
        return found

    @property
    def name(self) -> str:
        return self.place.partition(":")[2]

    def program(self) -> tl.Program:
        return load_program(f"{EXAMPLES}/{self.place}")(**self.params)

    def classes(self) -> dict[str, type[tl.Event]]:
        return dict(load_events(f"{EXAMPLES}/{self.place}"))


def _ips(keys: int) -> Draw:
    return one_of([f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(max(3, keys // 4))])


def _social(keys: int) -> Mix:
    user = skewed(keys)
    message = {"id": number, "sender": user, "recipient": user, "ip": _ips(keys), "text": one_of(TEXTS, 0.8)}
    return Mix({"Friendship": (1.0, {"a": user, "b": user}), "Message": (9.0, message)}, tl.SECOND)


def _asked(keys: int) -> Mix:
    fields = dict(_social(keys).fields)
    share = 0.5 if keys < 100 else 0.0005
    return Mix({**fields, "Ask": (share, {"rows": lambda rng, n: rng.integers(20, 21, n)})}, tl.SECOND)


def _readings(keys: int) -> Mix:
    return Mix({"Reading": (1.0, {"sensor": skewed(keys), "value": near(20.0, 1.5)})}, tl.SECOND // 10)


def _requests(keys: int) -> Mix:
    clients = [f"client-{i}" for i in range(keys)]
    return Mix(
        {"Request": (1.0, {"client": one_of(clients, 0.8)})},
        tl.SECOND // (2 * keys) if keys > 100 else 150_000,
    )


def _clicks(keys: int) -> Mix:
    return Mix({"Click": (1.0, {"user": skewed(keys)})}, 20 * tl.MINUTE // keys)


def _transfers(keys: int) -> Mix:
    account = skewed(keys, 0.2)
    return Mix({
        "Deposit": (1.0, {"account": account, "amount": some(1, 60)}),
        "Transfer": (9.0, {"source": account, "target": account, "amount": some(1, 40)}),
    }, 1000)  # fmt: skip


def _updates(keys: int) -> Mix:
    cell = skewed(keys, 0.2)
    return Mix({"Update": (1.0, {"reads": several(cell, 4), "target": cell, "value": some(0, 1000)})}, 1000)


def _votes(keys: int) -> Mix:
    user = skewed(keys)
    return Mix({
        "Profile": (1.0, {"user": user, "born": some(1960, 2000)}),
        "Login": (3.0, {"user": user, "region": one_of(["north", "east", "south", "west"])}),
        "Vote": (6.0, {
            "id": number, "voter": user, "receiver": user, "up": chance(0.4), "score": lambda rng, n: rng.random(n),
        }),
    }, tl.DAY // keys)  # fmt: skip


def _search(keys: int) -> Mix:
    item, words = skewed(keys), several(one_of(WORDS), 4)
    return Mix({
        "Title": (1.0, {"item": item, "words": words}),
        "Clicked": (3.0, {"item": item, "words": words}),
        "Shown": (6.0, {"id": number, "item": item, "words": words}),
    }, tl.SECOND)  # fmt: skip


def _accounts(keys: int) -> Mix:
    user = skewed(keys)
    return Mix({
        "Login": (2.0, {"id": number, "user": user, "address": _ips(keys)}),
        "Message": (7.0, {"id": number, "sender": user, "recipient": user, "text": one_of(TEXTS)}),
        "Report": (1.0, {"text": one_of(TEXTS)}),
    }, tl.HOUR // keys)  # fmt: skip


def _mail(keys: int) -> Mix:
    user = skewed(keys)
    message = {"id": number, "sender": user, "recipient": user, "text": one_of(TEXTS)}
    friends = {"a": user, "b": user}
    return Mix(
        {"Friendship": (0.5, friends), "Message": (9.5, message)}, 4 * tl.HOUR if keys < 100 else tl.SECOND
    )


def _letters(keys: int) -> Mix:
    fields = dict(_mail(keys).fields)
    return Mix({"Message": fields["Message"]}, 5 * tl.HOUR if keys < 100 else tl.SECOND)


def _messages(keys: int) -> Mix:
    user = skewed(keys)
    message = {"id": number, "sender": user, "recipient": user, "address": _ips(keys), "text": one_of(TEXTS)}
    return Mix({
        "Friendship": (0.5, {"a": user, "b": user}), "Report": (0.2, {"text": one_of(TEXTS)}), "Message": (9.3, message),
    }, 12 * tl.HOUR if keys < 100 else 3 * tl.SECOND)  # fmt: skip


def _logins(keys: int) -> Mix:
    return Mix({
        "Failed": (9.0, {"address": _ips(keys)}), "Accepted": (1.0, {"address": _ips(keys), "user": skewed(keys)}),
    }, tl.HOUR // (30 * keys))  # fmt: skip


def _cars(keys: int) -> Mix:
    car = {"vehicle": skewed(2 * keys, 0.1), "segment": some(0, max(3, keys // 20)), "speed": some(20, 90)}
    return Mix({"Car": (1.0, car)}, tl.HOUR // (20 * keys))


def _posts(keys: int) -> Mix:
    return Mix({"Post": (1.0, {"words": several(one_of(WORDS), 3)})}, 3 * tl.SECOND if keys < 100 else 30_000)


def _alerts(keys: int) -> Mix:
    process = skewed(4 * keys, 0.2)
    return Mix({
        "Process": (2.0, {"process": process, "user": skewed(keys)}), "Alert": (8.0, {"process": process}),
    }, tl.SECOND if keys < 100 else 10_000)  # fmt: skip


def _edges(keys: int) -> Mix:
    node = skewed(20 * keys, 0.1)
    return Mix({"Edge": (1.0, {"a": node, "b": node})}, tl.SECOND)


CATALOGUE = (
    Entry("IP spam (ReStream)", "spam.py:IpSpam", oracles.ip_spam, _social),
    Entry("Simple spam, top 20 (ReStream)", "spam.py:SimpleSpam", oracles.simple_spam, _asked),
    Entry("Do nothing (ReStream)", "spam.py:Nothing", oracles.nothing, _social),
    Entry("Count messages (ReStream)", "spam.py:CountMessages", oracles.count_messages, _social),
    Entry("Emit at nine (ReStream)", "spam.py:Ninth", oracles.ninth, _social),
    Entry("EWMA per sensor", "keyed.py:Ewma", oracles.ewma, _readings),
    Entry("Rate limiter, token bucket", "keyed.py:RateLimiter", oracles.rate_limiter, _requests),
    Entry("Sessions with a gap", "keyed.py:Sessions", oracles.sessions, _clicks),
    Entry("Streaming Ledger", "ledger.py:Ledger", oracles.ledger, _transfers),
    Entry("Grep and Sum", "ledger.py:GrepSum", oracles.grep_sum, _updates),
    Entry("Features of dating votes", "dating.py:VoteFeatures", oracles.vote_features, _votes),
    Entry("Features of search results, TF-IDF", "search.py:SearchFeatures", oracles.search_features, _search),
    Entry(
        "Features of accounts and addresses",
        "accounts.py:AccountFeatures",
        oracles.account_features,
        _accounts,
    ),
    Entry(
        "Features of recent votes", "dating.py:RecentVotes", timed_oracles.recent_votes, _votes, grain=tl.DAY
    ),
    Entry(
        "Features of a message",
        "messages.py:MessageFeatures",
        timed_oracles.message_features,
        _messages,
        grain=tl.DAY,
    ),
    Entry(
        "Answered by now", "messages.py:AnsweredByNow", timed_oracles.answered_by_now, _messages, grain=tl.DAY
    ),
    Entry(
        "Windowed spam, five rules (ReStream)",
        "windows.py:WindowedSpam",
        timed_oracles.windowed_spam,
        _mail,
        grain=120 * tl.MINUTE,
    ),
    Entry(
        "Answered within a day",
        "windows.py:AnsweredInADay",
        timed_oracles.answered_in_a_day,
        _letters,
        grain=4 * tl.HOUR,
    ),
    Entry(
        "Brute-force logins in a window",
        "windows.py:RecentBruteForce",
        timed_oracles.recent_brute_force,
        _logins,
        grain=tl.MINUTE,
    ),
    Entry(
        "Toll Processing", "windows.py:TollProcessing", timed_oracles.toll_processing, _cars, grain=tl.MINUTE
    ),
    Entry(
        "Top words over 30 s (ReStream)",
        "timed.py:TopWords",
        timed_oracles.top_words,
        _posts,
        grain=10 * tl.SECOND,
    ),
    Entry(
        "Alerts per user every 5 s",
        "timed.py:AlertsPerUser",
        timed_oracles.alerts_per_user,
        _alerts,
        grain=5 * tl.SECOND,
    ),
    Entry("Connected components", "timed.py:Components", timed_oracles.components, _edges),
)

FEATURES = (
    (
        "Sends that are responses to a message of the 14 days before, of the last 7 days",
        "messages.py:Row.responses",
    ),
    ("Sends of 7 days to 24 hours ago that were answered within 24 hours", "windows.py:Answered.share"),
    ("Sends of the last 7 days that are answered by now", "messages.py:AnswerRow.answered"),
    ("Sends of the last 7 days that were made in the last 24 hours", "messages.py:Row.today"),
    (
        "Conversations of the last 7 days that were initiated, after 30 days of silence",
        "messages.py:Row.initiated",
    ),
    ("Sends of the last 30 days with an e-mail address", "messages.py:Row.with_email"),
    ("The same with an address that an earlier report names", "messages.py:Row.with_reported"),
    ("Sends of the last 7 days to friends", "messages.py:Row.to_friends"),
    ("Login from an address never seen for the user", "accounts.py:LoginRow.new_address"),
    ("Volume of an address in the last 24 hours", "messages.py:Row.volume"),
    ("More than half of an address's last 7 days' volume in the last 24 hours", "messages.py:Row.surge"),
    ("Same last-known region", "dating.py:Row.same_region"),
    ("Bordering regions", "dating.py:Row.bordering"),
    ("Time since the last action", "dating.py:Row.idle"),
    ("Age difference", "dating.py:Row.age_difference"),
    ("Same 5-year bucket", "dating.py:Row.same_age_bucket"),
    ("Share of positive votes, all time", "dating.py:Row.positive_share"),
    ("The same, exponentially smoothed", "dating.py:Row.positive_lately"),
    ("The same, recent window", "dating.py:RecentRow.positive"),
    ("Votes above a threshold, all time", "dating.py:RecentRow.strong"),
    ("The same, recent window", "dating.py:RecentRow.strong_lately"),
    ("Active within a period", "dating.py:Row.receiver_active"),
    ("Votes received since the user last voted", "dating.py:Row.received_since"),
    ("Outstanding votes", "dating.py:Row.outstanding"),
    ("Mean time to answer a vote", "dating.py:Row.mean_answer"),
    ("Share of recent votes still outstanding", "dating.py:RecentRow.outstanding"),
    ("Mean score of recent votes that are not responses", "dating.py:RecentRow.mean_score"),
    ("Lowest score of recent votes that are not responses", "dating.py:RecentRow.lowest_score"),
    ("Overall popularity of an item", "search.py:Row.popularity"),
    ("Popularity given each term of the query, multiplied", "search.py:Row.given_query"),
    ("TF-IDF over the latest titles", "search.py:Row.tf_idf"),
)
"""Features of a message, vote, login or view, and the record's field that has it."""
