"""The compiler's form of a pass: statements as nodes, with expressions as they are spelt in Python.

Parts of the compiler write it (`code.py`), passes change it (`passes.py`), `print.py` makes source of it. What a pass has to
know of a statement is said by its node and never read from its text: that it looks a row up, saves one, asks for room, leaves.
What an expression refers to is asked of `names_in` and `parsed`, which read each spelling once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from timelapse.kernels.native.lowering.values import spelled
from timelapse.kernels.native.status import ABROAD, SPENT

Key = tuple[str, ...]
"""The words of a key."""


@dataclass(eq=False)
class Node:
    """One statement."""

    @property
    def assigned(self) -> tuple[str, ...]:
        """The variables that the statement itself assigns."""
        return ()

    @property
    def codes(self) -> tuple[str, ...]:
        """The expressions of the statement itself."""
        return ()

    @property
    def blocks(self) -> tuple[list[Node], ...]:
        """The statements within it."""
        return ()


# --- what is done ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Assign(Node):
    """`target = code`, or another `op`. The target is a variable or an element of an array."""

    target: str
    code: str
    op: str = "="

    @property
    def assigned(self) -> tuple[str, ...]:
        return (self.target,) if self.target.isidentifier() else ()

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.code,) if self.target.isidentifier() and self.op == "=" else (self.target, self.code)


@dataclass(eq=False)
class Do(Node):
    """A call. `log`: the state to whose log it adds."""

    code: str
    log: int | None = None

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.code,)


@dataclass(eq=False)
class Look(Node):
    """A key's row is looked up in a table: by `find` or `look`, or, which gives it one where it has none, `claim` or `own`.

    `look` and `own` are for tables whose start state may be mapped (touch.py).
    """

    row: str
    what: str
    table: int
    key: Key

    @property
    def place(self) -> tuple[int, Key]:
        """What it looks up."""
        return self.table, self.key

    @property
    def makes(self) -> bool:
        """Whether the key has a row after it."""
        return self.what in ("claim", "own")

    @property
    def takes(self) -> bool:
        """Whether it may take a free row. A `find` never does."""
        return self.what != "find"

    @property
    def assigned(self) -> tuple[str, ...]:
        return (self.row,)

    @property
    def codes(self) -> tuple[str, ...]:
        return (*self.key, spelled(self.table))


@dataclass(eq=False)
class Occupy(Node):
    """A key takes the free row that is known to be its own, unless it has it."""

    row: str
    known: str
    table: int
    key: Key

    @property
    def assigned(self) -> tuple[str, ...]:
        return (self.row,)

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.known, *self.key)


@dataclass(eq=False)
class Save(Node):
    """A row, before it is written, goes to the undo log."""

    row: str
    table: int
    state: int
    place: int
    live: int

    @property
    def assigned(self) -> tuple[str, ...]:
        return ("u",)

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.row, *map(spelled, (self.state, self.place, self.live)))


@dataclass(eq=False)
class Keep(Node):
    """Before a row is written, it is copied to the rows as they were. `words`: when it is looked up, to the copies of its step, if it has so many words
    (0: not so)."""

    row: str
    table: int
    words: int = 0

    @property
    def codes(self) -> tuple[str, ...]:
        return self.row, spelled(self.table), spelled(self.words)


# --- where the code goes on ------------------------------------------------------------------------


@dataclass(eq=False)
class If(Node):
    """A branch. `orelse`: None where there is no other way. `chained`: that is one further test, an `elif`."""

    test: str
    body: list[Node] = field(default_factory=list)
    orelse: list[Node] | None = None
    chained: bool = False

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.test,)

    @property
    def blocks(self) -> tuple[list[Node], ...]:
        return (self.body,) if self.orelse is None else (self.body, self.orelse)


@dataclass(eq=False)
class Room(Node):
    """Leave where a buffer is full. `asked` is what holds if one is; `where`: only then it matters."""

    asked: str
    where: str
    reason: int

    @property
    def test(self) -> str:
        """When it leaves."""
        return f"{self.where} and {self.asked}" if self.where else self.asked

    @property
    def codes(self) -> tuple[str, ...]:
        return self.test, spelled(self.reason)


@dataclass(eq=False)
class While(Node):
    """A loop that goes on while its test holds."""

    test: str
    body: list[Node] = field(default_factory=list)

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.test,)

    @property
    def blocks(self) -> tuple[list[Node], ...]:
        return (self.body,)


@dataclass(eq=False)
class For(Node):
    """A loop with a counter."""

    counter: str
    over: str
    body: list[Node] = field(default_factory=list)

    @property
    def assigned(self) -> tuple[str, ...]:
        return (self.counter,)

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.over,)

    @property
    def blocks(self) -> tuple[list[Node], ...]:
        return (self.body,)


@dataclass(eq=False)
class Break(Node):
    """Leave a loop. `rejects`: to where what the event did is undone."""

    rejects: bool = False


@dataclass(eq=False)
class Continue(Node):
    """The next round of a loop."""


@dataclass(eq=False)
class Return(Node):
    """The end of the function, which is reached."""

    code: str

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.code,)


@dataclass(eq=False)
class Leave(Node):
    """Leave the function for a reason (unit.py)."""

    reason: int

    @property
    def codes(self) -> tuple[str, ...]:
        return (spelled(self.reason),)

    @property
    def undoes(self) -> bool:
        """Whether what the event wrote is undone then."""
        return self.reason not in (SPENT, ABROAD)


# --- questions -------------------------------------------------------------------------------------


def walk(body: Iterable[Node]) -> Iterator[Node]:
    """All statements, in the order in which they stand."""
    for node in body:
        yield node
        for block in node.blocks:
            yield from walk(block)


def assigned_in(body: Iterable[Node]) -> set[str]:
    """The variables that statements assign, with those within them."""
    return {name for node in walk(body) for name in node.assigned}


def names_used(body: Iterable[Node]) -> set[str]:
    """The names in all expressions."""
    return {name for node in walk(body) for code in node.codes for name in names_in(code)}


def leaves(body: Iterable[Node]) -> bool:
    """Whether something leaves the event so that what it wrote is undone."""
    return any(is_exit(node) for node in walk(body))


def is_exit(node: Node) -> bool:
    """Whether a statement leaves the event so that what it wrote is undone."""
    match node:
        case Leave():
            return node.undoes
        case Break(rejects=rejects):
            return rejects
    return isinstance(node, Room)


@lru_cache(maxsize=1 << 14)
def parsed(code: str) -> ast.expr:
    """An expression."""
    return ast.parse(code, mode="eval").body


@lru_cache(maxsize=1 << 14)
def names_in(code: str) -> frozenset[str]:
    """The names in an expression."""
    if code.isidentifier():
        return frozenset((code,))
    return frozenset(n.id for n in ast.walk(parsed(code)) if isinstance(n, ast.Name))


def with_jumps(body: list[Node]) -> list[Node]:
    """The code of an event, with the variable that says how far it jumps where it does."""
    return [Assign("jump", "0"), *body] if "jump" in assigned_in(body) else body


def chain(tests: Sequence[tuple[str, list[Node]]]) -> list[Node]:
    """A body for each test, of which one holds."""
    found: list[Node] | None = None
    for test, body in reversed(tests):
        found = [If(test, body, found, chained=found is not None)]
    return found or []
