"""What the compiled forms of all kinds share: keys, rows, the undo log, words."""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from timelapse.kernels.native.lowering.expressions import as_float, fitting
from timelapse.kernels.native.lowering.form import Keep, Key, Look, Node, Save
from timelapse.kernels.native.lowering.values import (
    NONE,
    ReadsAll,
    Refused,
    Value,
    common,
    fitted,
    kind_of,
    optional,
    places_of,
    spelled,
)
from timelapse.kernels.native.memory.layout import Layout, Mode, can_be_mapped, value_words
from timelapse.kernels.native.windows import BASE, USED, Sliding
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.decimals import unscaled
from timelapse.model.types import DecimalType, OptionalType, ScalarType, TupleType, ValueType
from timelapse.tables.table import key_types

_PLAIN: Mapping[str, tuple[str, ...]] = {"set": ("value",), "discard": ()}
"""Methods that are `x[k] = v` and `del x[k]`, of kinds that have them and say nothing else."""


class Writer(Protocol):
    """What the operations write to."""

    def assign(self, target: str, code: str, op: str = "=") -> None: ...
    def do(self, code: str, *, log: int | None = None) -> None: ...
    def add(self, node: Node) -> None: ...
    def temp(self, kind: str, code: str) -> Value: ...
    def exit_if(self, condition: str) -> None: ...
    def leave_if(self, condition: str, reason: int) -> None: ...
    def raises_if(self, condition: str, error: Exception, also: str = "") -> None: ...
    def room_if(self, condition: str, *, where: str = "") -> None: ...
    def give_up_if(self, condition: str) -> None: ...
    def name(self, stem: str) -> str: ...
    def when(self, test: str) -> AbstractContextManager[None]: ...
    def otherwise(self, test: str = "") -> AbstractContextManager[None]: ...
    def each(self, counter: str, over: str) -> AbstractContextManager[None]: ...
    def store(self, stem: str, value: Value) -> Value: ...
    def rounds(self, count: str) -> AbstractContextManager[str]: ...
    @property
    def in_loop(self) -> bool: ...


class Pass(Protocol):
    """What the operations ask of the pass that they are part of."""

    def text(self, text: str | bytes) -> int: ...
    def uses_key(self, state: str, words: Sequence[str]) -> None: ...
    def hidden(self, spec: StateSpec) -> StateCode: ...
    def members_of(self, spec: StateSpec) -> StateCode: ...
    def heads_of(self, spec: StateSpec) -> StateCode: ...
    def list_of(self, code: Callable[[str], str], words: int) -> tuple[str, str]: ...
    @property
    def counted(self) -> Collection[str]: ...
    @property
    def indexed(self) -> Collection[str]: ...
    @property
    def now(self) -> str: ...
    @property
    def steady(self) -> Collection[str]: ...
    @property
    def keeps(self) -> bool: ...


class StateCode:
    """Writes the operations of one state.

    `mode`: exact (the values are there), delta (only effects are written, never read) or ignored
    (writes are dropped, reads give what an empty state gives).
    """

    parameters: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Methods, with the names of their parameters after the key."""
    compiled: ClassVar[str] = "yes"
    """What of it compiles, for docs/kinds.md."""
    ranks: ClassVar[bool] = False
    """Whether `top(n)` is compiled where `items()` is."""
    lists: ClassVar[bool] = False
    """Whether `items()` is compiled in handlers of ticks: `listing`, `listed`."""

    def __init__(
        self, spec: StateSpec, mode: Mode, layout: Layout, out: Writer, own: Pass, index: int, table: int,
        views: Sliding | None = None,
    ) -> None:  # fmt: skip
        """`index`: the state's number, also that of its log; `table`: that of its table."""
        self.spec, self.mode, self.layout, self._out, self._pass = spec, mode, layout, out, own
        self.views = views
        self.ordinal, self.table, self._index = index, f"t{table}", table
        self._parts = [kind_of(kind) for kind in key_types(spec)]
        self.pushes = 0
        self.mapped = mode == "exact" and can_be_mapped(spec, layout) and spec.name not in own.indexed

    @property
    def attribute(self) -> bool:
        """Whether it is used as a plain attribute."""
        return self.spec.key is None and self.spec.kind.attribute_style

    # --- operations: subclasses say which there are -----------------------------------------------

    def contains(self, key: Value) -> Value:
        """`k in x`."""
        raise Refused(f"`in` of {self.spec.name}")

    def get(self, key: Value | None) -> Value:
        """`x[k]`, or `x` without a key."""
        raise Refused(f"a value of {self.spec.name}")

    def set(self, key: Value | None, value: Value) -> None:
        """`x[k] = v`."""
        raise Refused(f"an assignment to {self.spec.name}")

    def delete(self, key: Value | None) -> None:
        """`del x[k]`."""
        raise Refused(f"`del` of {self.spec.name}")

    def change(
        self, key: Value | None, op: ast.operator, amount: Callable[[], Value], *, writes: bool = False
    ) -> None:
        """`x[k] += n`. `amount` writes n's code; `writes`: which may write states.

        Python reads the old value before it finds n.
        """
        raise Refused(f"{type(op).__name__} of {self.spec.name}")

    def method(
        self, name: str, args: Sequence[Value], line: int, keywords: Mapping[str, Value] | None = None
    ) -> Value:
        """A call of one of the state's methods."""
        if self.mode == "delta":
            if not args:
                raise Refused(f"an effect on {self.spec.name} without a key", line)
            # A state without a key is written with the key () in front.
            key = None if self.spec.key is None else args[0]
            self._effect(name, key, list(args[1:]))
            return NONE
        plain = _PLAIN.get(name) if name in self.spec.kind.ops else None
        names = self.parameters.get(name, plain)
        if names is None:
            if name in ("items", "top"):
                raise ReadsAll(f"{self.spec.name}.{name}(), a read of every key", line)
            raise Refused(f"{self.spec.name}.{name}()", line)
        order = (*(["key"] if self.spec.key is not None else []), *names)
        given = dict(zip(order, args))
        if len(args) > len(order) or set(keywords or ()) - set(order) or set(keywords or ()) & set(given):
            raise Refused(f"the arguments of {self.spec.name}.{name}()", line)
        given |= keywords or {}
        key = given.pop("key", None)
        if name in self.parameters:
            return self._method(name, key, given)
        if name == "set":
            self.set(key, one(given.get("value"), f"{self.spec.name}.set()"))
        else:
            self.delete(key)
        return NONE

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        raise Refused(f"{self.spec.name}.{name}()")

    @property
    def listed_key(self) -> ValueType | None:
        """The type of the keys that `items()` gives."""
        return self.spec.key

    @property
    def listed_words(self) -> int:
        """How many words it lists with each key."""
        return self.layout.size

    def listing(self, first: str) -> str:
        """Code that lists every key with its value from a place on, and gives how many (memory/listing.py)."""
        layout = self.layout
        given = f"N{layout.present}, N{layout.width}, N{layout.place}, N{layout.size}"
        return f"list_present(listed, {first}, {self.table}, {given})"

    def listed(self, key: list[str], value: list[str]) -> Value:
        """What `items()` gives, from the words of a key and its value."""
        assert self.listed_key is not None
        assert self.layout.stored is not None
        pair = self.value(key, self.listed_key), self.value(value, self.layout.stored)
        return Value("tuple", items=pair)

    def _effect(self, effect: str, key: Value | None, args: list[Value]) -> None:
        raise Refused(f"{self.spec.name}.{effect}()")

    # --- keys and rows ----------------------------------------------------------------------------

    def key(self, key: Value | None) -> Key:
        """The words of a key."""
        if self.spec.key is None:
            if key is not None:
                raise Refused(f"{self.spec.name} has no key")
            self._pass.uses_key(self.spec.name, ("N0",))
            return ("N0",)
        if key is None:
            raise Refused(f"{self.spec.name} used without a key")
        key = self._certain(key)
        scalar = isinstance(self.spec.key, ScalarType)
        parts = [key] if scalar else [self._certain(i) for i in key.items]
        if scalar == (key.kind == "tuple") or len(parts) != len(self._parts):
            raise Refused(f"a key of {self.spec.name} of another type")
        for i, kind in enumerate(self._parts):
            if kind is not None and (places := places_of(kind)) is not None:
                parts[i] = replace(
                    fitting(self._out, parts[i], places, f"a key of {self.spec.name}"), kind=kind
                )
        if [p.kind for p in parts] != self._parts:
            raise Refused(f"a key of {self.spec.name} of another type")
        words = [word(p) for p in parts]
        self._pass.uses_key(self.spec.name, words)
        return tuple(words)

    def _certain(self, value: Value) -> Value:
        """An optional that must not be None: where it is, Python raises."""
        if value.kind != "optional":
            return value
        self._out.exit_if(f"not {value.items[0].code}")
        return value.items[1]

    def find(self, key: Key) -> str:
        """The row of a key; an unoccupied one where there is none.

        A key of a mapped start state gets a row by this (touch.py), so another key's unoccupied row may be
        taken by it: no row that `find` gave is used after another `find` or `claim`.
        """
        row = self._out.name("r")
        if self.mapped:
            self._room(f"s{self._index}.shape[0] != 0")
        self._out.add(Look(row, "look" if self.mapped else "find", self._index, key))
        return row

    def _room(self, where: str = "") -> None:
        """In a loop nobody knows beforehand how many rows it takes."""
        self._out.room_if(f"2 * counts[{self._index}] >= {self.table}.shape[0] - 2", where=where)

    def claim(self, key: Key) -> str:
        """The row of a key, made if there is none."""
        self._room()
        row = self._out.name("r")
        self._out.add(Look(row, "own" if self.mapped else "claim", self._index, key))
        return row

    def flags(self, row: str) -> str:
        return f"{self.table}[{row}, 0]"

    def has(self, row: str) -> str:
        """The condition that a row's key is present."""
        return f"{self.flags(row)} & {self.layout.present} != 0"

    def lacks(self, row: str) -> str:
        """The condition that a row's key is absent."""
        return f"{self.flags(row)} & {self.layout.present} == 0"

    def word(self, row: str, at: int) -> str:
        return f"{self.table}[{row}, {at}]"

    def save(self, row: str) -> None:
        """Before a row is written: what is there goes to the undo log, and where that is asked for to the rows as they were."""
        layout = self.layout
        if self._pass.keeps:
            self._out.add(Keep(row, self._index))
        self._out.room_if("u >= undo.shape[0]")
        self._out.add(Save(row, self._index, self.ordinal, layout.place, layout.live))

    def _push_room(self) -> None:
        self._out.room_if(f"k{self.ordinal}[{USED}] >= w{self.ordinal}.shape[0]")
        self.pushes += 1

    def note(self, row: str, value: str) -> None:
        """Before a row's only word is written: what that adds to it goes to the log of a state with views."""
        if self.views is not None and not self.views.stamped:
            self._push_room()
            added = f"minus({value}, {self.word(row, self.layout.place)})"
            self._out.do(
                f"push(w{self.ordinal}, k{self.ordinal}, {self._pass.now}, {row}, {added})", log=self.ordinal
            )

    def stamp(self, row: str, *, present: bool = True) -> None:
        """The row's latest operation is this one, which leaves its key `present` or not."""
        if self.views is not None:
            self._push_room()
            i = self.ordinal
            given = f"{self.layout.twins}, {self._pass.now}, N{int(present)}"
            self._out.do(f"stamp(w{i}, k{i}, {self.table}, {row}, {given})", log=self.ordinal)

    def edge(self, lag: int) -> str:
        """The stamp from which on operations are within a lag."""
        assert self.views is not None
        return f"k{self.ordinal}[{BASE}] + k{self.ordinal}[{self.views.cursor(lag)}]"

    def put(self, row: str, words: Sequence[str]) -> None:
        """Write a value. The row's key is present then."""
        layout = self.layout
        self.save(row)
        for offset, word in enumerate(words):
            self._out.assign(self.word(row, layout.place + offset), word)
        self._out.assign(self.flags(row), f"{layout.present | layout.touched}", "|=")

    def drop(self, row: str) -> None:
        """Make a row's key absent."""
        layout = self.layout
        self.save(row)
        self._out.do(f"drop({self.table}, {row}, N{layout.place}, N{layout.size}, N{layout.present})")

    def put_word(self, row: str, word: str, present: str) -> None:
        """Write a value of one word, and whether the key is present."""
        layout = self.layout
        self.note(row, word)
        self.save(row)
        self._out.do(f"put({self.table}, {row}, N{layout.place}, {word}, {present}, N{layout.present})")

    def known(self) -> bool:
        """Whether the state's values are there. Where a pass writes effects only there is nothing to read."""
        if self.mode == "delta":
            raise Refused(f"a read of {self.spec.name}, which this pass does not know")
        return self.mode == "exact"

    def is_there(self, key: Value) -> Value:
        """Whether a key is there, for kinds whose `in` asks for that."""
        words = self.key(key)
        if not self.known():
            return self._out.temp("bool", "False")
        return self._out.temp("bool", self.has(self.find(words)))

    def remove(self, key: Value | None) -> None:
        """Make a key absent if it is there."""
        words = self.key(key)
        if self.mode != "ignored":
            row = self.find(words)
            with self._out.when(self.has(row)):
                self._goes(key, row)
                self.drop(row)

    def _comes(self, key: Value | None, row: str) -> None:
        """Before a row is written: what views see of it."""
        self.stamp(row)

    def _goes(self, key: Value | None, row: str) -> None:
        """Before a key that is there is taken out. Views see that it is not there."""

    # --- values -----------------------------------------------------------------------------------

    def words(self, value: Value, kind: ValueType) -> list[str]:
        """The words of a value that is stored as this type."""
        if isinstance(kind, OptionalType):
            if value.kind == "none":
                return ["0"] * value_words(kind)
            if value.kind == "optional":
                return [word(value.items[0]), *self.words(value.items[1], kind.inner)]
            return ["1", *self.words(value, kind.inner)]
        value = self._certain(value)
        if isinstance(kind, TupleType) and value.kind == "tuple" and len(value.items) == len(kind.items):
            pairs = zip(value.items, kind.items, strict=True)
            return [w for item, inner in pairs for w in self.words(item, inner)]
        if isinstance(kind, ScalarType):
            if isinstance(kind, DecimalType):
                return [fitting(self._out, value, kind.scale, self.spec.name).code]
            wanted = kind_of(kind)
            if wanted == "float" and value.kind in ("int", "float"):
                return [f"bits({as_float(value)})"]
            if wanted == value.kind:
                return [word(value)]
        raise Refused(f"{self.spec.name}, which holds {kind.text}, is given {value.kind}")

    def value(self, words: list[str], kind: ValueType) -> Value:
        """The value of these words, in new variables."""
        if isinstance(kind, OptionalType):
            present = self._out.temp("bool", f"{words[0]} != 0")
            return optional(present.code, self.value(words[1:], kind.inner))
        if isinstance(kind, TupleType):
            items, at = [], 0
            for item in kind.items:
                size = value_words(item)
                items.append(self.value(words[at : at + size], item))
                at += size
            return Value("tuple", items=tuple(items), cls=kind.cls)
        assert isinstance(kind, ScalarType)
        code = {"float": f"unbits({words[0]})", "bool": f"{words[0]} != 0"}.get(kind.name, words[0])
        return self._out.temp(kind_of(kind) or "", code)

    def either(self, condition: str, found: Callable[[], Value], like: Value, default: Value) -> Value:
        """What is found, if the condition holds, or a default. `like` has the kind of what is found."""
        shape = common(like, default)
        if shape is None:
            raise Refused(f"{self.spec.name}.get() with a default of another type")
        stem = self._out.name("c")
        with self._out.when(condition):
            result = self._out.store(stem, fitted(found(), shape))
        with self._out.otherwise():
            self._out.store(stem, fitted(default, shape))
        return result

    def missing(self, kind: ValueType) -> Value:
        """What a missing key reads as."""
        return self.value([literal(w) for w in self.constant(self.default, kind)], kind)

    def constant(self, value: Any, kind: ValueType) -> list[int]:
        """The words of a constant."""
        if isinstance(kind, OptionalType):
            if value is None:
                return [0] * value_words(kind)
            return [1, *self.constant(value, kind.inner)]
        if isinstance(kind, TupleType):
            pairs = zip(value, kind.items, strict=True)
            return [w for item, inner in pairs for w in self.constant(item, inner)]
        assert isinstance(kind, ScalarType)
        if kind.name in ("str", "bytes"):
            return [self._pass.text(value)]
        if kind.name == "float":
            return [struct.unpack("<q", struct.pack("<d", value))[0]]
        if isinstance(kind, DecimalType):
            return [unscaled(value, kind.scale, self.spec.name)]
        return [int(value)]

    @property
    def default(self) -> Any:
        """What reading a missing key gives."""
        return None if self.spec.default is ABSENT else self.spec.default


def word(value: Value) -> str:
    """A scalar's word, if that is not its bits. All but bools are int64 in the generated code already."""
    return f"np.int64({value.code})" if value.kind == "bool" else value.code


def literal(word: int) -> str:
    """A word as an expression of the generated code."""
    return spelled(word)


def one(value: Value | None, what: str) -> Value:
    """An argument that must be there."""
    if value is None:
        raise Refused(f"the arguments of {what}")
    return value
