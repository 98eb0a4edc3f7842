"""What analysis cannot see through is said, with place and remedy, and everything then depends on everything."""

from __future__ import annotations

import textwrap
import types
from typing import Any

import pytest

import timelapse as tl
from tests.analysis.cases import analysis, program
from tests.analysis.driver import run_pass
from timelapse import serial
from timelapse.analysis import Severity, analyse, build_pass, final_pass
from timelapse.errors import AnalysisError

OPAQUE = {
    "alias": ("c = self.count\nc[e.a] += 1", "", "TL303"),
    "state as an argument": ("len(self.count)", "", "TL303"),
    "state in a list": ("for c in [self.count, self.other]:\n    c[e.a] += 1", "", "TL303"),
    "self in a local": ("me = self\nme.count[e.a] += 1", "", "TL307"),
    "self in a list": ("xs = [self]", "", "TL307"),
    "self to a library": ("repr(self)", "", "TL305"),
    "getattr": ("getattr(self, e.s)[e.a]", "", "TL305"),
    "vars": ("vars(self)", "", "TL305"),
    "a dunder": ("self.__dict__['count'][e.a]", "", "TL306"),
    "eval": ("eval('1')", "", "TL306"),
    "locals": ("locals()", "", "TL306"),
    "a method as a value": ("f = self.m\nf(e.a)", "def m(self, k):\n    self.count[k] += 1", "TL312"),
    "a write in a lambda": ("f = lambda k: self.seen.add(k)\nf(e.a)", "", "TL304"),
    "a write in a generator": ("any(x for x in [1])\nlist(self.seen.add(k) for k in e.items)\n"
                               "g = (self.seen.add(k) for k in e.items)", "", "TL304"),
    "an emit in a lambda": ("f = lambda: self.emit(Out(a=1))", "", "TL304"),
    "a nested function that uses self": ("def f():\n    return self.count[1]\nf()", "", "TL304"),
    "recursion": ("self.m(3)", "def m(self, k):\n    self.count[k] += 1\n    if k:\n        self.m(k - 1)", "TL302"),
    "a generator that reads": ("list(self.m())", "def m(self):\n    yield self.count[1]", "TL308"),
    "a jump in finally": ("for k in e.items:\n    try:\n        pass\n    finally:\n        break", "", "TL311"),
    "reject inside with": ("with contextlib.suppress(ValueError):\n    self.reject('no')", "", "TL311"),
    "an unknown operation": ("self.seen.remove(e.a)", "", "TL310"),
    "unpacked arguments": ("self.count.add(*e.items)", "", "TL310"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPAQUE)
def test_opaque_code_is_named_with_a_remedy(name: str) -> None:
    """One diagnostic with its code, the line, and what to do; it only costs speed."""
    body, methods, code = OPAQUE[name]
    found = analysis(body, methods=methods)
    (only,) = [d for d in found.diagnostics if d.code.startswith("TL30") or d.code.startswith("TL31")]
    assert only.code == code, only
    assert only.severity is Severity.INFO
    assert only.place.line is not None
    assert only.place.file is not None
    assert "in log order; " in only.remedy


@pytest.mark.parametrize("name", OPAQUE)
def test_with_opaque_code_every_state_depends_on_every_other(name: str) -> None:
    """One component, nothing composes, and no state can be computed by deltas."""
    body, methods, _ = OPAQUE[name]
    found = analysis(body, methods=methods)
    assert found.opaque
    assert len(found.components) == 1
    for facts in found.facts.values():
        assert facts.composes is not None
        assert facts.depends_on == frozenset(found.facts)
    with pytest.raises(AnalysisError):
        build_pass(found, "x", ["count"], ["count"])


def test_the_pass_of_an_opaque_program_is_the_program() -> None:
    """Everything exact, all fields read, every event type may be rejected."""
    made = program("c = self.count\nc[e.a] += 1\nif e.on:\n    self.reject('no')")
    found = analyse(made)
    work = build_pass(found, "all", tuple(found.facts), ())
    assert work.exact == frozenset(found.facts)
    assert work.rejects == {"E"}
    assert work.columns["E"] == ("a", "b", "s", "x", "o", "on", "items")
    event: Any = made.__spec__.events[0]
    events = [
        event(a=i % 3, b=0, s="", x=0.0, o=None, on=i % 2 == 0, items=[], ts=i, seq=i) for i in range(9)
    ]
    assert run_pass(made, work, events) == serial.run(made, events).states


def test_opaque_code_that_is_never_called_costs_nothing() -> None:
    """A method that no handler calls is not looked at."""
    found = analysis("self.count[e.a] += 1", methods="def unused(self):\n    return vars(self)")
    assert not found.opaque


def test_code_without_source_is_opaque() -> None:
    """A handler made by exec has no source that could be checked."""
    made = program("self.count[e.a] += 1")
    scope: dict[str, object] = {"tl": tl, "E": made.__spec__.events[0]}
    text = textwrap.dedent("""
        class Q(tl.Program):
            count: tl.Counter[int]
            @tl.on(E)
            def go(self, e):
                self.count[e.a] += 1
        """)
    exec(compile(text, "<nowhere>", "exec", dont_inherit=True), scope)
    found = analyse(scope["Q"])  # type: ignore[arg-type]
    assert [d.code for d in found.diagnostics][:1] == ["TL301"]
    assert found.opaque


def test_source_that_differs_from_the_running_code_is_opaque() -> None:
    """A handler whose code was replaced is not read from its old source; the analysis notices the change."""
    made = program("self.count[e.a] += 1")
    assert not analyse(made).opaque
    handler = made.__spec__.handlers[0].function
    other = program("self.count[e.b] += 2").__spec__.handlers[0].function
    handler.__code__ = other.__code__.replace(co_filename=handler.__code__.co_filename)
    found = analyse(made)
    assert [d.code for d in found.diagnostics if d.code == "TL309"]
    assert found.opaque


def test_library_calls_are_listed_as_trusted() -> None:
    """A call is trusted, once per place's function, with what it is; `math`, builtins and what `library.py` knows are not."""
    found = analysis(
        """
        if textwrap.fill("a", e.a) and textwrap.fill("b", e.a) and math.floor(e.x) > len(e.s.lower()):
            self.count[e.a] += 1
        """,
        top="import textwrap",
    )
    (only,) = found.trusted
    assert only.code == "TL320"
    assert "textwrap.fill is trusted" in only.message
    assert only.severity is Severity.INFO


def test_helpers_with_source_are_looked_into() -> None:
    """A helper of the program's own is not trusted as such; the library that it calls is."""
    top = "import textwrap\n\ndef test(s):\n    return textwrap.fill(s) is not None"
    found = analysis("if test(e.s) and pair(e.a, e.b):\n    self.count[e.a] += 1", top=top)
    (only,) = found.trusted
    assert "test: textwrap.fill" in only.message


def test_what_is_refused_and_what_is_known_is_not_trusted_too() -> None:
    """A helper that draws is refused, a table of the module is read: neither depends on something unseen."""
    top = (
        "import functools\nimport random\n\nTABLE = {'a': 1}\ndraw = functools.partial(random.random)\n\n"
        "def drawn():\n    return draw() + random.random()"
    )
    found = analysis(
        "if TABLE.get(e.s, 0) + len(TABLE.items()) > drawn():\n    self.count[e.a] += 1", top=top
    )
    assert not found.trusted


def test_a_resource_is_trusted(tmp_path: object) -> None:
    """What a file's loader gives is beyond analysis."""
    file = f"{tmp_path}/model.txt"
    with open(file, "w") as out:
        out.write("3")
    found = analysis(
        "self.count[self.model(e.a)] += self.model.size",
        methods=f"model: object = tl.resource({file!r}, str)",
    )
    assert {d.code for d in found.trusted} == {"TL321"}
    assert not found.opaque


def test_final_pass_of_any_program_is_untouched() -> None:
    """The handlers' own functions, every state exact, nothing ignored."""
    made = program("self.count[e.a] += self.other[e.b]\nself.emit(Out(a=1))")
    found = analyse(made)
    work = final_pass(found)
    assert [h.function for h in work.handlers] == [h.function for h in made.__spec__.handlers]
    assert isinstance(work.handlers[0].function, types.FunctionType)
    assert work.exact == frozenset(found.facts)
    assert work.columns == {"E": ("a", "b")}
    assert (work.delta, work.ignored, work.rejects, work.members) == (
        frozenset(),
        frozenset(),
        frozenset(),
        {},
    )
