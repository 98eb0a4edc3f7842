"""Short messages: openings, middles and endings, joined; with quotes, commas and letters from everywhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

U64 = npt.NDArray[np.uint64]

OPENINGS = (
    "hi", "hey there", "hello,", "Guten Morgen,", "olá", "so", "ok", "thanks", "lol", "about yesterday:",
    "quick question:", "did you see", "I think", "no way,", "yes,", "well…", "sorry,", "人が多いね", "привет,",
    "on my way,", "guess what:", "remind me,",
)  # fmt: skip
MIDDLES = (
    "are we still on for tonight", "the train is late again", "I finished the book you lent me",
    'she said "maybe, maybe not"', "lunch at 12, or later", "my naïve plan failed", "that café on the corner is closed",
    "can you send me the notes, please", "it's raining, of course", "nobody told me", "the game was great",
    "bring bread, milk; and cheese", "I can't find my keys", "see you on Monday", "the meeting moved to 3 pm",
    "how was the trip to Zürich", "100% agree", "check the second photo", "I'll call you back", "what a day",
    "half of it is mine", "let's try again tomorrow", "did you get the tickets", "no idea what 'it' means",
)  # fmt: skip
ENDINGS = ("", ".", "!", "?", " :)", " 🙂", "...", ", ok?", " — bye", "!!")
PITCHES = (
    "You have WON, answer to", "cheap watches, write to", "work from home: contact", 'ask for "the offer" at',
    "lonely? write me:", "your account needs a check, reply to", "rich returns, no risk:", "free tickets,, only at",
)  # fmt: skip
HOSTS = ("mail.example", "win.example", "post.example", "offers.example.net", "büro.example")


def texts(raw: U64, mail: npt.NDArray[np.bool_], spam: npt.NDArray[np.bool_], user: U64) -> pa.Array:
    """One text per row (large_string). `raw` is 64 random bits each; `mail` says who shows an e-mail address.

    `user` is whose address it is: a spammer gives the same one in all messages.
    """
    plain = pc.binary_join_element_wise(
        _pick(OPENINGS, raw, 0), _pick(MIDDLES, raw, 12), " ",
    )  # fmt: skip
    plain = pc.binary_join_element_wise(plain, _pick(ENDINGS, raw, 24), "")
    pitch = pc.if_else(
        pa.array(spam), _pick(PITCHES, raw, 36), pc.binary_join_element_wise(plain, "my address:", " ")
    )
    names = pc.binary_join_element_wise("user", pc.cast(pa.array(user), pa.string()), "")
    where = pc.take(pa.array(HOSTS), pa.array((user % np.uint64(len(HOSTS))).astype(np.int64)))
    address = pc.binary_join_element_wise(names, where, "@")
    with_mail = pc.binary_join_element_wise(pitch, address, " ")
    return pc.cast(pc.if_else(pa.array(mail), with_mail, plain), pa.large_string())


def _pick(words: tuple[str, ...], raw: U64, shift: int) -> pa.Array:
    """A word per row, by 12 of its random bits."""
    bits = (raw >> np.uint64(shift)) & np.uint64(0xFFF)
    index = (bits * np.uint64(len(words))) >> np.uint64(12)
    return pc.take(pa.array(words), pa.array(index.astype(np.int64)))
