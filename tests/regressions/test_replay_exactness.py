"""Programs that once made a replay differ, fall back or fail. Each must equal the serial meaning."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.writers.sources import load_source
from timelapse.log import Log
from timelapse.run import Run, replay, run_serial

MODULE = """
from __future__ import annotations
import timelapse as tl

class A(tl.Event):
    k: int
    v: int
    o: int | None

class Out(tl.Record):
    k: int

class Carrier(Exception):
    pass

def from_kwargs(**given): return given["event"].k
def through_eval(x): return eval("x.k")
def through_locals(x): return locals()["x"].k
def carry(xs): raise Carrier(xs)
def push(xs, x): xs.append(x)
def driven(xs):
    for i in range(2):
        xs.append(i)
        yield i

class P(tl.Program):
    c: tl.Counter[int]
    d: tl.Counter[int]

    s: tl.Set[int]
    v: tl.Value[int, int] = tl.state(default=0)
    m: tl.Max[int, int] = tl.state(default=0)

    def next(self):
        self.d[50] += 1
        return self.d[50]

    def generate(self, xs):
        xs.append(3)
        yield 4
        xs.append(6)

    def key(self, **given):
        self.d[7] += 1
        return given["event"].k

    @tl.on(A)
    def h(self, e):
        xs = [3]
{body}
        for x in xs:
            self.c[x if isinstance(x, int) else 77] += 1
        self.c[100 + len(xs)] += 1
        self.d[e.v] += 1
"""

CHANGES = {
    "del of an element": "del xs[0]",
    "loop target in a list": "for xs[0] in (4, 5): pass",
    "with target in a list": "import contextlib\nwith contextlib.nullcontext(9) as xs[0]: pass",
    "bound method given to map": "list(map(xs.append, [5]))",
    "bound method given to filter": "list(filter(xs.append, [5]))",
    "map driven by a loop": "for _ in map(xs.append, [5]): pass",
    "alias in dict(name=)": "d = dict(a=xs)\nd['a'].append(1)",
    "alias carried by an exception": (
        "try: raise Carrier(xs)\nexcept Carrier as error: error.args[0].append(1)"
    ),
    "alias carried by a helper's exception": (
        "try: carry(xs)\nexcept Carrier as error: error.args[0].append(1)"
    ),
    "alias out of a comprehension": "l = [y for y in [xs]]\nl[0].append(1)",
    "change of a comprehension's variable": "[y.append(1) for y in [xs]]",
    "helper that changes a comprehension's variable": "[push(y, self.d[1]) for y in [xs]]",
    "walrus in a comprehension": "[(z := y) for y in [xs]]\nz.append(1)",
    "comprehension that shadows": "x = xs\n[x.append(1) for x in [xs]]\nxs = x",
    "alias in a made class": "o = type('X', (), {'l': xs})\no.l.append(1)",
    "generator driven by a loop": "for _ in driven(xs): pass",
    "generator method driven by a loop": "for _ in self.generate(xs): pass",
    "generator method used in parts": "it = self.generate(xs)\nif e.v: next(it)\nxs.append(len(list(it)))",
    "generator expression driven by a loop": "for _ in (xs.append(i) for i in range(3)): pass",
}
ORDER = {
    "key before value in +=": "self.c[self.next()] += self.next()",
    "key before value in +=, of a list": "ys = [1, 2, 3]\nself.c[ys.pop()] += ys.pop()",
    "value before key in =": "y = 1\nself.v[y] = (y := 3)",
    "walrus in the key": "y = 1\nself.v[(y := 2)] = y\nself.v[y] += (y := 7)",
    "named arguments out of order": "self.m.add(value=self.next(), key=self.next())",
    "a guard that ends a loop": "while e.k not in self.s: self.s.add(e.k)",
    "a guard that ends a loop, with more": (
        "n = 0\nwhile n < 3 and e.k + n not in self.s:\n    self.s.add(e.k + n)\n    n += 1"
    ),
}
FIELDS = {
    "a field through **kwargs": "self.c[from_kwargs(event=e)] += 1",
    "a field through a method's **kwargs": "self.c[self.key(event=e)] += 1",
    "a field through eval": "self.c[through_eval(e)] += 1",
    "a field through locals()": "self.c[through_locals(e)] += 1",
}
ERRORS = {
    "emit of what is no record": "try: self.emit(e.o)\nexcept TypeError: self.c[1] += 1",
    "a record that does not fit": "try: self.emit(Out(k=e.o))\nexcept tl.TimelapseError: self.c[1] += 1",
    "a key that does not fit": "try: self.d[e.o] += 1\nexcept tl.TimelapseError: self.c[1] += 1",
    "a count out of range": "try: self.d[e.k] += 2**62\nexcept tl.TimelapseError: self.c[1] += 1",
}


def program(body: str) -> type[tl.Program]:
    return load_source(MODULE.replace("{body}", textwrap.indent(body, " " * 8)))


def events(cls: type[tl.Program]) -> list[Any]:
    event: Any = cls.__spec__.events[0]
    return [event(k=i % 3, v=i % 4, o=None if i % 3 else i, ts=i // 2) for i in range(12)]


def assert_exact(run: Run, reference: Run) -> None:
    assert run.certificate["fallback"] is None
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


BODIES = CHANGES | ERRORS | ORDER


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_what_a_handler_does_to_locals_is_followed(body: str) -> None:
    """A change in place, a caught error, the order of evaluation: all reach the passes that find start states."""
    cls = program(body)
    listed = events(cls)
    reference = run_serial(cls, listed)
    for slices in (3, 12):
        assert_exact(replay(cls, listed, slices=slices, spark=False, strategy="staged"), reference)


@pytest.mark.parametrize("body", FIELDS.values(), ids=FIELDS.keys())
def test_fields_that_helpers_read_are_loaded(body: str, tmp_path: Path) -> None:
    """From a stored log every field is there that the code reads, however it does so."""
    cls = program(body)
    listed = events(cls)
    log = Log.from_events(tmp_path / "log", listed)
    assert_exact(replay(cls, log, slices=3, spark=False, strategy="staged"), run_serial(cls, listed))


PARAMETERS = """
from typing import NamedTuple
import timelapse as tl

class Size(NamedTuple):
    a: int
    b: float

class A(tl.Event):
    k: int

class P(tl.Program):
    top: float = float("inf")
    bottom: float = -1.0
    words: frozenset[str] = frozenset({"a", "b"})
    places: tuple[int, ...] = (1,)
    size: Size = Size(1, 2.0)
    n: tl.Counter[int]

    @tl.on(A)
    def h(self, e):
        if self.bottom < e.k < self.top and e.k not in self.places and str(e.k) not in self.words:
            self.n[e.k] += self.size.a
"""


@pytest.mark.parametrize(
    "given",
    [
        {}, {"top": float("nan")}, {"bottom": float("-inf")}, {"words": frozenset()}, {"places": ()},
        {"places": (2, 3), "words": frozenset({"x"}), "top": 2.5},
    ],
)  # fmt: skip
def test_a_stored_run_finds_its_program_with_every_type_of_parameter(
    given: dict[str, Any], tmp_path: Path
) -> None:
    """Infinity, NaN, frozensets and NamedTuples are written so that they can be read again."""
    cls = load_source(PARAMETERS)
    event: Any = cls.__spec__.events[0]
    log = Log.from_events(tmp_path / "log", [event(k=i % 3, ts=i) for i in range(9)])
    replay(cls(**given), log, out=tmp_path / "run", slices=3, spark=False)
    opened = Run.open(tmp_path / "run")
    assert opened.verify().ok
    expected = run_serial(cls(**given), log).state("n", at=5)
    assert opened.state("n", at=5).to_pylist() == expected.to_pylist()


def test_both_ways_list_record_types_that_nothing_was_put_out_of() -> None:
    """`table` of a record type without rows is empty, from a replay and from the serial meaning."""
    cls = program("if e.v > 99: self.emit(Out(k=1))")
    listed = events(cls)
    run, reference = replay(cls, listed, slices=3, spark=False), run_serial(cls, listed)
    assert run.counts == reference.counts == {"Out": 0}
    assert run.table("Out").schema == reference.table("Out").schema
