"""`flags(body, codes...)`: a handler with this body is found guilty of exactly these codes."""

from __future__ import annotations

import importlib.util
import itertools
import textwrap
from pathlib import Path
from typing import Any

import pytest

from timelapse.analysis.purity import purity_findings
from timelapse.analysis.result import Diagnostic

_NUMBER = itertools.count()

MODULE = """\
import timelapse as tl

class Seen(tl.Event):
    who: int
    word: str
    tags: list[str]
    sizes: list[int]

class Out(tl.Record):
    n: int

{top}

class P(tl.Program):
    limit: int = 3
    words: frozenset = frozenset(("a", "b"))
    count: tl.Counter[int]

    @tl.on(Seen)
    def handle(self, e):
{body}
"""


class Check:
    """Makes modules in a temporary folder, so that their source can be found."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch

    def module(self, text: str) -> Any:
        name = f"purity_case_{next(_NUMBER)}"
        path = self._folder / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        self._patch.setitem(__import__("sys").modules, name, module)
        spec.loader.exec_module(module)
        return module

    def found(self, body: str, top: str = "") -> tuple[Diagnostic, ...]:
        text = MODULE.format(top=textwrap.dedent(top), body=textwrap.indent(textwrap.dedent(body), " " * 8))
        return purity_findings(self.module(text).P)

    def flags(self, body: str, *codes: str, top: str = "") -> None:
        found = self.found(body, top)
        assert sorted(d.code for d in found) == sorted(codes), "\n".join(map(str, found))
