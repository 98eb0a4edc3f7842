"""How a state's row looks in a compiled pass: shared by the generated code and the table that it works on.

A row is `flags, key words..., live words..., words of views...`, all int64. The live words
are the value's (exact), nothing (a Set's delta), the sum (a Counter's), the values appended (a list's, of bounded length), or
the two branches of a step (`func`: the words for an absent key, the step's number, the step's words). Those of views (windows.py) are only there
where a program has some. States that are used under the same keys share a table: then a row has the live words of
each, one after the other, then the words of views of each, and two flags of each.

A value is one word per scalar: integers as they are, floats by their bits, strings by their codes, and for an
optional a word that is 1 where there is a value, before the value's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from timelapse.analysis.result import PassProgram
from timelapse.kinds.base import StateSpec
from timelapse.model.types import DecimalType, ListType, OptionalType, ScalarType, TupleType, ValueType
from timelapse.tables.table import key_types

OCCUPIED, PRESENT, TOUCHED = 1, 2, 4
"""Flags, the last two for the first state of a table; the next one's are two bits further left. TOUCHED: written in
this slice. In a delta PRESENT says that a Counter's key was set or a list was emptied, in a step that the absent key becomes
present."""
_BITS = 2
LINKED = 1 << 61
"""A flag of rows of a SetOf whose members can be listed: the row's pair is among its key's members (linking.py)."""
COPIED = -(1 << 63)
"""A flag of rows that were copied before they were written (keeping.py)."""
LASTING = OCCUPIED | LINKED | COPIED | sum(PRESENT << _BITS * number for number in range(30))
"""The flags that a row keeps from slice to slice."""
MOST_WORDS = 8
"""Rows that several states share are no longer than a line of the processor's caches."""
MOST_WITH_VIEWS = 16
"""Those with words of views, than two lines: alone each state would have one."""

LONGEST_LIST = 32
"""So many values of a key's list are kept in its row."""

Mode = Literal["exact", "delta", "ignored"]
Form = Literal["exact", "const", "count", "func", "list"]


@dataclass(frozen=True, slots=True)
class BoundedList(ListType):
    """A list of scalars of which no more than `most` are kept. Its words: how many there are, then each, then zeros."""

    most: int


def value_words(kind: ValueType | None) -> int:
    """How many words a value takes."""
    if kind is None:
        return 0
    if isinstance(kind, OptionalType):
        return 1 + value_words(kind.inner)
    if isinstance(kind, BoundedList):
        return 1 + kind.most
    return sum(value_words(item) for item in kind.items) if isinstance(kind, TupleType) else 1


@dataclass(frozen=True)
class Layout:
    """One state's part of a row. `width`: key words (a state without a key has one, 0). `stored`: the type of its values.
    `extra`: words of views.

    `tracked`: what its keys held at the slice's start is asked for. `number`: how many states' live words, `at`: how
    many live words come before its own. `beyond`: how many words come between its own and those of its views.
    `mappable`: False where a state that shares the row has views.
    """

    width: int
    stored: ValueType | None
    form: Form
    tracked: bool
    extra: int = 0
    number: int = 0
    at: int = 0
    beyond: int = 0
    mappable: bool = True

    @property
    def size(self) -> int:
        """Words of one value."""
        return value_words(self.stored)

    @property
    def place(self) -> int:
        """Where the live words begin."""
        return 1 + self.width + self.at

    @property
    def present(self) -> int:
        """The flag that says that the state has the row's key."""
        return PRESENT << _BITS * self.number

    @property
    def touched(self) -> int:
        """The flag that says that the state's part was written in this slice."""
        return TOUCHED << _BITS * self.number

    @property
    def live(self) -> int:
        """The number of words that writes change. Where what is done to a list has no bounds none: it does not compile."""
        listed = self.size if isinstance(self.stored, BoundedList) else 0
        return {"exact": self.size, "const": 0, "count": 1, "func": 2 * self.size + 1, "list": listed}[
            self.form
        ]

    @property
    def end(self) -> int:
        """Where the live words end."""
        return self.place + self.live

    @property
    def twins(self) -> int:
        """Where the words of views begin."""
        return self.end + self.beyond


def beside(layouts: Sequence[Layout]) -> list[Layout] | None:
    """The layouts of states that share a table, in place of those of states that have their own.

    None where they cannot: their keys must have as many words, all must be known exactly or none, and a
    row must not become too long.
    """
    first, words, found = layouts[0], 0, []
    live, extra = sum(layout.live for layout in layouts), 0
    plain = not any(layout.extra for layout in layouts)
    for number, layout in enumerate(layouts):
        same = (layout.width, layout.form == "exact", layout.tracked)
        if same != (first.width, first.form == "exact", first.tracked):
            return None
        beyond = live - words - layout.live + extra if layout.extra else 0
        found.append(replace(layout, number=number, at=words, beyond=beyond, mappable=plain))
        words += layout.live
        extra += layout.extra
    most = MOST_WORDS if plain else MOST_WITH_VIEWS
    return found if 1 + first.width + words + extra <= most else None


def live_words(layouts: Sequence[Layout]) -> int:
    """How many words of a table's row writes change."""
    return max(layout.at + layout.live for layout in layouts)


def row_words(layouts: Sequence[Layout]) -> int:
    """How many words a table's row takes. Of 3 or 7 words it would often lie in two lines of the processor's caches, of
    a few less than 16 in three."""
    used = max(
        1 + layouts[0].width + live_words(layouts), *(layout.twins + layout.extra for layout in layouts)
    )
    return used + 1 if used in (3, 7) else 16 if 12 < used < 16 else used


def row_bytes(layouts: Sequence[Layout], *, tracked: bool) -> int:
    """What a key takes while the table is as full as it gets. `tracked`: with what it held at the slice's start."""
    return 2 * 8 * (row_words(layouts) + (1 + live_words(layouts) if tracked else 0))


def gathered_bytes(layouts: Sequence[Layout]) -> int:
    """What a key that was written takes beside that at the slice's end: in its drawer, as columns, in Arrow (gathering.py)."""
    words = 2 + layouts[0].width + live_words(layouts)
    return 8 * (2 * words + sum(2 + layout.width + layout.live for layout in layouts))


def mode_of(name: str, work: PassProgram) -> Mode:
    """What a pass does with a state."""
    return "delta" if name in work.delta else "exact" if name in work.exact else "ignored"


def stored_type(spec: StateSpec) -> ValueType | None:
    """The type of what is stored: None is left out where the kind has none, and of some lists the length is bounded."""
    if spec.kind.never_none and isinstance(spec.value, OptionalType):
        return spec.value.inner
    if isinstance(spec.value, ListType) and isinstance(spec.value.inner, ScalarType):
        most = spec.kind.most_kept(spec)
        if most is not None and most <= LONGEST_LIST:
            return BoundedList(spec.value.inner, most)
    return spec.value


def layout_of(spec: StateSpec, work: PassProgram, *, final: bool, extra: int = 0) -> Layout:
    """The row of a state that the pass keeps. `extra`: words of views."""
    width = max(1, len(key_types(spec)))
    if spec.name in work.delta:
        form = spec.kind.delta(spec, None).form
        return Layout(width, stored_type(spec), form, tracked=False)
    return Layout(width, stored_type(spec), "exact", final or spec.name in work.targets, extra)


def key_kinds(spec: StateSpec) -> list[str]:
    """The names of the key parts' types."""
    return [t.name for t in key_types(spec) if isinstance(t, ScalarType)]


def can_be_mapped(spec: StateSpec, layout: Layout) -> bool:
    """Whether an exact state's keys can be taken over one by one from a state table (touch.py)."""
    kinds, stored = key_types(spec), layout.stored
    plain = all(isinstance(k, ScalarType) and k.name != "float" for k in kinds)
    alone = layout.mappable and not layout.extra
    return layout.form == "exact" and alone and bool(kinds) and plain and _numbers(stored)


def _numbers(kind: ValueType | None, *, optional: bool = True) -> bool:
    """Whether values are numbers and truth values, or tuples of these. Some of them may be None, not one within another."""
    if isinstance(kind, OptionalType):
        return optional and _numbers(kind.inner, optional=False)
    if isinstance(kind, TupleType):
        return all(_numbers(item, optional=optional) for item in kind.items)
    if isinstance(kind, DecimalType):  # a column of them has two words each
        return False
    return kind is None or (isinstance(kind, ScalarType) and kind.name not in ("str", "bytes"))
