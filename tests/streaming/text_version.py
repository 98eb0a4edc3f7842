"""A record of the name that others of these versions have, and not of the same types."""

from __future__ import annotations

import timelapse as tl


class Seen(tl.Record):
    who: int
    n: str
