"""The event types of the generated social network: those of examples/antispam.py, which fits by name and fields."""

from __future__ import annotations

from timelapse.model.events import Event


class Friendship(Event):
    """Two users become friends."""

    a: int
    b: int


class Message(Event):
    """A private message. `ip` is the sender's address at the time."""

    id: int
    sender: int
    recipient: int
    ip: str
    text: str


EVENTS: tuple[type[Event], ...] = (Friendship, Message)
"""In declared order: ties in time put friendships first."""
