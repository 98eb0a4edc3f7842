"""Helpers that are lambdas: found in their lines, analysed, compiled and kept like functions with a name."""

from __future__ import annotations

import ast
import random
import types
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cache.programs import PROGRAM, written
from tests.depth import deep
from tests.native.fuzz.emulate import emulated
from tests.tuned import tune_cache
from tests.writers.sources import load_source
from timelapse.analysis import Severity, analyse, final_pass
from timelapse.cache.key import CoreKey, core_key
from timelapse.code.source import function_source
from timelapse.kernels.choose import SWITCH, choice
from timelapse.kernels.native import build
from timelapse.testing import check_replay


def body_of(function: Any) -> str:
    """What a lambda returns, as its source says; or why that cannot be told."""
    found = function_source(function, lambdas=True)
    if found.node is None:
        return f"? {found.problem}"
    (statement,) = found.node.body
    assert isinstance(statement, ast.Return)
    assert statement.value is not None
    return ast.unparse(statement.value)


def _adds(k: int) -> Any:
    return lambda x: x + k


# fmt: off
# ruff: noqa: E731, PLC3002, C416
ONE_LINE = [lambda x: x // 2, lambda x: x // 2 if x > 3 else 0, lambda x: (x * 2), lambda: 5, lambda *a, b=1: (a, b)]
INSIDE: Any = lambda x: (lambda y: y + 1)(x)
MADE = (lambda x: lambda y: x + y)(1)
LISTED = lambda n: [i for i in range(n)]
LONG = lambda x: (
    x + 1
)
FOLDED = lambda x: 0 if True else (lambda: 1)
ACCENTS = "éé", lambda x: x + 1, "é", lambda x: x + 1.0
# fmt: on


def test_a_lambda_is_found_in_its_line() -> None:
    """Also where the line has others, around it or inside it."""
    assert [body_of(f) for f in ONE_LINE] == ["x // 2", "x // 2 if x > 3 else 0", "x * 2", "5", "(a, b)"]
    assert [body_of(f) for f in (INSIDE, MADE, LISTED, LONG)] == [
        "(lambda y: y + 1)(x)", "x + y", "[i for i in range(n)]", "x + 1",
    ]  # fmt: skip
    assert body_of(FOLDED) == "0 if True else lambda: 1"
    assert [body_of(f) for f in ACCENTS if not isinstance(f, str)] == ["x + 1", "x + 1.0"]
    assert body_of(_adds(3)) == "x + k"
    assert function_source(INSIDE).node is None  # those who write functions anew do not get it


def test_where_it_cannot_be_told_nothing_is_said(tmp_path: Path) -> None:
    """A file that was edited since, and code that does not say where it comes from."""
    file = tmp_path / "lambdas_edited.py"
    file.write_text("f, g = lambda x: x + 1, lambda x: x + 2\n")
    found: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), found)
    assert [body_of(found[n]) for n in "fg"] == ["x + 1", "x + 2"]
    nowhere = found["f"].__code__.replace(co_linetable=b"")
    assert "does not say where" in body_of(types.FunctionType(nowhere, found))
    moved = tmp_path / "lambdas_moved.py"
    moved.write_text("f, g = lambda x: x + 2, lambda x: x + 1\n")
    code = found["f"].__code__.replace(co_filename=str(moved))
    assert "differs" in body_of(types.FunctionType(code, found))


# --- analysed -------------------------------------------------------------------------------------

HEAD = """
import time
import timelapse as tl

class Hit(tl.Event):
    user: int
    n: int

class Out(tl.Record):
    n: int
"""
BODY = """
class P(tl.Program):
    count: tl.Counter[int]
    last: tl.Value[int, int] = tl.state(default=0)

    @tl.on(Hit)
    def hit(self, e):
        self.count[f(e.user)] += g(e.n)
        if self.last[f(e.n)] < g(e.user):
            self.last[f(e.n)] = g(e.user)
            self.emit(Out(n=f(self.count[e.user])))
"""


def test_it_is_not_trusted_and_compiles() -> None:
    """Two on one line: each is what it is."""
    program = load_source(f"{HEAD}f, g = lambda x: x // 2, lambda x: x + 1\n{BODY}")
    assert analyse(program).trusted == ()
    assert choice(program(), final_pass(analyse(program)), final=True).compiled


def test_what_a_lambda_reads_of_the_world_is_found() -> None:
    """Nothing that a function with a name is refused for; also behind a closure of the same code."""
    program = load_source(f"{HEAD}f, g = lambda x: x, lambda x: int(time.time())\n{BODY}")
    assert [d.code for d in analyse(program).diagnostics if d.severity is Severity.ERROR] == ["TL114"]
    made = "def made(h):\n    def call(x):\n        return h(x)\n    return call\n"
    clock = "def clock(x):\n    return int(time.time())\n"
    program = load_source(f"{HEAD}{made}{clock}f = made(made(clock))\ng = made(abs)\n{BODY}")
    assert [d.code for d in analyse(program).diagnostics if d.severity is Severity.ERROR] == ["TL114"]
    assert not any("time.time" in d.message for d in analyse(program).trusted), (
        "what is refused is not trusted besides"
    )


# --- the same as the serial meaning ---------------------------------------------------------------


def _expression(rng: random.Random, depth: int = 0) -> str:
    if depth > 2 or rng.random() < 0.3:
        return rng.choice(("x", "x", str(rng.randint(-3, 9)), "k"))
    a, b, c = (_expression(rng, depth + 1) for _ in range(3))
    forms = (
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} // 3)", f"({a} % 5)", f"({a} if {b} > {c} else {c})",
        f"({a} and {b})", f"({a} or {b})", f"int({a} < {b})", f"max({a}, {b})", f"(-{a})", f"abs({a})",
    )  # fmt: skip
    return rng.choice(forms)


@pytest.mark.parametrize("switch", ["native", "python"])
def test_random_lambdas_are_the_serial_meaning(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs on one line, with defaults, from closures and calling each other; interpreted and compiled (emulated)."""
    monkeypatch.setenv(SWITCH, switch)
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    compiled = 0
    for seed in range(deep(5, 5)):
        rng = random.Random(seed)
        one, two, three = (_expression(rng) for _ in range(3))
        forms = (
            f"f, g = lambda x, k=2: {one}, lambda x, k=2: {two}",
            f"k = 3; f = lambda x: {one}; g = lambda x: f(x) + ({two})",
            f"k = 1; h = {{1: lambda x: {one}, 2: lambda x: {two}}}; f = h[1]; g = h[2]",
            f"def made(k):\n    return (lambda x: {one}), lambda x: {two}\nf, g = made(2)[0], made(4)[1]",
            f"k = 2\nf = lambda x: (lambda x: {one})({two})\ng = lambda x, *, k=5: {three}",
        )  # fmt: skip
        program = load_source(f"{HEAD}{forms[seed % len(forms)]}\n{BODY}")
        hit = vars(program)["hit"].__globals__["Hit"]
        events = [hit(user=rng.randint(-4, 6), n=rng.randint(-9, 9), ts=i // 2) for i in range(14)]
        compiled += choice(program(), final_pass(analyse(program)), final=True).compiled
        check_replay(program, events, slices=(3,), strategies=(None,))
    assert switch == "python" or compiled >= 3


# --- kept -----------------------------------------------------------------------------------------


def _key(module: Any) -> CoreKey:
    return core_key(module.Talk(), analyse(module.Talk), "log", [0, 10])


@pytest.mark.parametrize(
    ("setup", "call", "old", "new"),
    [
        ("f, g = lambda n: n + 1, lambda n: n + 2", "f(e.id) * g(e.id)", "n + 1, lambda n: n + 2", "n + 2, lambda n: n + 1"),
        ("f = lambda n: n + 1", "f(e.id)", "n + 1", "n + 2"),
        ("f = lambda n, k=1: n + k", "f(e.id)", "k=1", "k=2"),
        ("def made(k):\n    return lambda n: n + k\nf = made(1)", "f(e.id)", "made(1)", "made(2)"),
        ("F = {'a': lambda n: n, 'b': lambda n: 2}\nf = F['a']", "f(e.id)", "F['a']", "F['b']"),
        ("k = 1\nf = lambda n: n + k", "f(e.id)", "k = 1", "k = 2"),
    ],
)  # fmt: skip
def test_states_that_depend_on_lambdas_are_kept(
    setup: str, call: str, old: str, new: str, tmp_path: Path
) -> None:
    """Under a key that changes with what they do."""
    text = PROGRAM.replace("class Loud", f"{setup}\n\nclass Loud").replace("self.bonus(e.id) + 1", call)
    assert text.count(old) == 1
    keys = []
    for number, changed in enumerate((text, text, text.replace(old, new))):
        with written(tmp_path / str(number), program=changed) as module:
            keys.append(_key(module))
    assert [k.reason for k in keys] == ["", "", ""]
    assert keys[0].text == keys[1].text != keys[2].text


def test_a_lambda_of_a_table_is_trusted_when_it_is_taken_from_it_at_the_event(tmp_path: Path) -> None:
    """As a function with a name is: which one is called is not known before."""
    call = "F[e.text == 'x'](e.id)"
    text = PROGRAM.replace("class Loud", "F = {True: lambda n: n, False: lambda n: 2}\n\nclass Loud")
    with written(tmp_path, program=text.replace("self.bonus(e.id) + 1", call)) as module:
        assert "trusted" in _key(module).reason


def test_a_lambda_that_is_bound_anew_between_replays(tmp_path: Path) -> None:
    """Each replay is what the program is then."""
    text = PROGRAM.replace("class Loud", "f, g = lambda n: n, lambda n: n + 1\n\nclass Loud")
    with written(tmp_path, program=text.replace("self.bonus(e.id) + 1", "f(e.id)")) as module:
        before = _key(module)
        module.f, module.g = module.g, module.f  # type: ignore[attr-defined]
        after = _key(module)
        module.f, module.g = module.g, module.f  # type: ignore[attr-defined]
        assert before.reason == after.reason == ""
        assert _key(module).text == before.text != after.text


def test_replays_around_a_lambda_that_is_bound_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With kept states: what one replay kept is not taken for the other program."""

    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")
    program = load_source(f"{HEAD}f, g = lambda x: x // 2, lambda x: x + 1\n{BODY}")
    names = vars(program)["hit"].__globals__
    events = [names["Hit"](user=i % 7, n=i % 5, ts=i) for i in range(60)]
    log = tl.Log.from_events(tmp_path / "log", events, [names["Hit"]], block=16)
    for _ in range(2):
        run = tl.replay(program, log, slices=3, spark=False)
        assert run.digest == tl.run_serial(program, log).digest
        names["f"], names["g"] = names["g"], names["f"]
    again = tl.replay(program, log, slices=3, spark=False)
    assert again.certificate["cache"] is not None
    assert again.digest == tl.run_serial(program, log).digest
