"""What a pass is made of: kept statements, columns, rejects, members; functions that travel and fail well."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest
from pyspark import cloudpickle

from tests.analysis.cases import analysis, program, source
from tests.writers.sources import load_source
from timelapse.analysis import PassProgram, analyse, build_pass, final_pass
from timelapse.errors import AnalysisError


def cut(body: str, *targets: str, delta: bool = True, **parts: str) -> PassProgram:
    return build_pass(analysis(body, **parts), "pass", targets, targets if delta else ())


def text(work: PassProgram) -> str:
    return "\n".join(h.text.split(":\n", 1)[1] for h in work.handlers)


def lines(expected: str) -> str:
    return textwrap.indent(textwrap.dedent(expected).strip(), "    ")


CUTS = {
    "what is not needed goes": (
        "n = e.a\nm = e.b\nself.count[n] += 1\nself.other[m] += 1\nself.emit(Out(a=n))",
        "n = e.a\nself.count._e_add(n, 1)",
    ),
    "an empty branch turns the test round": (
        "if e.on:\n    self.other[1] += 1\nelse:\n    self.count[1] += 1",
        "if not e.on:\n    self.count._e_add(1, 1)",
    ),
    "a return that decides stays": (
        "if e.on:\n    self.other[1] += 1\n    return\nself.count[1] += 1",
        "if e.on:\n    return\nself.count._e_add(1, 1)",
    ),
    "a return that decides nothing goes": (
        "self.count[1] += 1\nif e.on:\n    return\nself.other[1] += 1",
        "self.count._e_add(1, 1)",
    ),
    "a loop keeps its break": (
        "for k in e.items:\n    if k > 2:\n        break\n    self.count[k] += 1\n    self.other[k] += 1",
        "for k in e.items:\n    if k > 2:\n        break\n    self.count._e_add(k, 1)",
    ),
    "reject loses its reason": (
        "self.count[1] += 1\nif e.on:\n    self.reject(Out(a=self.other[1]))",
        "self.count._e_add(1, 1)\nif e.on:\n    self.reject()",
    ),
    "subtraction negates": ("self.count[e.a] -= e.b", "self.count._e_add(e.a, -e.b)"),
    "a method with a default": ("self.count.add(e.a)", "self.count._e_add(e.a, 1)"),
    "a method with a name": ("self.count.add(key=e.a, n=2)", "self.count._e_add(e.a, 2)"),
    "deletion of a counter": ("del self.count[e.a]", "self.count._e_set(e.a, 0)"),
    "an effect without its result": (
        "n = self.count.add(e.a) or 3\nself.emit(Out(a=n))", "self.count._e_add(e.a, 1)",
    ),
    "a value with a call is evaluated before the key": (
        "self.count[len(e.s)] = abs(e.a)",
        "_tl_value1 = abs(e.a)\nself.count._e_set(len(e.s), _tl_value1)",
    ),
    "in a comprehension": (
        "[self.count.add(k) for k in e.items]", "[self.count._e_add(k, 1) for k in e.items]",
    ),
    "a dropped guard in an and": (
        "if e.a in self.count and e.on:\n    del self.count[e.a]", "if e.on:\n    self.count._e_set(e.a, 0)",
    ),
    "try keeps its handlers": (
        "try:\n    n = 10 // e.a\n    m = 1\nexcept ZeroDivisionError:\n    n = 0\n    m = 2\nself.count[n] += 1",
        "try:\n    n = 10 // e.a\nexcept ZeroDivisionError:\n    n = 0\nself.count._e_add(n, 1)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_the_cut_text(name: str) -> None:
    """A pass's handler, as text."""
    body, expected = CUTS[name]
    assert text(cut(body, "count")) == lines(expected)


def test_effects_of_every_kind() -> None:
    """add, set, del, first, top, and the key () of states without one."""
    body = """
        self.seen.add(e.a)
        self.best[e.a] = e.b
        self.best.pop(e.b)
        self.best.setdefault(e.a, 1)
        self.total += 1
        self.top = e.a
        del self.top
        self.peak.add(e.a, e.b)
        self.origin.add(e.a, e.b)
        """
    names = ("seen", "best", "total", "top", "peak", "origin")
    assert text(cut(body, *names)) == lines("""
        self.seen._e_set(e.a)
        self.best._e_set(e.a, e.b)
        self.best._e_del(e.b)
        self.best._e_first(e.a, 1)
        self.total._e_add((), 1)
        self.top._e_set((), e.a)
        self.top._e_del(())
        self.peak._e_top(e.a, e.b)
        self.origin._e_first(e.a, e.b)
        """)


METHODS = """
def bump(self, k, n=2):
    self.count[k] += n
    self.other[k] += 1
    return self.other[k]
"""


def test_a_method_is_cut_too() -> None:
    """The member keeps what the pass needs, and its defaults."""
    work = cut("if self.bump(e.a) > 2:\n    self.emit(Out(a=1))", "count", methods=METHODS)
    assert text(work) == lines("self.bump(e.a)")
    member = work.members["bump"]
    assert member.__defaults__ == (2,)
    assert member.__code__.co_name == "bump"


def test_super_and_helpers_are_called_by_names_of_their_own() -> None:
    """A base's method and a function that is given the program become members."""
    made = load_source(
        source("super().grow(e.a)\nbump(self, e.b)", top="def bump(p, k):\n    p.count[k] += 1").replace(
            "class P(tl.Program):",
            "class Base(tl.Program):\n    count: tl.Counter[int]\n\n    def grow(self, k):\n"
            "        self.count[k] += 1\n\n\nclass P(Base):",
        )
    )
    work = build_pass(analyse(made), "pass", ["count"], ["count"])
    assert text(work) == lines("self._super_Base_grow(e.a)\nself._helper_bump(self, e.b)")
    assert isinstance(work.members["_helper_bump"], staticmethod)


def test_a_property_is_cut_as_a_property() -> None:
    """Members hold a property where the program has one."""
    work = cut(
        "if self.many:\n    self.count[e.a] += 1", "count",
        methods="@property\ndef many(self):\n    return self.other[1] > 2",
    )  # fmt: skip
    assert isinstance(work.members["many"], property)
    assert work.exact == {"other"}


def test_columns_are_the_fields_that_kept_code_reads() -> None:
    """In declared order, without ts and seq, through methods and helpers."""
    work = cut(
        "self.note(e)\nif size(e) > e.ts + e.seq:\n    self.count[e.b] += 1", "count",
        methods="def note(self, event):\n    self.count[event.a] += 1\n    self.other[event.o] += 1",
        top="def size(event):\n    return len(event.items)",
    )  # fmt: skip
    assert work.columns == {"E": ("a", "b", "items")}


@pytest.mark.parametrize(
    "use", ["xs = [e]\nn = len(xs)", "n = len(repr(e))", "n = e\nn = n.a", "f = lambda: e\nn = f().a"]
)
def test_an_event_that_escapes_is_read_whole(use: str) -> None:
    """All fields are columns then."""
    assert cut(f"{use}\nself.count[n] += 1", "count").columns == {
        "E": ("a", "b", "s", "x", "o", "on", "items")
    }


def test_rejects_name_the_events_that_kept_code_may_reject() -> None:
    """F is rejected nowhere in the pass for what only E writes."""
    handlers = "@tl.on(F)\ndef f(self, e):\n    self.other[1] += 1\n    if e.a:\n        self.reject('no')"
    assert cut("self.count[e.a] += 1", "count", handlers=handlers).rejects == frozenset()
    assert cut("self.count[e.a] += 1", "other", handlers=handlers).rejects == {"F"}
    assert final_pass(analysis("self.count[e.a] += 1", handlers=handlers)).rejects == {"F"}


def test_states_that_are_written_but_matter_to_nobody_are_ignored() -> None:
    """A statement is kept whole; what else it writes is dropped by the engine."""
    work = cut("n = [self.other.add(k) or k for k in e.items]\nself.count[n[0]] += 1", "count")
    assert work.ignored == {"other"}
    assert work.exact == frozenset()


def test_what_a_pass_cannot_do_is_refused() -> None:
    """Deltas of what depends on itself, does not compose, is no target, or is read."""
    found = analysis(
        "if self.count[e.a] < 3:\n    self.count[e.a] += 1\nself.high[1] += e.x\nself.other[self.total] += 1"
    )
    for targets, delta in [
        (["count"], ["count"]), (["high"], ["high"]), (["count"], ["other"]), (["nothing"], []),
        (["other", "total"], ["other", "total"]),
    ]:  # fmt: skip
        if "total" in targets:
            found = analysis("self.total += 1\nself.other[self.total] += 1")
        with pytest.raises(AnalysisError):
            build_pass(found, "pass", targets, delta)


def test_cut_functions_travel_by_value() -> None:
    """cloudpickle ships them, with closures, although the module has functions of the same name."""
    work = cut("self.bump(pair(e.a, e.b)[0])", "count", methods=METHODS)
    again = cloudpickle.loads(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]
    assert again.handlers[0].function is not work.handlers[0].function
    assert again.handlers[0].function.__code__ == work.handlers[0].function.__code__
    assert again.columns == work.columns


def test_a_traceback_of_a_cut_function_shows_the_users_lines() -> None:
    """File and line are the original's."""
    made = program("n = 1\nm = e.missing\nself.count[m] += 1\nself.other[n] += 1")
    work = build_pass(analyse(made), "pass", ["count"], ["count"])
    handler = made.__spec__.handlers[0].function
    try:
        work.handlers[0].function(None, object())
    except AttributeError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        assert frame.filename == handler.__code__.co_filename
        assert frame.lineno == handler.__code__.co_firstlineno + 3
        assert frame.name == "handle"
        assert frame.line == "m = e.missing"
    else:
        pytest.fail("nothing was raised")


def test_closures_survive() -> None:
    """A program defined in a function keeps what its handlers close over."""
    made = load_source(
        source("pass")
        + textwrap.dedent("""
        def make(factor):
            class Q(tl.Program):
                count: tl.Counter[int]
                other: tl.Counter[int]

                @tl.on(E)
                def go(self, e):
                    self.count[e.a] += factor
                    self.other[e.a] += 1
            return Q

        Q = make(7)
        """),
        "Q",
    )
    work = build_pass(analyse(made), "pass", ["count"], ["count"])
    function = work.handlers[0].function
    assert function.__code__.co_freevars == ("factor",)
    assert function.__closure__ is not None
    assert function.__closure__[0].cell_contents == 7


def test_handlers_with_nothing_left_are_left_out() -> None:
    """Also when only a docstring or an emit is left."""
    work = cut(
        "self.emit(Out(a=1))", "count", handlers="@tl.on(F)\ndef f(self, e):\n    self.count[e.a] += 1"
    )
    assert [h.name for h in work.handlers] == ["f"]
    assert work.columns == {"F": ("a",)}


def test_analysis_is_kept_while_the_code_stays_the_same() -> None:
    """Twice the same object."""
    made = program("self.count[e.a] += 1")
    assert analyse(made) is analyse(made())


def test_nothing_depends_on_the_hash_seed(tmp_path: Path) -> None:
    """Facts, graphs and passes as text, in fresh processes with different PYTHONHASHSEED."""
    body = (
        "xs = [e.a]\nys = xs\nif e.a in self.seen and e.on:\n    ys.append(self.other[e.b])\n"
        "self.count[xs[0] + len(ys)] += self.total\nif e.a not in self.seen:\n    self.seen.add(e.a)\n"
        "if self.best[e.a] > 2 or self.last[e.a]:\n    self.reject('no')\nself.bump(e.a)"
    )
    (tmp_path / "prog.py").write_text(source(body, methods=METHODS))
    (tmp_path / "show.py").write_text(
        textwrap.dedent("""
        import prog
        from timelapse.analysis import analyse, build_pass, final_pass
        found = analyse(prog.P)
        print(found.text())
        for fn in found.functions.all:
            print(fn.text())
        for component in found.components:
            work = build_pass(found, "x", component, ())
            print(work.columns, sorted(work.exact), [h.text for h in work.handlers], list(work.members))
        """)
    )
    shown = set()
    for seed in ("0", "1", "42"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "show.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        shown.add(done.stdout)
    assert len(shown) == 1
    assert "add at P.handle" in shown.pop()
