"""What sketches of members have in common."""

from __future__ import annotations

from typing import Generic

from timelapse.kinds.base import ABSENT, State, StateSpec, Store
from timelapse.kinds.typevars import K, M
from timelapse.model.types import ValueType


class MemberSketch(State, Generic[K, M]):
    """A sketch of the members that were added for a key, stored as bytes. `size` bounds how much of them is kept."""

    plain_reads = False
    allowed = frozenset({"size"})

    __slots__ = ("_check_member", "_size")

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        assert spec.inner is not None
        self._check_member = spec.inner.checker(f"a member of {spec.name}")
        self._size: int = spec.option("size")

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        return [t for t in (spec.key, spec.inner) if t is not None]

    def __contains__(self, key: K) -> bool:
        return self._get(self._check_key(key), ABSENT) is not ABSENT

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key(key))
