"""A program for live backlogs whose handlers stay Python: a library scores every event on what is known of it, in place of a model or a rule engine."""

from __future__ import annotations

import hashlib

import timelapse as tl


class Letter(tl.Event):
    sender: int
    recipient: int
    length: int


class Suspect(tl.Record):
    sender: int
    sent: int
    to: int


class Scored(tl.Program):
    """Who is suspect, by how much is written and to whom."""

    rounds: int = 20
    """Of a key derivation in OpenSSL: about 10 us."""

    sent: tl.Counter[int]
    between: tl.Counter[tuple[int, int]]

    @tl.on(Letter)
    def score(self, e: Letter) -> None:
        self.sent[e.sender] += 1
        self.between[e.sender, e.recipient] += 1
        sent, to = self.sent[e.sender], self.between[e.sender, e.recipient]
        known = f"{sent} {to} {e.length}".encode()
        if hashlib.pbkdf2_hmac("sha256", known, b"model", self.rounds)[0] == 0:
            self.emit(Suspect(sender=e.sender, sent=sent, to=to))
