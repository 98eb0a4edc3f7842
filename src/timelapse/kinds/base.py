"""What all state kinds share: declarations, the store a state stands on, operations and their effects.

A state is a keyed, typed map with few operations. Its *meaning* is ordinary Python over a `Store`
that can get, put and drop one key's value; who keeps the values (the serial reference, a slice of a
replay, a live run) supplies the store. A state without a key has the single key `()`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, Self

from timelapse.display import span
from timelapse.errors import DefinitionError, TimeRange, UsageError
from timelapse.model.types import Check, ValueType, parse_key, parse_value
from timelapse.moments import shown_time, time_text

if TYPE_CHECKING:
    from timelapse.kinds.effects import Delta


class _Absent:
    """The one value that says a key is not there (None may be a stored value)."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final[Any] = _Absent()
UNKEYED: Final = ()


class Store(Protocol):
    """Where a state's values are. Only present keys are stored.

    The one contract between kinds and whoever runs a program: every store has all of it, also where one is only
    read (writes raise), where nobody asks for the state (writes are dropped), or where a kernel cannot tell what is
    asked (then it raises what gives the kernel up). Where events can be undone, what `put`, `drop` and `side` did
    since the event began is undone together, last first.
    """

    def get(self, key: Any, default: Any) -> Any:
        """What the key holds, or the default."""

    def put(self, key: Any, value: Any) -> None:
        """Have the key hold a value."""

    def drop(self, key: Any) -> None:
        """Have the key hold nothing. Nothing happens if it holds nothing."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """All present keys with their values, in any order."""

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Write into a table that a kind keeps beside the values (ABSENT removes the key): undone with them."""


@dataclass(frozen=True, slots=True)
class Op:
    """What one operation of a kind does, for the analysis.

    `effect` names the write (None: only reads); `reads` says whether its result depends on the
    state; `all_keys` that it reads every key. Arguments are given by position: where the key
    stands and where the value stands (None: the operation has none). Several places for the key: they
    are the parts of a tuple.
    """

    effect: str | None = None
    reads: bool = False
    all_keys: bool = False
    key: int | tuple[int, ...] | None = 0
    value: int | None = None


@dataclass(frozen=True, slots=True)
class StateOptions:
    """What `tl.state(...)` says of a state."""

    default: Any = ABSENT
    history: int | None = None
    alpha: float | None = None
    half_life: int | None = None
    last: int | None = None
    size: int | None = None
    error: float | None = None

    def given(self) -> dict[str, Any]:
        """What was said beside the default, by name."""
        said = {
            "alpha": self.alpha, "half_life": self.half_life, "last": self.last, "size": self.size, "error": self.error,
        }  # fmt: skip
        return {name: value for name, value in said.items() if value is not None}


def state(
    *, default: Any = ABSENT, history: int | None = None, alpha: float | None = None,
    half_life: int | None = None, last: int | None = None, size: int | None = None,
    error: float | None = None,
) -> Any:  # fmt: skip
    """Options of a state.

    `default` is what reading a missing key gives; `history` (microseconds) is how far back
    `get(k, at=t)` may go. Some kinds take more (docs/kinds.md): `alpha`, the weight of the
    newest value, or `half_life` (microseconds), after which a value weighs half; `last`, how many values
    per key are kept; `size`, how much of a key is kept; `error`, the largest relative one.
    """
    return StateOptions(default, history, alpha, half_life, last, size, error)


class Short(NamedTuple):
    """A kind in short, for the tables of docs/kinds.md."""

    writes: str
    reads: str
    missing: str
    """As what a missing key reads."""
    effects: str
    """What a slice does to a key."""
    exact: str
    """When that is composed exactly."""


class Clock(Protocol):
    """What lets a state look back and ahead in time. Whoever runs a program with such states supplies it."""

    def now(self) -> int:
        """The time of the step, in microseconds."""

    def dated(self, state: State, at: int, method: str, arguments: tuple[Any, ...]) -> None:
        """Have `method(*arguments)` called on the state at a time after now."""

    def ago(self, state: State, lag: int) -> Any:
        """The state as of `lag` microseconds ago; only read."""

    def last(self, state: State, width: int) -> Any:
        """What happened to the state in the last `width` microseconds, as a state; only read."""

    def at(self, state: State, at: int) -> Any:
        """The state as of a time before now; only read."""


@dataclass(frozen=True, slots=True)
class StateAlias:
    """`tl.Counter[int]` before the class that declares it is complete."""

    kind: type[State]
    args: tuple[Any, ...]


@dataclass(frozen=True)
class StateSpec:
    """One declared state: name, kind, types, default."""

    name: str
    kind: type[State]
    key: ValueType | None
    value: ValueType | None
    default: Any = ABSENT
    line: int | None = field(default=None, compare=False)
    outer: ValueType | None = None
    """Where a key of the kind holds several things: the key as declared. `key` is then the parts of both."""
    inner: ValueType | None = None
    """What tells the things under one declared key apart."""
    options: tuple[tuple[str, Any], ...] = ()
    """What `tl.state(...)` says beside the default."""
    history: int | None = None
    """How far back reads of the past may go (microseconds); None: there are none."""

    @property
    def text(self) -> str:
        """The declaration as it is written."""
        args = ", ".join(t.text for t in self.kind.arguments(self))
        said = "".join(f" {name}={value!r}" for name, value in self.options if name != "scale")
        return f"{self.kind.__name__}{f'[{args}]' if args else ''}{said}"

    def option(self, name: str) -> Any:
        """What `tl.state(...)` says under this name, or None."""
        return dict(self.options).get(name)

    @property
    def keyed(self) -> bool:
        return self.key is not None


class State:
    """Base of the state kinds. Subclasses give the operations; users declare, never construct."""

    has_value: ClassVar[bool] = True
    """Whether the declaration takes a value type."""
    attribute_style: ClassVar[bool] = False
    """Whether an un-keyed state is used as a plain attribute (`self.total += 1`)."""
    ops: ClassVar[dict[str, Op]] = {}
    """Operations by name: method names, and getitem, setitem, delitem, contains, iadd, isub."""
    needs_key: ClassVar[bool] = False
    uses_now: ClassVar[bool] = False
    """Whether operations depend on the time of the step: `_now()`, which the run supplies."""
    plain_reads: ClassVar[bool] = True
    """Whether `x[k]` and `get` give what is stored under the key."""
    allowed: ClassVar[frozenset[str]] = frozenset()
    """What `tl.state(...)` may say beside the default."""

    net_window: ClassVar[bool] = False
    """Whether `last(W)` is the value now minus the value W ago (integers that are added up)."""
    log_form: ClassVar[str] = ""
    """What a row of the state's log says of a stored key (tables/effectlog.py): "net", by how much the integer changed;
    "present", whether it is there now, with which value. Empty: the same, but `last` takes the operations themselves."""
    unlogged: ClassVar[frozenset[str]] = frozenset()
    """Effects whose part in a window does not follow from what they did to the state: `last` takes the operations."""

    window_form: ClassVar[Literal["", "net", "latest", "best", "first"]] = ""
    """What a key's operations in a window come to, where less than all of them tells: "net", the value now less the value
    then; "latest", what the latest left; "best", the first of those that no later one has beaten (`_beats`); "first", the first."""
    presence: ClassVar[bool] = False
    """Whether a key is there or not, and that is all: reads give a bool."""
    one_way: ClassVar[Literal["", "added", "set"]] = ""
    """By what its writes can be seen to give no key a value back that it has left (analysis/onward.py): "added", a whole number is added to
    it; "set", it is set to what it is compared with before."""
    rewritten: ClassVar[frozenset[str]] = frozenset()
    """Effects that say the same as `x[k] = v` where v is made of what the key holds in a way that the analysis recognises
    (analysis/idioms): "add", a sum; "up", "down" and the same `_always`, an extremum; "first", a write of what is missing."""
    settling: ClassVar[frozenset[str]] = frozenset()
    """Effects that change nothing where the key is there already."""
    never_none: ClassVar[bool] = False
    """Whether None is refused as a value, also where the declared type has it."""
    shows_declared: ClassVar[bool] = False
    """Whether `x[k]` is always a value of the declared type, or the declared default."""
    parts: ClassVar[tuple[Any, ...]] = ()
    """Under what the values of a declared key stand, where they always are the same ones, and reads are made of all of them."""
    effect_words: ClassVar[Mapping[str, str]] = {}
    """Its effects in words, for explanations, where the usual words (plan/strategy.py) do not say it."""
    in_place: ClassVar[str] = ""
    """What is kept in it where a state that is written from its own value does not scan; empty where that is no help."""
    adds: ClassVar[str] = ""
    """What it adds up exactly, in words."""
    breaks: ClassVar[Mapping[str, str]]
    """The effects that do not compose, each with the reason; `{}` in it is the state's name. Every kind says them, also that there are none."""
    short: ClassVar[Short]
    columns: ClassVar[str] = "`key`, `value`"
    """The columns that `shown` gives, for docs/kinds.md."""
    signs: ClassVar[Mapping[str, str]] = {}
    """How its operations are written, for docs/kinds.md, where that is not `x[k]`, `k in x` and the like."""
    under_column: ClassVar[str] = "member"
    """The column of what tells apart the things under a declared key."""

    __slots__ = (
        "_check_key", "_check_value", "_clock", "_default", "_drop", "_get", "_items", "_now", "_put",
        "_spec",
    )  # fmt: skip

    def __init__(self, spec: StateSpec, store: Store) -> None:
        self._spec = spec
        self._get = store.get
        self._put = store.put
        self._drop = store.drop
        self._items = store.items
        self._now: Callable[[], int] = _no_time
        self._check_key: Check = self.key_check(spec)
        self._check_value: Check = (
            _unchecked if spec.value is None else spec.value.checker(f"a value of {spec.name}")
        )
        self._default = None if spec.default is ABSENT else spec.default
        self._clock: Clock | None = None

    def last(self, width: int) -> Self:
        """This kind over the last `width` microseconds: log events at t see (t - width, t], ticks [t - width, t).

        A Counter gives the net change; other kinds what the operations in the window make of nothing.
        `width` is made of constants and parameters. The view is only read.
        """
        return self._time("last").last(self, width)  # type: ignore[no-any-return]

    def ago(self, lag: int) -> Self:
        """This state as it was `lag` microseconds ago: after everything up to and at now - lag (ticks: before it).

        `lag` is made of constants and parameters. The view is only read.
        """
        return self._time("ago").ago(self, lag)  # type: ignore[no-any-return]

    def _time(self, what: str) -> Clock:
        if self._clock is None:
            raise UsageError(
                f"{self._spec.name}: {what} was not found when the program was defined",
                hint=f"write self.{self._spec.name}.{what}(...) in a method of the program itself", code="TL207",
            )  # fmt: skip
        return self._clock

    def _or_else(self, key: Any, default: Any) -> tuple[Any, Any]:
        """Key and default of `get(k, default)`, or of `get(default)` where the state has no key."""
        if default is ABSENT and self._spec.key is None and key is not UNKEYED:
            return UNKEYED, key
        return key, default

    def _later(self, at: int, method: str, *arguments: Any) -> bool:
        """Have a write done at a time in the future. False when that is now: then it is done at once."""
        clock = self._time("at=")
        now = clock.now()
        if type(at) is not int or at < now:
            raise TimeRange(
                f"{self._spec.name}.{method} is dated {shown_time(at)}, and it is {time_text(now)}",
                hint="at= is a time in microseconds that is not before self.now",
            )
        if at == now:
            return False
        clock.dated(self, at, method, arguments)
        return True

    def _as_of(self, at: int | None) -> Self:
        """The state to read from: this one, or as it was at a time in the past."""
        if at is None:
            return self
        clock = self._time("at=")
        now, history = clock.now(), self._spec.history
        if type(at) is not int or at > now:
            raise TimeRange(
                f"{self._spec.name} is read at {shown_time(at)}, and it is {time_text(now)}",
                hint="at= is a time in microseconds that is not after self.now",
            )
        if at == now:
            return self
        if history is None or at < now - history:
            kept = "no history" if history is None else f"a history of {span(history)}"
            raise TimeRange(
                f"{self._spec.name} is read {span(now - at)} back, and it keeps {kept}",
                hint=f"{self._spec.name}: tl.{self._spec.text} = tl.state(history=...), as far as reads go back",
            )
        return clock.at(self, at)  # type: ignore[no-any-return]

    def __class_getitem__(cls, args: Any) -> Any:
        if any(isinstance(a, typing.TypeVar) for a in (args if isinstance(args, tuple) else (args,))):
            return super().__class_getitem__(args)  # type: ignore[misc]  # Generic's, for subclasses
        return StateAlias(cls, args if isinstance(args, tuple) else (args,))

    def __repr__(self) -> str:
        return f"<{self._spec.text} {self._spec.name}>"

    def __iter__(self) -> Any:
        raise TypeError(
            f"{self._spec.name} does not iterate by itself: use {self._spec.name}.items(), "
            "which reads every key in key order"
        )

    def __bool__(self) -> bool:
        raise TypeError(f"{self._spec.name} has no truth value: ask for a key, `k in self.{self._spec.name}`")

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        """Parse a declaration. Raises DefinitionError."""
        key, value = cls._split(name, args)
        cls._check_options(options)
        key_type = None if key is None else parse_key(key)
        value_type = None if value is None else parse_value(value)
        default = options.default
        if default is not ABSENT and value_type is not None:
            default = value_type.checker(f"the default of {name}")(default)
        elif default is not ABSENT:
            raise DefinitionError(f"{cls.__name__} takes no default", hint="leave it out")
        return StateSpec(
            name, cls, key_type, value_type, default, line, options=tuple(options.given().items())
        )

    @classmethod
    def _check_options(cls, options: StateOptions) -> None:
        for option in options.given():
            if option not in cls.allowed:
                raise DefinitionError(f"{cls.__name__} takes no {option}=", hint="leave it out")

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        """The types in the brackets of the declaration."""
        return [t for t in (spec.key, spec.value if cls.has_value else None) if t is not None]

    @classmethod
    def key_check(cls, spec: StateSpec) -> Check:
        """Checks a key as handlers write it and gives it as it is stored. Raises TypeMismatch."""
        return _no_key if spec.key is None else spec.key.checker(f"a key of {spec.name}")

    @classmethod
    def _split(cls, name: str, args: tuple[Any, ...]) -> tuple[Any, Any]:
        """Arguments of the declaration to (key, value); either may be None."""
        shape = f"{cls.__name__}[Key, Value]" if cls.has_value else f"{cls.__name__}[Key]"
        if cls.has_value:
            if len(args) == 2:
                return args
            if len(args) == 1:
                return None, args[0]
        elif len(args) == 1:
            return args[0], None
        elif not args and not cls.needs_key:
            return None, None
        raise DefinitionError(
            f"{cls.__name__} is declared as {shape}", hint=f"for example {name}: tl.{shape}"
        )

    @classmethod
    def delta(cls, spec: StateSpec, journal: list[tuple[dict[Any, Any], Any, Any]] | None) -> Delta:
        """The object that collects a slice's effects while the state itself is not known."""
        from timelapse.kinds.effects import FuncDelta

        return FuncDelta(spec, journal)

    @classmethod
    def join(cls, spec: StateSpec, before: Any, more: Any) -> Any:
        """What a key holds after a slice that did not empty it, from what it held and what the slice made of nothing:
        for kinds whose delta has the form *list*."""
        raise TypeError("abstract")

    @classmethod
    def most_kept(cls, spec: StateSpec) -> int | None:
        """How many values a key's list has at most; None: any number, or the kind keeps no lists."""
        return None

    @classmethod
    def shown(cls, spec: StateSpec, key: Any, under: Any, stored: Any) -> dict[str, Any]:
        """The columns of a state table as users see it, from columns (Arrow) of declared keys, of what stands under them and
        of what is stored. Each is None where there is none."""
        columns = {"key": key, cls.under_column: under}
        if spec.value is not None:
            columns["value"] = cls.shown_values(spec, stored)
        return {name: column for name, column in columns.items() if column is not None}

    @classmethod
    def shown_values(cls, spec: StateSpec, stored: Any) -> Any:
        """A column of what is stored as users see it."""
        return stored

    @classmethod
    def shown_stored(cls, spec: StateSpec, key: Any, stored: Any) -> Any:
        """What is stored under a key (or ABSENT, None), as it is shown where a question names it."""
        return stored

    @classmethod
    def beyond(cls, spec: StateSpec, key: Any, total: int) -> Exception:
        """The error where what is added up under a stored key leaves int64: for kinds whose windows are sums, but `net_window`."""
        raise TypeError("abstract")

    @classmethod
    def composes(cls, spec: StateSpec, effects: frozenset[str]) -> str | None:
        """None when these effects compose exactly (strategy scan), else the reason why not."""
        return next((why.format(spec.name) for effect, why in cls.breaks.items() if effect in effects), None)


def _no_time() -> int:
    raise TypeError("there is no time outside of a run")


def _no_key(key: Any) -> Any:
    return UNKEYED


def _unchecked(value: Any) -> Any:
    return value


def needs_default(spec: StateSpec) -> None:
    """Refuse a state whose missing keys could not be read."""
    if spec.default is ABSENT and not (spec.value is not None and spec.value.nullable):
        text = spec.value.text if spec.value is not None else ""
        raise DefinitionError(
            f"{spec.kind.__name__} needs a default: a missing key has no {text} to read",
            hint=f"write `{spec.name}: tl.{spec.text} = tl.state(default=...)`, "
            f"or make the value optional ({text} | None)",
            code="TL108",
        )
