"""Random handlers in which rejects, writes and returns stand anywhere: what an event has written is undone, or was not there."""

from __future__ import annotations

import random

import pytest

import timelapse as tl
from tests.depth import some
from tests.flat.agree import agree
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.python.flat.kernel import FlatKernel
from timelapse.model.order import in_order
from timelapse.program.program import spec_of

_HEAD = """
import timelapse as tl


class Pay(tl.Event):
    a: int
    b: int
    n: int


class Done(tl.Record):
    a: int


class Random(tl.Program):
    held: tl.Counter[int]
    last: tl.Value[int, int] = tl.state(default=0)
"""
_CONDITIONS = ("e.n > 12", "e.n % 5 == 2", "self.held[e.a] % 3 == 1", "self.last[e.b] > 9", "e.a == e.b")
_WRITES = ("self.held[e.a] += 1", "self.last[e.b] = e.n", "self.held[e.b] -= 2")


class _Writer:
    """`late`: writes come where rejects no longer do, mostly."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines = _HEAD.splitlines()
        self.late = self.rng.random() < 0.7
        self.methods: list[str] = []

    def source(self) -> str:
        for n in range(self.rng.randrange(3)):
            self._function(f"m{n}", "", looks=self.rng.random() < 0.5)
            self.methods.append(f"m{n}")
        for n in range(self.rng.randrange(1, 3)):
            self._function(f"h{n}", "    @tl.on(Pay)", looks=False)
        return "\n".join(self.lines) + "\n"

    def _function(self, name: str, decorator: str, *, looks: bool) -> None:
        self.lines += ["", *([decorator] if decorator else []), f"    def {name}(self, e):"]
        count = self.rng.randrange(1, 5)
        for place in range(count):
            self._statement(2, 2, writes=not looks and (not self.late or place >= count // 2))

    def _statement(self, level: int, depth: int, *, writes: bool) -> None:
        rng, pad = self.rng, "    " * level
        kinds = ["reject", "emit", "call", *(["write"] * 3 if writes else [])]
        if depth:
            kinds += ["if", "leave", "for", "try"]
        kind = rng.choice(kinds)
        if kind == "write":
            self.lines.append(pad + rng.choice(_WRITES))
        elif kind == "call" and self.methods:
            self.lines.append(f"{pad}self.{rng.choice(self.methods)}(e)")
        elif kind == "reject" and not (self.late and writes and rng.random() < 0.8):
            reason = rng.choice(('"no"', "Done(a=e.n)", ""))
            self.lines += [f"{pad}if {rng.choice(_CONDITIONS)}:", f"{pad}    self.reject({reason})"]
        elif kind in ("if", "leave"):
            self.lines.append(f"{pad}if {rng.choice(_CONDITIONS)}:")
            self._block(level + 1, depth - 1, writes=writes)
            if kind == "leave":
                self.lines.append(f"{pad}    return")
            elif rng.random() < 0.4:
                self.lines.append(f"{pad}else:")
                self._block(level + 1, depth - 1, writes=writes)
        elif kind == "for":
            self.lines.append(f"{pad}for _ in (e.a, e.b):")
            self._block(level + 1, depth - 1, writes=writes)
        elif kind == "try":
            self.lines.append(f"{pad}try:")
            self._block(level + 1, depth - 1, writes=writes)
            if rng.random() < 0.6:
                self.lines += [f"{pad}    if {rng.choice(_CONDITIONS)}:", f"{pad}        raise KeyError(e.n)"]
            self.lines.append(pad + ("except KeyError:" if rng.random() < 0.7 else "finally:"))
            self._block(level + 1, depth - 1, writes=writes)
            if self.lines[-1].startswith(pad + "finally"):
                self.lines.append(f"{pad}    pass")
        else:
            self.lines.append(f"{pad}self.emit(Done(a=e.a))")

    def _block(self, level: int, depth: int, *, writes: bool) -> None:
        for _ in range(self.rng.randint(1, 2)):
            self._statement(level, depth, writes=writes)


def _events(program: type[tl.Program], seed: int) -> list[tl.Event]:
    rng = random.Random(seed)
    (pay,) = spec_of(program).events
    some = [
        pay(a=rng.randrange(4), b=rng.randrange(4), n=rng.randrange(20), ts=i // 3)  # type: ignore[call-arg]
        for i in range(60)
    ]
    return list(in_order(some))


def _one(seed: int) -> tuple[bool, int]:
    """Whether nothing is journaled, and how many events were rejected before the first error."""
    program = load_source(_Writer(seed).source(), "Random")
    events = _events(program, seed)
    journals = FlatKernel(program(), final_pass(analyse(program())), {}, final=True).journals
    found = agree(program(), events, [0, 25, len(events)])
    return not journals, sum(r.rejected.num_rows for r in found if r.rejected is not None)


@pytest.mark.parametrize("part", range(4))
def test_random_handlers_that_reject(part: int) -> None:
    free = [
        rejected for plain, rejected in map(_one, some(range(1500 + part * 30, 1530 + part * 30))) if plain
    ]
    assert sum(rejected > 0 for rejected in free) >= 1  # without a journal
