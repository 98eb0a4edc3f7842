"""The code of one event, as it is written: statements, the variables in which ways meet, loops, and what leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from timelapse.kernels.native.lowering.comparisons import truth
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.flow import Join, Level, Moves, is_simple, resolved
from timelapse.kernels.native.lowering.form import Assign, Break, Do, For, If, Leave, Node, Room, While
from timelapse.kernels.native.lowering.taking import TakingOut
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, Value
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.status import HOPELESS, LEAVE, ROOM, SPENT

MAX_NODES, MAX_DEPTH = 3000, 88  # of 100 blocks that Python takes, some of which are around it


class Code:
    """What every part of the compiler writes to."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.taking = TakingOut(ctx, self)
        self._open: list[tuple[Node | None, list[Node]]] = [(None, [])]
        """The statements being written within, and those within each: first all of them."""
        self._count = 0
        self.levels: list[Level] = []
        """The loops of the generated code that are left by `break`."""
        self.jumps: set[tuple[int, int]] = set()
        """Levels in which a jump to an outer one, its second, is written."""
        self.loops = 0
        """How many loops, whose number of rounds is known only as they run, are being written."""
        self._names = 0
        self.filled: set[str] = set()
        """What `room_if` asked for in loops."""

    def begin(self, *, loops: int = 0) -> None:
        """Write something new. Names go on."""
        self._open, self._count, self.levels, self.loops = [(None, [])], 0, [Level(1)], loops

    def finished(self) -> list[Node]:
        """What is written since."""
        return resolved(self._open[0][1])

    def mark(self) -> CodeMark:
        """How far the writing has come."""
        ends = tuple(len(block) for _, block in self._open)
        return CodeMark(ends, self._count, len(self.levels), frozenset(self.jumps), self.loops)

    def back(self, mark: CodeMark) -> None:
        """Forget what was written since."""
        del self._open[len(mark.ends) :], self.levels[mark.levels :]
        for (_, block), end in zip(self._open, mark.ends, strict=True):
            del block[end:]
        self._count, self.jumps, self.loops = mark.count, set(mark.jumps), mark.loops

    # --- statements -------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Write a statement."""
        if self._count >= MAX_NODES or len(self._open) > MAX_DEPTH:
            how = "long" if len(self._open) <= MAX_DEPTH else "deeply nested"
            raise Refused(f"the handlers are too {how} to be written out", self._ctx.line)
        self._count += 1
        self._open[-1][1].append(node)

    def assign(self, target: str, code: str, op: str = "=") -> None:
        """Write to a variable, or to an element of an array."""
        self.add(Assign(target, code, op))

    def do(self, code: str, *, log: int | None = None) -> None:
        """Call something. `log`: the state to whose log it adds."""
        self.add(Do(code, log))

    def name(self, stem: str) -> str:
        """A new name."""
        self._names += 1
        return f"{stem}{self._names}"

    def temp(self, kind: str, code: str) -> Value:
        """Assign to a new variable."""
        name = self.name("x")
        self.assign(name, code)
        return Value(kind, name)

    @contextmanager
    def when(self, test: str) -> Iterator[None]:
        """What is written within is done where a test holds."""
        node = If(test)
        self.add(node)
        with self._within(node, node.body):
            yield

    @contextmanager
    def otherwise(self, test: str = "") -> Iterator[None]:
        """What is written within is done where those before it do not hold; where a test is given, only if that holds."""
        node = self._open[-1][1][-1]
        assert isinstance(node, If)
        while node.chained:
            assert node.orelse is not None
            (node,) = node.orelse
            assert isinstance(node, If)
        body: list[Node] = []
        node.chained = bool(test)
        node.orelse = [If(test, body)] if test else body
        with self._within(node, body):
            yield

    @contextmanager
    def repeat(self, test: str) -> Iterator[None]:
        """What is written within is done while a test holds."""
        node = While(test)
        self.add(node)
        with self._within(node, node.body):
            yield

    @contextmanager
    def each(self, counter: str, over: str) -> Iterator[None]:
        """What is written within is done for each number of a range."""
        node = For(counter, over)
        self.add(node)
        with self._within(node, node.body):
            yield

    @contextmanager
    def _within(self, node: Node, body: list[Node]) -> Iterator[None]:
        self._open.append((node, body))
        yield
        self._open.pop()

    @property
    def in_plain_loop(self) -> bool:
        """Whether what is written now stands in a loop that is no level of the code."""
        return any(isinstance(node, For) for node, _ in self._open)

    @contextmanager
    def rounds(self, count: str) -> Iterator[str]:
        """Lines written inside run so many times; gives the number of the round."""
        n = self.name("n")
        self.loops += 1
        with self.each(n, count):
            yield n
        self.loops -= 1

    @property
    def in_loop(self) -> bool:
        """Whether what is written now may run more than once for an event."""
        return self.loops > 0

    def round_begins(self) -> None:
        """Count a round of a loop against the event's budget. What is written need not be undone then."""
        self._ctx.unit.loops = True
        self.assign("rounds", "1", "-=")
        self.leave_if("rounds < 0", SPENT)

    # --- values -----------------------------------------------------------------------------------

    def store(self, stem: str, value: Value) -> Value:
        """Assign to variables that are named after the stem and the value's shape."""
        if value.kind == "none":
            return value
        if value.is_compound:
            items = [self.store(f"{stem}_{i}", item) for i, item in enumerate(value.items)]
            return Value(value.kind, items=tuple(items), cls=value.cls)
        name = f"{stem}_{value.kind}"
        self.assign(name, value.code)
        return Value(value.kind, name)

    def fixed(self, value: Value) -> Value:
        """The same value as names and literals."""
        if value.kind in ("none", "list") or value.const is not NOT_CONSTANT:
            return value
        if value.is_compound:
            items = tuple(self.fixed(i) for i in value.items)
            return Value(value.kind, items=items, cls=value.cls, origin=value.origin)
        return value if is_simple(value) else self.temp(value.kind, value.code)

    def condition(self, code: str) -> Value:
        """The value of a condition."""
        if code in ("True", "False"):
            return self._ctx.const(code == "True")
        return self.fixed(Value("bool", code))

    def truth(self, value: Value) -> str:
        """The condition that a value is true."""
        return truth(value, str(self._ctx.text(b"" if value.kind == "bytes" else "")))

    def moves(self, pairs: Sequence[tuple[Join | Value, Value]] = ()) -> Moves:
        """Assignments at this place; to joins, they are registered there."""
        moves = Moves(list(pairs))
        for target, value in pairs:
            if isinstance(target, Join):
                target.values.append(value)
        self.add(moves)
        return moves

    def choose(self, test: str, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """`yes` where the test holds, else `no`."""
        if test in ("True", "False"):
            return yes() if test == "True" else no()
        join = Join(self.name("v"))
        with self.when(test):
            self.moves([(join, yes())])
        with self.otherwise():
            self.moves([(join, no())])
        return self.joined(join, "a choice between")

    def joined(self, join: Join, what: str) -> Value:
        """The value in which ways meet, all of which are written. Raises Refused, of `what`."""
        found = join.finish()
        if found is None:
            kinds = list(dict.fromkeys(v.text for v in join.values))
            raise Refused(f"{what} {' and '.join(kinds)}", self._ctx.line)
        return found

    def met(self, ways: Sequence[tuple[Env, Moves]]) -> Env | None:
        """The names after several ways have met; each way's moves are filled."""
        if not ways:
            return None
        (first, _), *rest = ways
        if not rest:
            return dict(first)
        env: Env = {}
        for name, value in first.items():
            found = [other.get(name) for other, _ in rest]
            if all(f == value for f in found):
                env[name] = value
            elif isinstance(value, Value) and all(isinstance(f, Value) for f in found):
                self._joined_name(name, ways, env)
        return env

    def _joined_name(self, name: str, ways: Sequence[tuple[Env, Moves]], env: Env) -> None:
        join = Join(self.name("v"))
        values: list[Any] = [way[name] for way, _ in ways]
        join.values = values
        if any(v.kind == "list" for v in values) or join.finish() is None:
            return  # of no common type: it can only be used where it is assigned again
        for (_, moves), one in zip(ways, values, strict=True):
            moves.pairs.append((join, one))
        assert join.found is not None
        env[name] = join.found

    # --- loops that are left by `break` -----------------------------------------------------------

    def open(self, *, user: bool = False) -> Level:
        """Begin a loop that goes on until it is left."""
        if len(self.levels) >= 15:
            raise Refused("loops and calls are nested too deeply", self._ctx.line)
        level = Level(len(self.levels) + 1, user=user)
        self.levels.append(level)
        loop = While("True")
        self.add(loop)
        self._open.append((loop, loop.body))
        return level

    def close(self, level: Level) -> None:
        """End a loop; jumps out of it to an outer one go on."""
        assert self.levels.pop() is level
        self._open.pop()
        crossing = {pair for pair in self.jumps if pair[0] == level.number}
        if crossing:
            outer = level.number - 1
            self.jumps -= crossing
            targets = {target for _, target in crossing}
            with self.when("jump != 0"):
                if outer in targets:
                    with self.when(f"jump == {outer}"):
                        self.assign("jump", "0")
                self.add(Break())
            self.jumps |= {(outer, target) for target in targets if target < outer}

    def jump_behind(self, level: Level, *, rejects: bool = False) -> None:
        """Jump behind a loop that is being written."""
        inner = self.levels[-1]
        if inner is not level:
            self.assign("jump", str(level.number))
            self.jumps.add((inner.number, level.number))
        self.add(Break(rejects))

    def reject(self) -> None:
        """Jump to where what the event did is undone."""
        self.jump_behind(self.levels[0], rejects=True)

    # --- leaving ----------------------------------------------------------------------------------

    def leave(self, reason: int = LEAVE) -> None:
        """Leave the function: Python handles this event, if nothing else is said."""
        self.add(Leave(reason))

    def leave_if(self, condition: str, reason: int) -> None:
        """Leave for a reason where the condition holds."""
        with self.when(condition):
            self.leave(reason)

    def exit_if(self, condition: str) -> None:
        """Python handles this event where the condition holds: what it wrote is undone, and it starts again there."""
        self.leave_if(condition, LEAVE)

    def raises_if(self, condition: str, error: Exception, also: str = "") -> None:
        """Leave where the condition holds, as Python would raise this error; and where `also` does."""
        if not self.taking.raises_if(condition, error):
            self.exit_if(f"{condition} or {also}" if also else condition)
        elif also:
            self.exit_if(also)

    def give_up_if(self, condition: str) -> None:
        """Where the condition holds, the whole pass has to run as Python."""
        self.leave_if(condition, HOPELESS)

    def room_if(self, condition: str, *, where: str = "") -> None:
        """A buffer is full: the event starts again when there is room. `where`: only then it matters.

        There is always room where nothing fills the buffer in a loop (see `Unit`); then this is taken
        out again. A loop may leave none for what comes after it.
        """
        if self.loops:
            self.filled.add(condition)
        self.add(Room(condition, where, ROOM))


@dataclass(frozen=True)
class CodeMark:
    """How far the writing of code had come."""

    ends: tuple[int, ...]
    count: int
    levels: int
    jumps: frozenset[tuple[int, int]]
    loops: int
