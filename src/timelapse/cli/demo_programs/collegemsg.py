"""Who mostly writes to people who never write back, over real private messages.

CollegeMsg: 59,835 messages between 1,899 students, April to October 2004, as lines `src dst time`
(https://snap.stanford.edu/data/CollegeMsg.html). Two users are friends once each has written to the other.

    timelapse ingest examples/collegemsg.py logs/college Message=CollegeMsg.txt \\
        --sep ' ' --ts time --unit s --map Message.sender=src --map Message.recipient=dst
    timelapse explain examples/collegemsg.py:Strangers logs/college
    timelapse replay examples/collegemsg.py:Strangers logs/college --set limit=20
    timelapse verify @last
"""

import timelapse as tl


class Message(tl.Event):
    sender: int
    recipient: int


class Stranger(tl.Record, key="sender"):
    sender: int
    unanswered: int
    answered: int


class Strangers(tl.Program):
    """Name, once each, the senders of many messages that mostly go to people who never wrote to them."""

    limit: int = 30
    ratio: float = 5.0

    wrote: tl.Set[tuple[int, int]]
    answered: tl.Counter[int]
    unanswered: tl.Counter[int]
    named: tl.Set[int]

    @tl.on(Message)
    def count(self, m: Message) -> None:
        self.wrote.add((m.sender, m.recipient))
        if (m.recipient, m.sender) in self.wrote:
            self.answered[m.sender] += 1
        else:
            self.unanswered[m.sender] += 1

    @tl.on(Message)
    def name(self, m: Message) -> None:
        others, friends = self.unanswered[m.sender], self.answered[m.sender]
        if others >= self.limit and others > self.ratio * friends:
            if m.sender not in self.named:
                self.named.add(m.sender)
                self.emit(Stranger(sender=m.sender, unanswered=others, answered=friends))
