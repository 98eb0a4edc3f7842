"""Random programs of any kind: plain, with events that are sent, ticks and timers, windows, dated writes."""

from __future__ import annotations

import random

from tests.writers.looking import looking
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, random_program


def any_program(rng: random.Random) -> str:
    """The source of one."""
    text = random_program(rng, 3, further=rng.random() < 0.5)
    if rng.random() < 0.5:
        text = sending(rng, text, later=rng.random() < 0.6)
    if rng.random() < 0.6:
        made = in_other_times(rng, text)
        text = made if "@tl.on(" in made else text
    if rng.random() < 0.6:
        text = looking(rng, text, dated=rng.choice((0.0, 0.3)))
    return text
