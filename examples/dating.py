"""Features of a dating site's votes, one row at each vote, as they were known then.

timelapse explain examples/dating.py:VoteFeatures
timelapse features examples/dating.py:RecentVotes logs/oct --at labels.parquet --out training.parquet
"""

import timelapse as tl

BORDERS = (("north", "east"), ("east", "south"), ("south", "west"))


class Profile(tl.Event):
    user: int
    born: int


class Login(tl.Event):
    user: int
    region: str


class Vote(tl.Event):
    id: int
    voter: int
    receiver: int
    up: bool
    score: float
    """How well the two go together, from 0 to 1, by the model that showed them to each other."""


class Row(tl.Record, key="vote"):
    """Everything is as of just before the vote."""

    vote: int
    voter: int
    receiver: int
    up: bool
    same_region: bool
    bordering: bool
    age_difference: int | None
    same_age_bucket: bool
    idle: int | None
    receiver_active: bool
    positive_share: float | None
    positive_lately: float | None
    received_since: int
    outstanding: int
    mean_answer: float | None


class RecentRow(tl.Record, key="vote"):
    """Everything is as of just before the vote."""

    vote: int
    positive: float | None
    """Of the last 30 days' votes for the receiver: those that are positive."""
    strong: int
    """Votes for the receiver whose score is above the threshold."""
    strong_lately: int
    """Of the last 30 days."""
    outstanding: float | None
    """Of the last 7 days' votes for the voter that ask for an answer: those that have none yet."""
    mean_score: float | None
    """In thousandths: over the voter's votes of the last 30 days that are not answers."""
    lowest_score: float | None


class VoteFeatures(tl.Program):
    """Where both are, how old, how active, how they vote and are voted for, how fast they answer."""

    active: int = 7 * tl.DAY

    born: tl.Value[int, int | None]
    region: tl.Value[int, str | None]
    acted: tl.Value[int, int | None]
    votes_for: tl.Mean[int]
    """1 for a positive vote, 0 for another."""
    votes_lately: tl.Smoothed[int] = tl.state(alpha=0.1)
    received: tl.Counter[int]
    """Since the user last voted."""
    outstanding: tl.Counter[int]
    """Votes for the user that had no vote back."""
    asked: tl.Value[tuple[int, int], int | None]
    """When the first voted for the second, while that is unanswered."""
    answers: tl.Mean[int]

    @tl.on(Profile)
    def register(self, e: Profile) -> None:
        self.born[e.user] = e.born

    @tl.on(Vote)
    def row(self, v: Vote) -> None:
        here, there = self.region[v.voter], self.region[v.receiver]
        mine, theirs = self.born[v.voter], self.born[v.receiver]
        last, seen = self.acted[v.voter], self.acted[v.receiver]
        self.emit(Row(
            vote=v.id, voter=v.voter, receiver=v.receiver, up=v.up,
            same_region=here is not None and here == there,
            bordering=(here, there) in BORDERS or (there, here) in BORDERS,
            age_difference=None if mine is None or theirs is None else abs(mine - theirs),
            same_age_bucket=mine is not None and theirs is not None and mine // 5 == theirs // 5,
            idle=None if last is None else v.ts - last,
            receiver_active=seen is not None and v.ts - seen <= self.active,
            positive_share=self.votes_for[v.receiver], positive_lately=self.votes_lately[v.receiver],
            received_since=self.received[v.voter], outstanding=self.outstanding[v.voter],
            mean_answer=self.answers[v.voter],
        ))  # fmt: skip

    @tl.on(Login)
    def locate(self, e: Login) -> None:
        self.region[e.user] = e.region
        self.acted[e.user] = e.ts

    @tl.on(Vote)
    def count(self, v: Vote) -> None:
        self.acted[v.voter] = v.ts
        self.votes_for.add(v.receiver, 1 if v.up else 0)
        self.votes_lately.add(v.receiver, 1 if v.up else 0)
        del self.received[v.voter]
        self.received[v.receiver] += 1

    @tl.on(Vote)
    def answer(self, v: Vote) -> None:
        asked = self.asked[v.receiver, v.voter]
        if asked is not None:
            self.answers.add(v.voter, v.ts - asked)
            del self.asked[v.receiver, v.voter]
            self.outstanding[v.voter] -= 1
        elif (v.voter, v.receiver) not in self.asked:
            self.asked[v.voter, v.receiver] = v.ts
            self.outstanding[v.receiver] += 1


class RecentVotes(tl.Program):
    """The same site, over the last days: positive and strong votes, what is still outstanding, what the model thought."""

    threshold: float = 0.8

    votes_for: tl.Mean[int]
    """1 for a positive vote, 0 for another."""
    strong: tl.Counter[int]
    asking: tl.Counter[int]
    """Votes for the user that ask for an answer: neither answers themselves, nor asked before."""
    unanswered: tl.SetOf[int, int]
    """By receiver: whose votes had no vote back."""
    scores: tl.Mean[int]
    lowest: tl.Min[int, float | None]

    @tl.on(Vote)
    def row(self, v: Vote) -> None:
        asking = self.asking.last(7 * tl.DAY)[v.voter]
        self.emit(RecentRow(
            vote=v.id,
            positive=self.votes_for.last(30 * tl.DAY)[v.receiver],
            strong=self.strong[v.receiver],
            strong_lately=self.strong.last(30 * tl.DAY)[v.receiver],
            outstanding=self.unanswered.last(7 * tl.DAY).count(v.voter) / asking if asking else None,
            mean_score=self.scores.last(30 * tl.DAY)[v.voter],
            lowest_score=self.lowest.last(30 * tl.DAY)[v.voter],
        ))  # fmt: skip

    @tl.on(Vote)
    def count(self, v: Vote) -> None:
        self.votes_for.add(v.receiver, 1 if v.up else 0)
        if v.score > self.threshold:
            self.strong[v.receiver] += 1

    @tl.on(Vote)
    def answer(self, v: Vote) -> None:
        if (v.voter, v.receiver) in self.unanswered:
            self.unanswered.discard(v.voter, v.receiver)
            return
        self.scores.add(v.voter, round(1000 * v.score))
        self.lowest.add(v.voter, v.score)
        if (v.receiver, v.voter) not in self.unanswered:
            self.unanswered.add(v.receiver, v.voter)
            self.asking[v.receiver] += 1
