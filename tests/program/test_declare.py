"""What is refused when a class is defined: with the code, the line, and a remedy."""

from __future__ import annotations

import ast
import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import timelapse as tl
from timelapse.code.source import statements
from timelapse.errors import DefinitionError

HEAD = """\
import timelapse as tl
from typing import Any, NamedTuple

class E(tl.Event):
    x: int
    s: str

class R(tl.Record):
    x: int

"""


def load(source: str, folder: Path) -> ModuleType:
    path = folder / "user_program.py"
    path.write_text(HEAD + textwrap.dedent(source))
    spec = importlib.util.spec_from_file_location("user_program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_program"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["user_program"]
    return module


REFUSED = {
    "mutable parameter": ("TL101", "names: tuple = []", "class P(tl.Program):\n    names: tuple = []"),
    "mutable constant": ("TL101", "NAMES = {}", "class P(tl.Program):\n    NAMES = {}"),
    "unknown type": ("TL102", "n: complex", "class P(tl.Program):\n    n: complex = 1j"),
    "float key": ("TL102", "n: tl.Counter[float]", "class P(tl.Program):\n    n: tl.Counter[float]"),
    "too many arguments": ("TL102", "n: tl.Set[int, int]", "class P(tl.Program):\n    n: tl.Set[int, int]"),
    "set without a key": ("TL102", "n: tl.Set", "class P(tl.Program):\n    n: tl.Set"),
    "value without a default": (
        "TL108", "n: tl.Value[int, int]", "class P(tl.Program):\n    n: tl.Value[int, int]",
    ),
    "default of the wrong type": (
        "TL102", 'tl.state(default="")',
        'class P(tl.Program):\n    n: tl.Value[int, int] = tl.state(default="")',
    ),
    "default that is no literal": (
        "TL107", "tl.state(default=D)", "D = 3\nclass P(tl.Program):\n    n: tl.Value[int, int] = tl.state(default=D)",
    ),
    "state with a plain default": ("TL107", "= 0", "class P(tl.Program):\n    n: tl.Value[int, int] = 0"),
    "state(...) without a state": (
        "TL105", "n: int = tl.state", "class P(tl.Program):\n    n: int = tl.state(default=0)",
    ),
    "reserved name": ("TL105", "now: int", "class P(tl.Program):\n    now: int = 1"),
    "reserved method": ("TL105", "", "class P(tl.Program):\n    def emit(self, r):\n        pass"),
    "undeclared write": (
        "TL103", "self.y = e.x",
        "class P(tl.Program):\n    @tl.on(E)\n    def h(self, e):\n        self.y = e.x",
    ),
    "undeclared read": (
        "TL103", "self.y + 1", "class P(tl.Program):\n    @tl.on(E)\n    def h(self, e):\n        return self.y + 1",
    ),
    "parameter assigned": (
        "TL103", "self.y = 3",
        "class P(tl.Program):\n    y: int = 1\n    @tl.on(E)\n    def h(self, e):\n        self.y = 3",
    ),
    "keyed state assigned": (
        "TL103", "self.y = 3",
        "class P(tl.Program):\n    y: tl.Counter[int]\n    @tl.on(E)\n    def h(self, e):\n        self.y = 3",
    ),
    "global": (
        "TL106", "global N",
        "N = 0\nclass P(tl.Program):\n    @tl.on(E)\n    def h(self, e):\n        global N\n        N = 1",
    ),
    "nonlocal": (
        "TL106", "nonlocal n",
        """
        def make():
            n = 0
            class P(tl.Program):
                @tl.on(E)
                def h(self, e):
                    nonlocal n
                    n = 1
            return P
        make()
        """,
    ),
    "bare except": (
        "TL106", "except:",
        "class P(tl.Program):\n    @tl.on(E)\n    def h(self, e):\n        try:\n            e.x\n"
        "        except:\n            pass",
    ),
    "generator": ("TL104", "def h", "class P(tl.Program):\n    @tl.on(E)\n    def h(self, e):\n        yield 1"),
    "async": ("TL104", "def h", "class P(tl.Program):\n    @tl.on(E)\n    async def h(self, e):\n        pass"),
    "mutable default argument": (
        "TL102", "def h", "class P(tl.Program):\n    def h(self, e, seen=[]):\n        pass",
    ),
    "handler signature": (
        "TL105", "def h", "class P(tl.Program):\n    @tl.on(E)\n    def h(self, e, more=1):\n        pass",
    ),
    "on without types": ("TL105", "", "class P(tl.Program):\n    @tl.on()\n    def h(self, e):\n        pass"),
    "on a record": ("TL105", "", "class P(tl.Program):\n    @tl.on(R)\n    def h(self, e):\n        pass"),
    "on without parentheses": ("TL105", "", "class P(tl.Program):\n    @tl.on\n    def h(self, e):\n        pass"),
    "unknown option": ("TL105", "", "class P(tl.Program, speed=3):\n    pass"),
    "Max of tuples": (
        "TL102", "n: tl.Max", "class P(tl.Program):\n    n: tl.Max[int, tuple[int, int]] = tl.state(default=(0, 0))",
    ),
    "event field type": ("TL102", "", "class F(tl.Event):\n    x: dict"),
    "event field default": ("TL101", "", "class F(tl.Event):\n    x: int = 3"),
    "event field ts": ("TL101", "", "class F(tl.Event):\n    ts: int"),
    "record key": ("TL101", "", "class F(tl.Record, key='y'):\n    x: int"),
    "missing resource": (
        "TL109", "", "class P(tl.Program):\n    m: Any = tl.resource('/nowhere/at/all', open)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    """The definition raises, with its code, the line it stands on, and a hint."""
    code, line_text, source = REFUSED[name]
    with pytest.raises(DefinitionError) as caught:
        load(source, tmp_path)
    error = caught.value
    assert error.code == code
    if line_text:
        lines = (tmp_path / "user_program.py").read_text().splitlines()
        assert error.place.line is not None
        near = "\n".join(lines[error.place.line - 1 : error.place.line + 1])
        assert line_text in near, f"line {error.place.line}: {near}"
        assert str(tmp_path) in str(error.place.file)
    assert error.hint


ACCEPTED = """
class Point(NamedTuple):
    x: int
    y: float

class Base(tl.Program):
    '''Documented.'''
    limit: int = 3
    share: float = 1
    names: tuple[str, str] = ("a", "b")
    many: tuple = (1, (2, "x"))
    LIMIT = 5
    a: tl.Counter[int]
    total: tl.Counter
    last: tl.Value[str] = tl.state(default="")
    where: tl.Value[tuple[int, str], Point | None]
    best: tl.Max[int, float] = tl.state(default=0.0)
    first: tl.First[bytes, int | None]
    low: tl.Min[int, int] = tl.state(default=-2**63)
    seen: tl.Set[bool]

    @tl.on(E)
    def one(self, e):
        self.total += 1

    @tl.on(E)
    def two(self, e):
        self.last = e.s

    @property
    def enough(self):
        return self.total > self.limit

    @staticmethod
    def helper(x):
        return x

class Sub(Base):
    limit = 7
    extra: tl.Counter[str]

    def one(self, e):
        super().one(e)
        self.extra[e.s] += 1

    @tl.on(E)
    def three(self, e):
        pass

class Less(Base):
    two = None
"""


def test_accepted_declarations(tmp_path: Path) -> None:
    """Parameters, states and handlers are found in order; overrides take their base's place."""
    module = load(ACCEPTED, tmp_path)
    base, sub, less = module.Base.__spec__, module.Sub.__spec__, module.Less.__spec__
    assert list(base.params) == ["limit", "share", "names", "many"]
    assert list(base.states) == ["a", "total", "last", "where", "best", "first", "low", "seen"]
    assert [h.name for h in sub.handlers] == ["one", "two", "three"]
    assert sub.handlers[0].function.__qualname__ == "Sub.one"
    assert [h.name for h in less.handlers] == ["one"]
    assert module.Sub().limit == 7
    assert module.Base(share=2).share == 2.0
    assert isinstance(module.Base().share, float)
    assert base.states["where"].text == "Value[tuple[int, str], Point | None]"


@pytest.mark.parametrize(
    ("call", "what"),
    [("Base(limt=1)", "limt"), ("Base(limit='x')", "limit"), ("Base(limit=True)", "limit")],
)
def test_wrong_parameters_are_refused(call: str, what: str, tmp_path: Path) -> None:
    """Unknown names and wrong types are errors that name the parameter."""
    module = load(ACCEPTED, tmp_path)
    with pytest.raises(Exception, match=what) as caught:
        eval(call, vars(module))
    assert caught.value.code in ("TL801", "TL201")  # type: ignore[attr-defined]


def test_programs_are_immutable(tmp_path: Path) -> None:
    """A program's parameters cannot be changed after it was made."""
    program = load(ACCEPTED, tmp_path).Base()
    with pytest.raises(AttributeError, match="immutable"):
        program.limit = 4


def test_a_program_without_handlers_is_not_run(tmp_path: Path) -> None:
    """A base class may have none; a replay of it would look like one that found nothing."""
    module = load(
        """
        class Base(tl.Program):
            seen: tl.Counter[str]

            def work(self, e: E) -> None:
                self.seen[e.s] += 1
        """,
        tmp_path,
    )
    for given in (module.Base, module.Base()):
        with pytest.raises(DefinitionError, match="Base has no handlers") as found:
            tl.replay(given, [module.E(ts=1, x=1, s="a")], spark=False)
        assert found.value.code == "TL105"
        assert "@tl.on(EventType)" in str(found.value)


NESTED = """
match x:
    case [1, 2] if (lambda: y)():
        def f(): pass
    case _:
        class A: pass
try:
    a
except* ValueError:
    b
else:
    async def g():
        async with c as d:
            async for e in [i for i in h]:
                k
        else_ = l if m else n
finally:
    while o:
        p
    else:
        q
"""


def test_statements_are_those_of_ast_in_its_order() -> None:
    """Whatever statements stand within: those that `ast.walk` finds among all nodes."""
    files = (Path(__file__).parents[2] / "src" / "timelapse" / "analysis").rglob("*.py")
    for text in [NESTED, *(path.read_text() for path in files)]:
        tree = ast.parse(text)
        expected = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
        assert expected
        assert [*map(id, statements(tree))] == [*map(id, expected)]
