"""Values as the words that rows hold, and back."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from timelapse.kernels.native.lowering.expressions import as_float, fitting
from timelapse.kernels.native.lowering.states.asked import Known, Writer
from timelapse.kernels.native.lowering.values import Value, common, fitted, kind_of, optional, spelled
from timelapse.kernels.native.memory.layout import value_words
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.decimals import unscaled
from timelapse.model.types import DecimalType, OptionalType, ScalarType, TupleType, ValueType


class Coding:
    """How the values of one state are stored."""

    def __init__(self, spec: StateSpec, out: Writer, own: Known) -> None:
        self._spec, self._out, self._own = spec, out, own

    def words(self, value: Value, kind: ValueType) -> list[str]:
        """The words of a value that is stored as this type."""
        if isinstance(kind, OptionalType):
            if value.kind == "none":
                return ["0"] * value_words(kind)
            if value.kind == "optional":
                return [word(value.items[0]), *self.words(value.items[1], kind.inner)]
            return ["1", *self.words(value, kind.inner)]
        value = certain(self._out, value)
        if isinstance(kind, TupleType) and value.kind == "tuple" and len(value.items) == len(kind.items):
            pairs = zip(value.items, kind.items, strict=True)
            return [w for item, inner in pairs for w in self.words(item, inner)]
        if isinstance(kind, ScalarType):
            if isinstance(kind, DecimalType):
                return [fitting(self._out, value, kind.scale, self._spec.name).code]
            wanted = kind_of(kind)
            if wanted == "float" and value.kind in ("int", "float"):
                return [f"bits({as_float(value)})"]
            if wanted == value.kind:
                return [word(value)]
        raise Refused(f"{self._spec.name}, which holds {kind.text}, is given {value.kind}")

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
            raise Refused(f"{self._spec.name}.get() with a default of another type")
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
            return [self._own.text(value)]
        if kind.name == "float":
            return [struct.unpack("<q", struct.pack("<d", value))[0]]
        if isinstance(kind, DecimalType):
            return [unscaled(value, kind.scale, self._spec.name)]
        return [int(value)]

    @property
    def default(self) -> Any:
        """What reading a missing key gives."""
        return None if self._spec.default is ABSENT else self._spec.default


def certain(out: Writer, value: Value) -> Value:
    """An optional that must not be None: where it is, Python raises."""
    if value.kind != "optional":
        return value
    out.exit_if(f"not {value.items[0].code}")
    return value.items[1]


def word(value: Value) -> str:
    """A scalar's word, if that is not its bits. All but bools are int64 in the generated code already."""
    return f"np.int64({value.code})" if value.kind == "bool" else value.code


def literal(word: int) -> str:
    """A word as an expression of the generated code."""
    return spelled(word)


def ordered(name: str, kind: ValueType) -> None:
    """Refuse types whose order is not that of their words."""
    if not isinstance(kind, ScalarType) or kind.name in ("str", "bytes"):
        raise Refused(f"the order of {kind.text} ({name})")
