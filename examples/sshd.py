"""Brute-force logins over a real sshd log: a text source, read by a regular expression per event type.

OpenSSH_2k.log: 2,000 lines (https://github.com/logpai/loghub). Syslog dates carry neither year nor zone: `--year` and `--tz` give them.
syslogd folds repeated lines into "message repeated 5 times: [ ... ]", which is what `times` is for.

    timelapse ingest examples/sshd.py logs/sshd Failed=OpenSSH_2k.log Accepted=OpenSSH_2k.log \\
        --regex 'Failed=^(?P<ts>\\w{3} +\\d+ [\\d:]+) \\S+ sshd\\[\\d+\\]: (?:message repeated (?P<times>\\d+) times: \\[ )?Failed \\w+ for (?:invalid user )?(?P<user>.*) from (?P<address>\\S+) port \\d+' \\
        --regex 'Accepted=^(?P<ts>\\w{3} +\\d+ [\\d:]+) \\S+ sshd\\[\\d+\\]: Accepted \\w+ for (?P<user>.*) from (?P<address>\\S+) port \\d+' \\
        --time-format '%b %d %H:%M:%S' --year 2016 --tz UTC
    timelapse replay examples/sshd.py:BruteForce logs/sshd --set limit=10
    timelapse verify @last
"""

import timelapse as tl


class Failed(tl.Event):
    user: str
    address: str
    times: int | None


class Accepted(tl.Event):
    user: str
    address: str


class Attack(tl.Record, key="address"):
    address: str
    failures: int
    users: int


class Break(tl.Record, key=("address", "user")):
    address: str
    user: str
    failures: int


class BruteForce(tl.Program):
    """Report an address when its failed logins reach a limit, and every login that succeeds after failures."""

    limit: int = 10
    suspicious: int = 1

    failures: tl.Counter[str]
    users: tl.Set[tuple[str, str]]
    tried: tl.Counter[str]

    @tl.on(Failed)
    def note_user(self, e: Failed) -> None:
        if (e.address, e.user) not in self.users:
            self.users.add((e.address, e.user))
            self.tried[e.address] += 1

    @tl.on(Failed)
    def fail(self, e: Failed) -> None:
        before = self.failures[e.address]
        self.failures[e.address] += 1 if e.times is None else e.times
        if before < self.limit <= self.failures[e.address]:
            self.emit(
                Attack(address=e.address, failures=self.failures[e.address], users=self.tried[e.address])
            )

    @tl.on(Accepted)
    def accept(self, e: Accepted) -> None:
        if self.failures[e.address] >= self.suspicious:
            self.emit(Break(address=e.address, user=e.user, failures=self.failures[e.address]))
        del self.failures[e.address]
