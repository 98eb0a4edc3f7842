"""Keys as the words that rows are found by."""

from __future__ import annotations

from dataclasses import replace

from timelapse.kernels.native.lowering.expressions import fitting
from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.asked import Known, Writer
from timelapse.kernels.native.lowering.states.coding import certain, word
from timelapse.kernels.native.lowering.values import Value, kind_of, places_of
from timelapse.kernels.native.refused import Refused
from timelapse.kinds.base import StateSpec
from timelapse.model.types import ScalarType, TupleType, ValueType
from timelapse.tables.table import key_types


class Keys:
    """The keys of one state."""

    def __init__(self, spec: StateSpec, out: Writer, own: Known) -> None:
        self._spec, self._out, self._own = spec, out, own
        self._parts = [kind_of(kind) for kind in key_types(spec)]

    def of(self, key: Value | None) -> Key:
        """The words of a key."""
        if self._spec.key is None:
            if key is not None:
                raise Refused(f"{self._spec.name} has no key")
            self._own.uses_key(self._spec.name, ("N0",))
            return ("N0",)
        if key is None:
            raise Refused(f"{self._spec.name} used without a key")
        key = certain(self._out, key)
        scalar = isinstance(self._spec.key, ScalarType)
        parts = [key] if scalar else [certain(self._out, i) for i in key.items]
        if scalar == (key.kind == "tuple") or len(parts) != len(self._parts):
            raise Refused(f"a key of {self._spec.name} of another type")
        for i, kind in enumerate(self._parts):
            if kind is not None and (places := places_of(kind)) is not None:
                parts[i] = replace(
                    fitting(self._out, parts[i], places, f"a key of {self._spec.name}"), kind=kind
                )
        if [p.kind for p in parts] != self._parts:
            raise Refused(f"a key of {self._spec.name} of another type")
        words = [word(p) for p in parts]
        self._own.uses_key(self._spec.name, words)
        return tuple(words)

    def pair(self, key: Value | None) -> Key:
        """The words of a pair of a declared key and what stands under it; stored are the parts of both."""
        spec = self._spec
        if key is None:
            raise Refused(f"{spec.name} used without a key")
        key = certain(self._out, key)
        if key.kind != "tuple" or key.cls is not None or len(key.items) != 2:
            raise Refused(f"all that is under a key of {spec.name}, which needs an index")
        assert spec.outer is not None
        assert spec.inner is not None
        k, m = (self._parts_of(v, t) for v, t in zip(key.items, (spec.outer, spec.inner), strict=True))
        return self.of(Value("tuple", items=(*k, *m)))

    def _parts_of(self, value: Value, kind: ValueType) -> tuple[Value, ...]:
        value = certain(self._out, value)
        if not isinstance(kind, TupleType):
            return (value,)
        if value.kind != "tuple" or len(value.items) != len(kind.items):
            raise Refused(f"a key of {self._spec.name} of another type")
        return value.items
