"""Lists that Python makes of the event alone: columns, where nothing cheaper will do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.native.agree import agree
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.native.lowering.lower import Lowering
from timelapse.kernels.native.refused import Refused

HEAD = """
import re
import timelapse as tl

LETTER = re.compile(r"[a-z]")


class E(tl.Event):
    text: str
    words: list[str]
    numbers: list[int]
    other: int


class Out(tl.Record):
    n: int
    any: bool


def letters(text: str):
    return [c for c in text if c.isalpha()]


class P(tl.Program):
    seen: tl.Set[str]
    count: tl.Counter[str]
    total: tl.Counter
"""

SURE = """
    @tl.on(E)
    def loops(self, e: E) -> None:
        for word in sorted(set(e.words)):
            self.count[word] += 1
        for n in e.numbers:
            for word in sorted(e.words):
                self.count[word] += n
        for n in sorted(x * 3 for x in e.numbers):
            self.total += n
        self.emit(Out(n=self.count["a"], any=e.other in [n + 1 for n in e.numbers]))

    @tl.on(E)
    def kept(self, e: E) -> None:
        found = LETTER.findall(e.text)
        if found:
            self.total += 1
        for word in found[:2]:
            self.seen.add(word)
        self.emit(Out(n=len(found), any=any(w in self.seen for w in found)))

    @tl.on(E)
    def folds(self, e: E) -> None:
        self.count[e.text] += 1
        best = max((self.count[w] for w in letters(e.text)), default=0)
        self.emit(Out(n=best + sum(self.count[w] for w in e.text.split()), any=e.text in self.seen))

    @tl.on(E)
    def indexed(self, e: E) -> None:
        parts = sorted(e.words) + ["a"]
        self.count[parts[0]] += len(parts[1:])
        self.emit(Out(n=self.count[parts[-1]], any=parts[0] in self.seen))
"""

UNSURE = """
    @tl.on(E)
    def raising(self, e: E) -> None:
        for n in [6 // x for x in e.numbers]:
            self.total += n
        self.emit(Out(n=e.other, any=False))

    @tl.on(E)
    def huge(self, e: E) -> None:
        for n in [x * 2**61 for x in e.numbers]:
            if n > 5:
                self.total += 1

    @tl.on(E)
    def mixed(self, e: E) -> None:
        for n in [x ** (x - 2) for x in e.numbers]:
            if n > 1:
                self.total += 1
"""


def test_they_are_as_in_python() -> None:
    ran, left = agree(HEAD + SURE)
    assert left < ran / 10


def test_where_one_cannot_be_made_python_handles_the_event() -> None:
    """It raises, or holds what is no int64, or something else than its kind."""
    ran, left = agree(HEAD + UNSURE)
    assert 0 < left <= ran


def _columns(body: str) -> list[tuple[str, str]]:
    cls: Any = load_source(HEAD + "    @tl.on(E)\n    def go(self, e: E) -> None:\n        " + body)
    unit = Lowering(cls(), final_pass(analyse(cls)), final=True).run()
    return [(c.kind, c.part) for c in unit.columns if c.computed is not None and c.part != "raised"]


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ('self.total += len(e.text.split()) > 3', [("int", "")]),
        ('for w in sorted(e.words) if e.other > 2 else LETTER.findall(e.text): self.seen.add(w)',
         [("str", "items"), ("int", "offsets")]),
        ('self.count[e.text.split(" ")[0]] += 1', [("str", "")]),
        ('if "a" in e.text.split(): self.total += 1', [("bool", "")]),
        ('self.seen.add("".join(sorted(e.words)))', [("str", "")]),
        ('self.total += sum(1 for w in e.text.split() if w in self.seen)', [("str", "items"), ("int", "offsets")]),
    ],
)  # fmt: skip
def test_the_whole_expression_is_the_column_where_it_can_be(
    expression: str, columns: list[tuple[str, str]]
) -> None:
    """No word of a text need get a code then."""
    assert _columns(expression) == columns


@pytest.mark.parametrize("body", [
    "found = e.words if self.count['a'] else LETTER.findall(e.text)\n        for w in found: self.seen.add(w)",
    "found = LETTER.findall(e.text)\n        found.append('x')\n        for w in found: self.seen.add(w)",
    "found = LETTER.findall(e.text)\n        for w in e.words:\n            found = sorted(e.words)\n"
    "        for w in found: self.seen.add(w)",
    "rest = e.words\n        while rest:\n            self.seen.add(rest[0])\n            rest = rest[1:]",
    "rest = (1, e.words)\n        while rest[1]:\n            self.seen.add(rest[1][0])\n"
    "            rest = (1, rest[1][1:])",
    "rest = (1, e.words) if self.count['a'] else (2, e.words[1:])\n        for w in rest[1]: self.seen.add(w)",
    "for w in set(e.words): self.seen.add(w)",
])  # fmt: skip
def test_a_variable_that_is_now_one_list_now_another_is_refused(body: str) -> None:
    with pytest.raises(Refused):
        _columns(body)
