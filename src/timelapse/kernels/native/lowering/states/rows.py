"""The rows of a state: they are found by keys, written with undo entries, and noted in logs that views look at."""

from __future__ import annotations

from collections.abc import Sequence

from timelapse.kernels.native.lowering.form import Keep, Key, Look, Save
from timelapse.kernels.native.lowering.states.asked import Known, Writer
from timelapse.kernels.native.memory.layout import Layout, Mode, can_be_mapped
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.windows import BASE, USED, Sliding
from timelapse.kinds.base import StateSpec


class Rows:
    """Writes what is done to the rows of one state.

    `mode`: exact (the values are there), delta (only effects are written, never read) or ignored
    (writes are dropped, reads give what an empty state gives).
    """

    def __init__(
        self, spec: StateSpec, mode: Mode, layout: Layout, out: Writer, own: Known, ordinal: int, index: int,
        views: Sliding | None = None,
    ) -> None:  # fmt: skip
        """`ordinal`: the state's number, also that of its log; `index`: that of its table."""
        self.spec, self.mode, self.layout, self.views = spec, mode, layout, views
        self.out, self._own = out, own
        self.ordinal, self.table, self.index = ordinal, f"t{index}", index
        self.pushes = 0
        self.mapped = mode == "exact" and can_be_mapped(spec, layout) and spec.name not in own.indexed

    def known(self) -> bool:
        """Whether the state's values are there. Where a pass writes effects only there is nothing to read."""
        if self.mode == "delta":
            raise Refused(f"a read of {self.spec.name}, which this pass does not know")
        return self.mode == "exact"

    def find(self, key: Key) -> str:
        """The row of a key; an unoccupied one where there is none.

        A key of a mapped start state gets a row by this (touch.py), so another key's unoccupied row may be
        taken by it: no row that `find` gave is used after another `find` or `claim`.
        """
        row = self.out.name("r")
        if self.mapped:
            self._room(f"s{self.index}.shape[0] != 0")
        self.out.add(Look(row, "look" if self.mapped else "find", self.index, key))
        return row

    def _room(self, where: str = "") -> None:
        """In a loop nobody knows beforehand how many rows it takes."""
        self.out.room_if(f"2 * counts[{self.index}] >= {self.table}.shape[0] - 2", where=where)

    def claim(self, key: Key) -> str:
        """The row of a key, made if there is none."""
        self._room()
        row = self.out.name("r")
        self.out.add(Look(row, "own" if self.mapped else "claim", self.index, key))
        return row

    def flags(self, row: str) -> str:
        """The word that says what there is in a row."""
        return f"{self.table}[{row}, 0]"

    def has(self, row: str) -> str:
        """The condition that a row's key is present."""
        return f"{self.flags(row)} & {self.layout.present} != 0"

    def lacks(self, row: str) -> str:
        """The condition that a row's key is absent."""
        return f"{self.flags(row)} & {self.layout.present} == 0"

    def word(self, row: str, at: int) -> str:
        """A word of a row."""
        return f"{self.table}[{row}, {at}]"

    def save(self, row: str) -> None:
        """Before a row is written: what is there goes to the undo log, and where that is asked for to the rows as they were."""
        layout = self.layout
        if self._own.keeps:
            self.out.add(Keep(row, self.index))
        self.out.room_if("u >= undo.shape[0]")
        self.out.add(Save(row, self.index, self.ordinal, layout.place, layout.live))

    def push_room(self) -> None:
        """Before something goes to the log."""
        self.out.room_if(f"k{self.ordinal}[{USED}] >= w{self.ordinal}.shape[0]")
        self.pushes += 1

    def note(self, row: str, value: str) -> None:
        """Before a row's only word is written: what that adds to it goes to the log of a state with views."""
        if self.views is not None and not self.views.stamped:
            self.push_room()
            added = f"minus({value}, {self.word(row, self.layout.place)})"
            self.out.do(
                f"push(w{self.ordinal}, k{self.ordinal}, {self._own.now}, {row}, {added})", log=self.ordinal
            )

    def stamp(self, row: str, *, present: bool = True) -> None:
        """The row's latest operation is this one, which leaves its key `present` or not."""
        if self.views is not None:
            self.push_room()
            i = self.ordinal
            given = f"{self.layout.twins}, {self._own.now}, N{int(present)}"
            self.out.do(f"stamp(w{i}, k{i}, {self.table}, {row}, {given})", log=self.ordinal)

    def edge(self, lag: int) -> str:
        """The stamp from which on operations are within a lag."""
        assert self.views is not None
        return f"k{self.ordinal}[{BASE}] + k{self.ordinal}[{self.views.cursor(lag)}]"

    def put(self, row: str, words: Sequence[str]) -> None:
        """Write a value. The row's key is present then."""
        layout = self.layout
        self.save(row)
        for offset, word in enumerate(words):
            self.out.assign(self.word(row, layout.place + offset), word)
        self.out.assign(self.flags(row), f"{layout.present | layout.touched}", "|=")

    def drop(self, row: str) -> None:
        """Make a row's key absent."""
        layout = self.layout
        self.save(row)
        self.out.do(f"drop({self.table}, {row}, N{layout.place}, N{layout.size}, N{layout.present})")

    def put_word(self, row: str, word: str, present: str) -> None:
        """Write a value of one word, and whether the key is present."""
        layout = self.layout
        self.note(row, word)
        self.save(row)
        self.out.do(f"put({self.table}, {row}, N{layout.place}, {word}, {present}, N{layout.present})")
