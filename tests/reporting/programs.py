"""A program and a log full of text that would do harm where it is taken for markup."""

from __future__ import annotations

from typing import Any

import timelapse as tl

HOSTILE = (
    "<script>window.harmed = 1</script>",
    "</script><script>window.harmed = 2</script>",
    '"><img src=x onerror="window.harmed = 3">',
    "<svg onload=window.harmed=4>",
    "</style><style>body{display:none}</style>",
    "{{ 7 * 7 }}{% raw %}",
    "<!--",
    "]]>",
    "javascript:window.harmed=5",
    "\x1b[31mred\x00\u202egnp.exe",
    "https://elsewhere.invalid/pixel.png",
    "&lt;b&gt;",
    "x" * 2_000_000,
)
DAY = 86_400_000_000


class Visit(tl.Event):
    n: int
    who: str
    text: str


class Seen(tl.Record, key="n"):
    n: int
    who: str
    text: str
    often: int


class Guard(tl.Program):
    """Who comes often <b>and</b> what they say; the rest is turned away."""

    limit: int = 2
    word: str = "</title><script>window.harmed = 6</script>"
    visits: tl.Counter[str]

    @tl.on(Visit)
    def come(self, e: Visit) -> None:
        self.visits[e.who] += 1
        if e.n % 7 == 6:
            self.reject("no: " + e.who)
        if self.visits[e.who] > self.limit:
            self.emit(Seen(n=e.n, who=e.who, text=e.text, often=self.visits[e.who]))


def events(count: int = 130) -> list[Any]:
    """Visits over 65 days, every hostile text as a name and as what is said."""
    return [
        Visit(n=n, who=HOSTILE[n % 12], text=HOSTILE[n * 5 % 13], ts=20_000 * DAY + n * DAY // 2)
        for n in range(count)
    ]
