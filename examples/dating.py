"""Features of a dating site's votes, one row at each vote, as they were known then.

timelapse explain examples/dating.py:VoteFeatures
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
    voter: int
    receiver: int
    up: bool


class Row(tl.Record):
    """Everything is as of just before the vote."""

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
            voter=v.voter, receiver=v.receiver, up=v.up,
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
