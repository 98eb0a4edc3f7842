"""Ticks and derived events: top words, alerts per user, connected components.

timelapse explain examples/timed.py:TopWords
"""

import timelapse as tl


class Post(tl.Event):
    words: list[str]


class Process(tl.Event):
    process: int
    user: int


class Alert(tl.Event):
    process: int


class Edge(tl.Event):
    a: int
    b: int


class Label(tl.Event):
    """Derived: a node hears of a smaller label."""

    node: int
    label: int


class Top(tl.Record):
    rank: int
    word: str
    count: int


class Alerts(tl.Record):
    window: int
    user: int
    count: int


class Joined(tl.Record):
    node: int
    label: int


class TopWords(tl.Program):
    """Every ten seconds: the words that stood most often in the posts of the last thirty."""

    rows: int = 3

    words: tl.Counter[str]

    @tl.on(Post)
    def read(self, e: Post) -> None:
        for word in e.words:
            self.words[word] += 1

    @tl.every(10 * tl.SECOND)
    def report(self) -> None:
        for rank, (word, count) in enumerate(self.words.last(30 * tl.SECOND).top(self.rows)):
            self.emit(Top(rank=rank + 1, word=word, count=count))


class AlertsPerUser(tl.Program):
    """Every five seconds: alerts per user, joined by process; in tumbling windows of 5 s and hopping ones of 15 s."""

    user: tl.Value[int, int | None]
    alerts: tl.Counter[int]

    @tl.on(Process)
    def start(self, e: Process) -> None:
        self.user[e.process] = e.user

    @tl.on(Alert)
    def alert(self, e: Alert) -> None:
        user = self.user[e.process]
        if user is not None:
            self.alerts[user] += 1

    @tl.every(5 * tl.SECOND)
    def report(self) -> None:
        for user, count in self.alerts.last(5 * tl.SECOND).items():
            self.emit(Alerts(window=5, user=user, count=count))
        for user, count in self.alerts.last(15 * tl.SECOND).items():
            self.emit(Alerts(window=15, user=user, count=count))


class Components(tl.Program, loop=10_000_000):
    """Connected components of a growing graph: each node has the smallest number that it has heard of."""

    label: tl.Value[int, int | None]
    near: tl.SetOf[int, int]

    @tl.on(Edge)
    def join(self, e: Edge) -> None:
        self.near.add(e.a, e.b)
        self.near.add(e.b, e.a)
        for node in (e.a, e.b):
            if self.label[node] is None:
                self.label[node] = node
        a, b = self.label[e.a], self.label[e.b]
        if a is not None and b is not None and a != b:
            self.send(Label(node=e.b if a < b else e.a, label=min(a, b)))

    @tl.on(Label)
    def hear(self, e: Label) -> None:
        known = self.label[e.node]
        if known is None or e.label < known:
            self.label[e.node] = e.label
            self.emit(Joined(node=e.node, label=e.label))
            for other in self.near[e.node]:
                self.send(Label(node=other, label=e.label))
