"""Decimals in compiled passes: whole numbers of their smallest unit, with the scale known beforehand."""

from __future__ import annotations

import ast

import pytest

from tests.native.agree import agree
from tests.native.fuzz.emulate import emulated
from tests.native.oracle import passes
from tests.writers.sources import load_source
from timelapse.kernels.choose import choice
from timelapse.kernels.native import build
from timelapse.program.program import as_program

HEAD = """
from decimal import Decimal
from typing import Annotated, NamedTuple
import timelapse as tl

Money = Annotated[Decimal, tl.scale(2)]
Rate = Annotated[Decimal, tl.scale(4)]
FEE = Decimal("0.25")

class Pay(tl.Event):
    user: int
    to: int
    amount: Money
    rate: Rate
    tip: Money | None
    parts: list[Money]

class Out(tl.Record):
    user: int
    a: Money
    b: Rate | None
    n: int
    f: float | None

class Pair(NamedTuple):
    a: Money
    n: int

class P(tl.Program):
    limit: Decimal = Decimal("1.5")
    low: Money = Decimal("-1.00")
"""

BODIES = {
    "sums": ("total: tl.Sum[int, Money]", "self.total[e.user] += e.amount", "self.total[e.to] -= e.amount + 1",
             "emit(self.total[e.user])"),
    "sum set": ("total: tl.Sum[int, Money]", "self.total[e.user] = e.amount - e.amount", "self.total.add(e.to, e.amount)",
                "del self.total[e.user % 2]", "emit(self.total[e.to])"),
    "one": ("total: tl.Sum[Money]", "self.total += e.amount * 3", "emit(self.total)"),
    "finer": ("total: tl.Sum[int, Money]", "self.total[e.user] += e.rate", "emit(self.total[e.user])"),
    "value": ("v: tl.Value[int, Money] = tl.state(default=Decimal('0.00'))", "self.v[e.user] += e.amount",
              "emit(self.v[e.user] - FEE)"),
    "value set": ("v: tl.Value[int, Money] = tl.state(default=Decimal(5))", "self.v[e.user] = max(e.amount, self.v[e.to])",
                  "emit(self.v[e.user])"),
    "optional": ("v: tl.Value[int, Money | None]", "if e.tip is not None and e.tip > 0: self.v[e.user] = -e.tip",
                 "emit(self.v[e.to] or 0)"),
    "extremes": ("x: tl.Max[int, Money | None]", "self.x.add(e.user, e.amount)", "emit(self.x[e.to] or Decimal(1))"),
    "least": ("x: tl.Min[int, Rate] = tl.state(default=Decimal('9'))", "self.x.add(e.user, e.amount + e.rate)",
              "emit(e.amount, self.x[e.to])"),
    "first": ("x: tl.First[int, Money | None]", "self.x.add(e.user, e.amount)", "emit(e.amount, self.x[e.to])"),
    "keys": ("s: tl.Set[tuple[int, Money]]", "s = (e.user, e.amount) in self.s", "self.s.add((e.to, e.amount))",
             "emit(e.amount, None, int(s))"),
    "counted": ("s: tl.Counter[Money]", "self.s[e.amount] += 1", "emit(e.amount, None, self.s[e.amount])"),
    "lists": ("x: tl.ListOf[int, Money] = tl.state(last=3)", "for p in e.parts: self.x.append(e.user, p + FEE)",
              "emit(sum(self.x[e.to]) + sum(e.parts))"),
    "maps": ("m: tl.MapOf[int, Money, Rate] = tl.state(default=Decimal(0))", "self.m[e.user, e.amount] += e.rate",
             "emit(e.amount, self.m[e.to, e.amount])"),
    "means": ("m: tl.Mean[int, Money]", "self.m.add(e.user, e.amount)",
              "emit(self.m.sum(e.to), None, self.m.count(e.to), self.m[e.user])"),
    "tuples": ("t: tl.Value[int, Pair | None]", "t = self.t[e.user]", "self.t[e.user] = Pair(e.amount, e.to)",
               "emit(e.amount if t is None else t.a)"),
    "windows": ("w: tl.Sum[int, Money]", "self.w[e.user] += e.amount",
                "emit(self.w.last(5)[e.user], self.w.ago(3)[e.to])"),
    "peaks": ("w: tl.Max[int, Money | None]", "self.w.add(e.user, e.amount)", "emit(e.amount, self.w.last(5)[e.to])"),
    "latest": ("w: tl.Value[int, Money | None]", "self.w[e.user] = e.amount", "emit(e.amount, self.w.last(5)[e.to])"),
    "compared": ("n: tl.Counter[int]", "if e.amount > e.rate or e.amount == 3 or e.tip == e.amount: self.n[1] += 1",
                 "if self.low <= e.amount < self.limit and e.rate: self.n[2] += 1",
                 "if not e.amount or e.amount in (1, FEE): self.n[3] += 1",
                 "emit(abs(e.amount), min(e.rate, e.amount, 1), self.n[1] + self.n[2] * 10 + self.n[3] * 100)"),
    "products": ("n: tl.Counter[int]", "self.n[1] += 1", "emit(e.amount * self.n[1], e.amount * self.low)"),
    "rounded": ("n: tl.Counter[int]", "self.n[1] += 1", "emit(e.amount * e.rate)"),
    "choices": ("n: tl.Counter[int]", "x = 0", "if e.user > 2: x = e.amount", "y = e.amount if e.to > 2 else Decimal('0.5')",
                "self.n[1] += 1", "emit(x - y)"),
    "folds": ("n: tl.Counter[int]", "self.n[1] += 1",
              "emit(max(e.parts, default=Decimal(0)), sum(p for p in e.parts if p > 1), len(e.parts))"),
}  # fmt: skip


def source(body: tuple[str, ...]) -> str:
    state, *lines = body
    text = [HEAD, f"    {state}", "    @tl.on(Pay)", "    def pay(self, e):"]
    for line in lines:
        if line.startswith("emit("):
            given = f"p({line[5:-1]})"
            given = f"self.emit(Out({_fields(line[5:-1])}))"
            line = given
        text.append(f"        {line}")
    return "\n".join(text) + "\n"


def _fields(text: str) -> str:
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    parts = [ast.unparse(a) for a in call.args]
    parts += ["None", "0", "None"][len(parts) - 1 :]
    return ", ".join(
        f"{n}={p}" for n, p in zip(("user", "a", "b", "n", "f"), ["e.user", *parts], strict=True)
    )


@pytest.fixture
def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without compiling, which tries many more programs."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))


def test_machine_code_of_decimals_agrees_with_python() -> None:
    for name in ("sums", "compared"):
        ran, left = agree(source(BODIES[name]))
        assert left < ran / 8


@pytest.mark.parametrize("name", BODIES)
def test_compiled_passes_of_decimals_agree_with_python(name: str, emulate: None) -> None:
    ran, left = agree(source(BODIES[name]), only_final=name in ("lists", "peaks", "latest"))
    if name not in ("finer", "rounded"):  # there most amounts have too many digits
        assert ran
        assert left < ran / 8


@pytest.mark.parametrize("name", [n for n in BODIES if n != "windows"])  # Python takes over near the limits
def test_at_the_limits_events_leave_to_python(name: str, emulate: None) -> None:
    agree(source(BODIES[name]), edges=True, seed=3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("self.n[1] = int(e.amount / 3 > self.n[2])", "`/` of Decimal[2] and int"),
        ("self.n[1] = int(e.amount.quantize(Decimal(1)) + self.n[1])", "quantize"),
    ],
)
def test_what_does_not_compile_says_why(line: str, reason: str) -> None:
    cls = load_source(source(("n: tl.Counter[int]", line, "emit(e.amount)")))
    work = next(w for w, final in passes(cls) if final)
    found = choice(as_program(cls()), work, final=True)
    assert not found.compiled
    assert reason in str(found.reason)
