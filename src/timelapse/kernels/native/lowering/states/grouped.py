"""What the compiled forms of SetOf and MapOf share: their keys.

Operations on everything under a key need an index, which only Python keeps, if their kind has no way of its own: passes with
those run as Python.
"""

from __future__ import annotations

from timelapse.kernels.native.lowering.states.base import StateCode
from timelapse.kernels.native.lowering.values import Refused, Value
from timelapse.model.types import TupleType, ValueType

_INDEXED = ("fields", "count", "clear", "items")


class Paired(StateCode):
    """Keys are pairs of a declared key and what stands under it; stored are the parts of both."""

    def key(self, key: Value | None) -> str:
        if key is None:
            raise Refused(f"{self.spec.name} used without a key")
        key = self._certain(key)
        if key.kind != "tuple" or key.cls is not None or len(key.items) != 2:
            raise Refused(f"all that is under a key of {self.spec.name}, which needs an index")
        assert self.spec.outer is not None
        assert self.spec.inner is not None
        k, m = (
            self._parts_of(v, t) for v, t in zip(key.items, (self.spec.outer, self.spec.inner), strict=True)
        )
        return super().key(Value("tuple", items=(*k, *m)))

    def _parts_of(self, value: Value, kind: ValueType) -> tuple[Value, ...]:
        value = self._certain(value)
        if not isinstance(kind, TupleType):
            return (value,)
        if value.kind != "tuple" or len(value.items) != len(kind.items):
            raise Refused(f"a key of {self.spec.name} of another type")
        return value.items

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name in _INDEXED:
            raise Refused(f"{self.spec.name}.{name}(), which needs an index")
        return super()._method(name, key, given)
