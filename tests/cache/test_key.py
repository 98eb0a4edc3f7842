"""The key changes with everything that a core depends on, and with nothing of the output part."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import timelapse as tl
from tests.cache.programs import EVENTS, HELPERS, PROGRAM, written
from timelapse.analysis import analyse
from timelapse.cache.key import CoreKey, core_key


def key_of(module: ModuleType, **params: Any) -> CoreKey:
    return core_key(module.Talk(**params), analyse(module.Talk), "log", [0, 10])


def text_of(folder: Path, **texts: str) -> str:
    with written(folder, **texts) as module:
        found = key_of(module)
    assert found.reason == ""
    return found.text


def test_it_is_the_same_for_the_same_program(tmp_path: Path) -> None:
    """Another folder, another import, another line: no difference."""
    assert (
        text_of(tmp_path / "a")
        == text_of(tmp_path / "b")
        == text_of(tmp_path / "c", program="\n\n" + PROGRAM)
    )


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("program", "+ 1\n", "+ 2\n"), ("program", "n % 3", "n % 4"), ("program", 'WORD = "x"', 'WORD = "y"'),
        ("program", "least: int = 2", "least: int = 3"), ("program", "state(default=-1)", "state(default=-2)"),
        ("program", "== self.WORD", "!= self.WORD"), ("program", "in self.friends", "not in self.friends"),
        ("program", "known: tl.Counter[int]", "known: tl.Value[int, int] = tl.state(default=0)"),
        ("helpers", "STEP = 1", "STEP = 2"), ("helpers", "a < b", "a <= b"), ("helpers", "len(text)", "2 * len(text)"),
        ("events", "to: int", "to: int | None"),
        ("program", "self.friends.add(pair(e.a, e.b))", "self.friends.add(pair(e.b, e.b))"),
    ],
)  # fmt: skip
def test_it_changes_with_the_core(file: str, old: str, new: str, tmp_path: Path) -> None:
    """Statements, helpers in other modules and their globals, base classes, constants, defaults, types."""
    whole = {"program": PROGRAM, "helpers": HELPERS, "events": EVENTS}[file]
    assert whole.count(old) == 1
    assert text_of(tmp_path / "a") != text_of(tmp_path / "b", **{file: whole.replace(old, new)})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("limit: int = 3", "limit: int = 4"), ("> self.limit", ">= self.limit"), ("- self.last", "+ self.last"),
        ("score: int", "score: int | None"), ("and e.who != e.to", "or e.id == 7"),
        ("self.emit(Loud(", "print; self.emit(Loud("),
    ],
)  # fmt: skip
def test_it_does_not_change_with_the_output_part(old: str, new: str, tmp_path: Path) -> None:
    """Thresholds, conditions and fields of the last rule."""
    assert PROGRAM.count(old) == 1
    assert text_of(tmp_path / "a") == text_of(tmp_path / "b", program=PROGRAM.replace(old, new))


def test_parameters_log_and_cuts(tmp_path: Path) -> None:
    """Parameters that the core reads count, others do not; the log and where it is cut do."""
    with written(tmp_path) as module:
        analysis = analyse(module.Talk)
        base = key_of(module).text
        assert key_of(module, limit=99).text == base
        assert key_of(module, least=99).text != base
        assert core_key(module.Talk(), analysis, "other", [0, 10]).text != base
        assert core_key(module.Talk(), analysis, "log", [0, 5, 10]).text != base
        assert core_key(module.Talk(), analysis, None, [0, 10]).reason.startswith("the log is in memory")


def test_a_file_that_was_edited_after_its_import(tmp_path: Path) -> None:
    """What runs is not what the file says: nothing is kept, and the reason is given."""
    with written(tmp_path) as module:
        before = key_of(module)
        (tmp_path / "cachetest_program.py").write_text(PROGRAM.replace("+ 1\n", "+ 2\n"))
        import linecache

        linecache.clearcache()
        from timelapse.analysis.analyse import forget

        forget()
        after = key_of(module)
    assert before.reason == ""
    assert "differs" in after.reason


def test_globals_that_change_while_the_program_is_loaded(tmp_path: Path) -> None:
    """The key sees the values of the moment, not those of the first look."""
    with written(tmp_path) as module:
        import cachetest_helpers as helpers  # type: ignore[import-not-found]

        before = key_of(module).text
        helpers.STEP = 5
        assert key_of(module).text != before
        helpers.STEP = 1
        assert key_of(module).text == before


@pytest.mark.parametrize(
    ("setup", "call", "why"),
    [
        ("import json", "len(json.dumps(e.text))", "json"),
        ("import numpy as np", "int(np.int64(e.id))", "np"),
        ("class M:\n    __slots__ = ('n',)\n    def __init__(self): self.n = 3\nm = M()", "m.n", "M"),
        ("class D(dict):\n    pass\nm = D(a=1)", "m['a']", "D"),
        ("import threading\nlocks = (threading.Lock(),)", "len(locks)", "lock"),
        ("def deco(f):\n    class W:\n        __wrapped__ = f\n        def __call__(self, n): return n\n    return W()\n"
         "@deco\ndef g(n): return n", "g(e.id)", "g"),
    ],
)  # fmt: skip
def test_what_cannot_be_hashed_has_no_key(setup: str, call: str, why: str, tmp_path: Path) -> None:
    """Libraries, objects that hide what they hold, decorators: the reason names them."""
    text = PROGRAM.replace("class Loud", f"{setup}\n\nclass Loud").replace("self.bonus(e.id) + 1", call)
    with written(tmp_path, program=text) as module:
        found = key_of(module)
    assert why in found.reason, found
    assert found.text == ""


@pytest.mark.parametrize(
    ("setup", "call", "old", "new"),
    [
        ("import re\nR = re.compile('a+')", "len(R.findall(e.text))", "'a+'", "'b+'"),
        ("import re\nR = re.compile('a+').match", "1 if R(e.text) else 2", "'a+'", "'b+'"),
        ("import enum\nclass C(enum.Enum):\n    A = 1\n    B = 2", "C.A.value", "A = 1", "A = 3"),
        ("class C:\n    _T = {'a': 1}", "C._T['a']", "'a': 1", "'a': 2"),
        ("T = {1: (2, [3])}", "T[1][0]", "(2, [3])", "(3, [3])"),
        ("f = lambda n: n\ng = lambda n: n + 1\nh = f", "f(1) + g(2) + h(3)", "h = f", "h = g"),
        ("def f(n):\n    try:\n        n += 1\n        n //= n\n    except ZeroDivisionError:\n        n = 5\n    return n",
         "f(e.id)", "n = 5", "n = 6"),
    ],
)  # fmt: skip
def test_what_the_core_reaches_is_looked_into(
    setup: str, call: str, old: str, new: str, tmp_path: Path
) -> None:
    """Patterns, enums, private tables, aliases of functions, handlers of exceptions."""
    text = PROGRAM.replace("class Loud", f"{setup}\n\nclass Loud").replace("self.bonus(e.id) + 1", call)
    assert text.count(old) == 1
    found = []
    for number, changed in enumerate((text, text.replace(old, new))):
        with written(tmp_path / str(number), program=changed) as module:
            found.append(key_of(module))
    if not any(k.reason for k in found):
        assert found[0].text != found[1].text
    else:  # a call that is trusted: then nothing is kept
        assert all("trusted" in k.reason for k in found), found


def test_an_impure_program_has_no_key() -> None:
    """A clock in the core."""
    import time

    class E(tl.Event):
        k: int

    class P(tl.Program):
        n: tl.Counter[int]

        @tl.on(E)
        def h(self, e: E) -> None:
            self.n[int(time.time())] += 1

    assert "pure" in core_key(P(), analyse(P), "log", [0, 1]).reason
