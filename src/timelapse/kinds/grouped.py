"""What kinds share that hold several things under one declared key: SetOf, MapOf, Mean.

Each thing is stored by itself, under the parts of the declared key and then of what tells the things apart.
So a hot key costs what any key costs, effects are those of Set, Value and Counter, and a slice takes over only
what it touches. Operations that see everything under a key keep an index, made when it is first asked for and
undone with the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from timelapse.errors import DefinitionError, TypeMismatch
from timelapse.kinds.base import ABSENT, State, StateOptions, StateSpec, Store
from timelapse.model.types import Check, TupleType, ValueType, parse_key, parse_value

GROUPS = "groups"
"""The name of the index among what a state keeps beside its values."""


class Under(NamedTuple):
    """In place of a stored key: all that stands under a declared one."""

    key: Any

    def holds(self, stored: Any) -> bool:
        """Whether a stored key stands under it."""
        head = self.key if isinstance(self.key, tuple) else (self.key,)
        return isinstance(stored, tuple) and stored[: len(head)] == head


def parts_of(kind: ValueType) -> tuple[ValueType, ...]:
    """The parts of a key's type."""
    return kind.items if isinstance(kind, TupleType) else (kind,)


def joined(outer: ValueType, inner: ValueType) -> TupleType:
    """The type of stored keys."""
    items = (*parts_of(outer), *parts_of(inner))
    return TupleType(items, tuple(f"f{i}" for i in range(len(items))))


class Grouped(State):
    """A state whose operations take a declared key and what tells apart the things under it."""

    needs_key = True
    plain_reads = False
    shape: ClassVar[str] = ""
    """How it is declared, for messages."""
    pairs: ClassVar[frozenset[str]] = frozenset()
    """Operations that are asked with a declared key and what stands under it; `x[...]` is getitem."""
    given_pairs: ClassVar[frozenset[str]] = frozenset()
    """Those whose first argument is a pair of both."""

    __slots__ = ("_outer", "_own", "_side", "_store_drop", "_store_put", "_stored_under", "_width")

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        assert spec.outer is not None
        self._outer: Check = spec.outer.checker(f"a key of {spec.name}")
        self._width = len(parts_of(spec.outer))
        self._side = store.side
        self._stored_under: Callable[[tuple[Any, ...]], Iterable[Any]] | None = getattr(
            store, "stored_under", None
        )
        """Gives the stored keys that begin with the parts of a declared one, where the store keeps such an index itself."""
        self._own: dict[str, Any] = {}
        self._store_put, self._store_drop = self._put, self._drop
        self._put, self._drop = self._put_indexed, self._drop_indexed

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if len(args) != (3 if cls.has_value else 2):
            raise DefinitionError(
                f"it is declared as {cls.shape}", hint=f"for example {name}: tl.{cls.shape}"
            )
        cls._check_options(options)
        outer, inner = parse_key(args[0]), parse_key(args[1])
        value = parse_value(args[2]) if cls.has_value else None
        default = options.default
        if default is not ABSENT:
            if value is None:
                raise DefinitionError(f"{cls.__name__} takes no default", hint="leave it out")
            default = value.checker(f"the default of {name}")(default)
        return StateSpec(name, cls, joined(outer, inner), value, default, line, outer, inner)

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        return [t for t in (spec.outer, spec.inner, spec.value if cls.has_value else None) if t is not None]

    @classmethod
    def key_check(cls, spec: StateSpec) -> Check:
        """Takes the pair of a declared key and what stands under it; gives the stored key."""
        assert spec.outer is not None
        assert spec.inner is not None
        outer = spec.outer.checker(f"a key of {spec.name}")
        inner = spec.inner.checker(f"what stands under a key of {spec.name}")
        name, shape = spec.name, cls.shape
        first, second = isinstance(spec.outer, TupleType), isinstance(spec.inner, TupleType)

        def check(pair: Any) -> Any:
            if type(pair) is not tuple or len(pair) != 2:
                raise TypeMismatch(
                    f"{name} is a {shape}: it is asked with a pair, not with {pair!r}",
                    hint=f"(key, member) in self.{name}, or self.{name}[key, field]",
                )
            try:
                k, m = outer(pair[0]), inner(pair[1])
            except TypeMismatch:
                if pair[1] is not ABSENT:
                    raise
                raise TypeMismatch(
                    f"{name} is a {shape}: it was given {pair[0]!r}, and nothing that stands under a key",
                    hint=f"two arguments, as in self.{name}.add(key, member)",
                ) from None
            return (*(k if first else (k,)), *(m if second else (m,)))

        return check

    @classmethod
    def declared_key(cls, spec: StateSpec, argument: Any, operation: str) -> Any:
        """The declared key that an operation's first argument names. Raises TypeMismatch."""
        assert spec.outer is not None
        if operation in cls.given_pairs:
            cls.key_check(spec)(argument)
            argument = argument[0]
        return spec.outer.checker(f"a key of {spec.name}")(argument)

    @classmethod
    def asks_pair(cls, operation: str) -> bool:
        """Whether an operation is about one thing under a key; else it is about the key."""
        return operation in cls.pairs

    # --- everything under one key -------------------------------------------------------------------

    def _key_and_member(self, stored: Any) -> tuple[Any, Any]:
        spec, width = self._spec, self._width
        k = stored[:width] if isinstance(spec.outer, TupleType) else stored[0]
        return k, stored[width:] if isinstance(spec.inner, TupleType) else stored[width]

    def _groups(self) -> dict[Any, dict[Any, Any]]:
        """Declared key -> member -> stored key, for all that is present."""
        found: dict[Any, dict[Any, Any]] | None = self._own.get(GROUPS)
        if found is None:
            found = {}
            for stored, _ in self._items():
                k, m = self._key_and_member(stored)
                found.setdefault(k, {})[m] = stored
            self._side(self._own, GROUPS, found)
        return found

    def _under(self, key: Any) -> dict[Any, Any]:
        """Member -> stored key, under one declared key."""
        declared = self._outer(key)
        if self._stored_under is not None:
            head = declared if isinstance(self._spec.outer, TupleType) else (declared,)
            return {self._key_and_member(stored)[1]: stored for stored in self._stored_under(head)}
        return self._groups().get(declared) or {}

    def _number(self, key: Any) -> int:
        """How many things stand under one declared key."""
        return len(self._under(key))

    def _put_indexed(self, key: Any, value: Any) -> None:
        self._store_put(key, value)
        self._enter(key)

    def _drop_indexed(self, key: Any) -> None:
        self._store_drop(key)
        self._leave(key)

    def _enter(self, key: Any) -> None:
        """A stored key is there: the index is told, if there is one."""
        groups = self._own.get(GROUPS)
        if groups is not None:
            k, m = self._key_and_member(key)
            under = groups.get(k)
            if under is None:
                self._side(groups, k, {m: key})
            elif m not in under:
                self._side(under, m, key)

    def _leave(self, key: Any) -> None:
        """A stored key is gone."""
        groups = self._own.get(GROUPS)
        if groups is not None:
            k, m = self._key_and_member(key)
            under = groups.get(k, {})
            if m in under:
                if len(under) == 1:
                    self._side(groups, k, ABSENT)
                else:
                    self._side(under, m, ABSENT)

    def _clear(self, key: Any) -> None:
        for stored in list(self._under(key).values()):
            self._drop(stored)
