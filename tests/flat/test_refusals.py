"""Events that are rejected by rewritten handlers: without an exception where it can be, undone where something was written."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from tests.flat.agree import agree
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.python.flat.kernel import FlatKernel
from timelapse.kinds.base import ABSENT
from timelapse.model.order import in_order
from timelapse.program.program import spec_of


class Pay(tl.Event):
    a: int
    b: int
    n: int


class Back(tl.Event):
    a: int
    n: int


class Refused(tl.Record):
    a: int
    short: int


class Done(tl.Record):
    a: int


class First(tl.Program):
    """Looks first, then acts: in a handler, in methods, in a loop that writes only behind the rejects."""

    held: tl.Counter[int]
    seen: tl.Set[int]

    @property
    def least(self) -> int:
        return self.held[0] // 50

    def check(self, a: int) -> None:
        if a == 3 and a in self.seen:
            self.reject("three")

    @tl.on(Pay)
    def look(self, e: Pay) -> Any:
        self.emit(Done(a=e.a))
        self.check(e.a)
        if e.n > 17:
            self.reject()
        if e.n == 16:
            return e.n
        if e.n == 15:
            try:
                if self.held[e.a] > 10:
                    self.reject("in a try")
                return e.n
            finally:
                self.emit(Done(a=-1))
        for other in (e.a, e.b):
            if self.held[other] < self.least - 5:
                self.reject(Refused(a=other, short=-self.held[other] if e.seq < 300 else 1 << 80))
        return False

    @tl.on(Pay)
    def act(self, e: Pay) -> None:
        self.held[e.a] -= e.n
        self.held[e.b] += e.n + 1
        self.seen.add(e.a)
        self.emit(Done(a=e.b))

    @tl.on(Back)
    def back(self, e: Back) -> None:
        if e.n > 15:
            self.reject(f"{e.n}")
        self.held[e.a] += e.n


class After(First):
    """Writes before it rejects."""

    @tl.on(Pay)
    def last(self, e: Pay) -> None:
        if self.held[e.b] % 7 == 3:
            self.reject(Refused(e.b, short=e.n))

    @tl.on(Back)
    def never(self, e: Back) -> None:
        if e.n == 13:
            self.reject("thirteen")


class Looping(tl.Program):
    """What a loop has written stands before the rejects of its next round."""

    held: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        for other in (e.a, e.b):
            if self.held[other] > 20:
                self.reject(f"too much of {other}")
            self.held[other] += e.n


class Handed(tl.Program):
    """Somebody else has the program."""

    held: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.held[e.a] += 1
        if e.n == 3:
            refuse(self, e.a)


def refuse(program: Any, a: int) -> None:
    program.reject(Refused(a=a, short=0))


class Sending(tl.Program, loop=30):
    """What an event sends is handled after it has written."""

    held: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        if e.n == 2:
            self.reject("two")
        self.send(Back(a=e.a, n=e.n))
        self.send(Back(a=e.b, n=e.n))
        if e.n == 3:
            self.reject("three")
        self.held[e.a] += 1

    @tl.on(Back)
    def back(self, e: Back) -> None:
        if self.held[e.a] % 4 == 3:
            self.reject(Refused(a=e.a, short=e.seq))
        self.held[e.a] += e.n

    @tl.on(Back)
    def again(self, e: Back) -> None:
        self.emit(Done(a=e.a))
        if e.n == 7:
            refuse(self, e.a)


class Returns(tl.Program):
    """What is written before an early return stands before what comes after the function."""

    held: tl.Counter[int]

    def note(self, e: Pay) -> None:
        if e.n > 2:
            self.held[e.a] += 1
            return
        self.emit(Done(a=e.a))

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        self.note(e)
        if e.n % 5 == 3:
            self.reject("late")


class Later(tl.Program):
    """The same in two handlers."""

    held: tl.Counter[int]

    @tl.on(Pay)
    def first(self, e: Pay) -> None:
        if e.n > 2:
            self.held[e.a] += 1
            return

    @tl.on(Pay)
    def second(self, e: Pay) -> None:
        if e.n % 5 == 3:
            self.reject("late")


class Finally(tl.Program):
    """What a return leaves behind comes before the end of the try around it."""

    held: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        try:
            if e.n > 2:
                self.held[e.a] += 1
                return
        finally:
            if e.n % 5 == 3:
                self.reject("late")


class Caught(tl.Program):
    """And what is written before an exception before its handler."""

    held: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        try:
            if e.n > 2:
                self.held[e.a] += 1
                raise KeyError(e.n)
        except KeyError:
            if e.n % 5 == 3:
                self.reject("late")


class Leaving(tl.Program):
    """What a `finally` writes when a reject leaves it comes after the reject, and has happened."""

    held: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        try:
            if e.n % 5 == 3:
                self.reject("late")
        finally:
            self.held[e.a] += 1


class Lazy(tl.Program):
    """A generator goes on when it is asked to."""

    held: tl.Counter[int]

    def rest(self, e: Pay) -> Any:
        yield e.a
        if e.n % 5 == 3:
            self.reject("late")

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        rest = self.rest(e)
        self.held[next(rest)] += 1
        list(rest)


class Delayed(tl.Program):
    """So does an expression of that kind."""

    held: tl.Counter[int]

    def full(self, e: Pay) -> bool:
        if e.n % 5 == 3:
            self.reject("late")
        return False

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        later = (self.full(e) for _ in (e.a, e.b))
        self.held[e.a] += 1
        if any(later):
            self.emit(Done(a=e.a))


class Rounds(tl.Program):
    """In a comprehension what comes later is written before what comes earlier the next time."""

    held: tl.Counter[int]

    def full(self, a: int) -> bool:
        if self.held[a] % 7 == 6:
            self.reject("full")
        return True

    def put(self, a: int) -> bool:
        self.held[a] += 1
        return True

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        _ = [self.full(a) and self.put(a) for a in (e.a, e.b)]


class Kept:
    """A descriptor that is neither a property nor callable."""

    def __get__(self, program: Any, cls: Any) -> int:
        program.held[0] += 1
        return 3


class Described(tl.Program):
    held: tl.Counter[int]
    kept = Kept()

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        if e.n % 5 == self.kept:
            self.reject("late")


def _events(count: int) -> list[tl.Event]:
    rng = random.Random(11)
    some = [
        Pay(a=rng.randrange(6), b=rng.randrange(6), n=rng.randrange(20), ts=i // 3)
        if rng.random() < 0.8
        else Back(a=rng.randrange(6), n=rng.randrange(20), ts=i // 3)
        for i in range(count)
    ]
    return list(in_order(some))


@pytest.mark.parametrize(
    ("program", "journals"),
    [
        (First, False),
        (After, True),
        (Looping, True),
        (Handed, True),
        (Sending, True),
        (Returns, True),
        (Later, True),
        (Finally, True),
        (Caught, True),
        (Rounds, True),
        (Described, True),
    ],
)
@pytest.mark.parametrize("quarantine", [False, True])
def test_what_is_rejected_leaves_nothing(program: type[tl.Program], journals: bool, quarantine: bool) -> None:
    events = list(in_order([e for e in _events(400) if type(e) in spec_of(program).events]))
    kernel = FlatKernel(
        program(), final_pass(analyse(program())), {}, final=True, quarantine=9 if quarantine else None
    )
    assert kernel.journals is (journals or quarantine)
    found = agree(program(), events, [0, 0, 170, len(events)], quarantine=quarantine)
    assert sum(r.rejected.num_rows for r in found if r.rejected is not None) > 10
    # A record whose value does not fit fails where it is made.
    fails = program in (First, After)
    assert (found[-1].failure is None) is (quarantine or not fails)
    assert any(r.quarantined for r in found) is (quarantine and fails)


class Most(tl.Program):
    """The largest of what may be None, and of what may be no number."""

    ints: tl.Max[int, int | None]
    floats: tl.Min[float | None]
    seen: tl.Counter[int]

    @tl.on(Pay)
    def pay(self, e: Pay) -> None:
        n: Any = None if e.n == 19 and e.a < 4 else e.n
        self.ints.add(e.a, n)
        self.floats.add(float("nan") if e.n == 18 and e.a < 4 else e.n / 3)
        self.ints.add(e.b, e.n - 10 if e.n != 17 else 1 << 70)
        self.emit(Done(a=self.ints.get(e.a, ABSENT) or 0))
        self.seen[e.a] += 1


def test_the_largest_of_optional_values() -> None:
    events = list(in_order([e for e in _events(400) if isinstance(e, Pay)]))
    found = agree(Most(), events, [0, 150, len(events)], quarantine=True)
    listed = repr([r.quarantined for r in found])
    assert all(name in listed for name in ("TypeMismatch", "NotANumber", "IntRange"))
