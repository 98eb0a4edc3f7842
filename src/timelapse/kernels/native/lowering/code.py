"""The code of one event, as it is written: statements, the variables in which ways meet, loops, and what leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from timelapse.kernels.native.lowering.comparisons import truth
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.flow import Join, Level, Line, Moves, is_simple, rendered
from timelapse.kernels.native.lowering.taking import TakingOut
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, Refused, Value
from timelapse.kernels.native.unit import ABROAD, HOPELESS, LEAVE, ROOM, SPENT

MAX_LINES, MAX_INDENT = 3000, 90  # of 100 that Python takes

SPEND = f"return left(j, u, {SPENT})"
"""Leaves an event that has spent its budget."""
LEAVE_ALL = f"return left(j, u, {ABROAD})"
"""Leaves an event that uses a key which is not under its own."""
GIVE_UP = f"return left(j, u, {HOPELESS})"
REJECT = "  # reject"
"""Ends the lines that leave an event's code because it is rejected."""


class Code:
    """What every part of the compiler writes to."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.taking = TakingOut(ctx, self)
        self.lines: list[Line] = []
        self.indent = 3
        self.levels: list[Level] = []
        """The loops of the generated code that are left by `break`."""
        self.jumps: set[tuple[int, int]] = set()
        """Levels in which a jump to an outer one, its second, is written."""
        self.loops = 0
        """How many loops, whose number of rounds is known only as they run, are being written."""
        self._names = 0
        self.filled: set[str] = set()
        """What `room_if` asked for in loops."""

    def begin(self, indent: int = 3, *, loops: int = 0) -> None:
        """Write something new. Names go on."""
        self.lines, self.indent, self.levels, self.loops = [], indent, [Level(1)], loops

    def finished(self) -> list[str]:
        """What is written since."""
        return rendered(self.lines)

    # --- statements -------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        if len(self.lines) >= MAX_LINES or self.indent > MAX_INDENT:
            how = "long" if self.indent <= MAX_INDENT else "deeply nested"
            raise Refused(f"the handlers are too {how} to be written out", self._ctx.line)
        self.lines.append("    " * self.indent + text)

    def name(self, stem: str) -> str:
        """A new name."""
        self._names += 1
        return f"{stem}{self._names}"

    def temp(self, kind: str, code: str) -> Value:
        """Assign to a new variable."""
        name = self.name("x")
        self.line(f"{name} = {code}")
        return Value(kind, name)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines written inside stand under `head`."""
        self.line(head)
        self.indent += 1
        yield
        self.line("pass")
        self.indent -= 1

    def nested(self, write: Callable[[], Any]) -> Any:
        """Write an indented block."""
        self.indent += 1
        self.line("pass")
        result = write()
        self.indent -= 1
        return result

    @contextmanager
    def rounds(self, count: str) -> Iterator[str]:
        """Lines written inside run so many times; gives the number of the round."""
        n = self.name("n")
        self.loops += 1
        with self.block(f"for {n} in range({count}):"):
            yield n
        self.loops -= 1

    @property
    def in_loop(self) -> bool:
        """Whether what is written now may run more than once for an event."""
        return self.loops > 0

    def round_begins(self) -> None:
        """Count a round of a loop against the event's budget. What is written need not be undone then."""
        self._ctx.unit.loops = True
        self.line("rounds -= 1")
        self.line("if rounds < 0:")
        self.line(f"    {SPEND}")

    # --- values -----------------------------------------------------------------------------------

    def store(self, stem: str, value: Value) -> Value:
        """Assign to variables that are named after the stem and the value's shape."""
        if value.kind == "none":
            return value
        if value.is_compound:
            items = [self.store(f"{stem}_{i}", item) for i, item in enumerate(value.items)]
            return Value(value.kind, items=tuple(items), cls=value.cls)
        name = f"{stem}_{value.kind}"
        self.line(f"{name} = {value.code}")
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
        moves = Moves(self.indent, list(pairs))
        for target, value in pairs:
            if isinstance(target, Join):
                target.values.append(value)
        self.lines.append(moves)
        return moves

    def choose(self, test: str, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """`yes` where the test holds, else `no`."""
        if test in ("True", "False"):
            return yes() if test == "True" else no()
        join = Join(self.name("v"))
        self.line(f"if {test}:")
        self.nested(lambda: self.moves([(join, yes())]))
        self.line("else:")
        self.nested(lambda: self.moves([(join, no())]))
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
                self._joined_name(name, value, ways, env)
        return env

    def _joined_name(self, name: str, value: Value, ways: Sequence[tuple[Env, Moves]], env: Env) -> None:
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
        self.line("while True:")
        self.indent += 1
        return level

    def close(self, level: Level) -> None:
        """End a loop; jumps out of it to an outer one go on."""
        assert self.levels.pop() is level
        self.indent -= 1
        crossing = {pair for pair in self.jumps if pair[0] == level.number}
        if crossing:
            outer = level.number - 1
            self.jumps -= crossing
            targets = {target for _, target in crossing}
            self.line("if jump != 0:")
            if outer in targets:
                self.line(f"    if jump == {outer}:")
                self.line("        jump = 0")
            self.line("    break")
            self.jumps |= {(outer, target) for target in targets if target < outer}

    def jump_behind(self, level: Level, remark: str = "") -> None:
        """Jump behind a loop that is being written."""
        inner = self.levels[-1]
        if inner is not level:
            self.line(f"jump = {level.number}")
            self.jumps.add((inner.number, level.number))
        self.line(f"break{remark}")

    def reject(self) -> None:
        """Jump to where what the event did is undone."""
        self.jump_behind(self.levels[0], REJECT)

    # --- leaving ----------------------------------------------------------------------------------

    def leave(self, reason: int = LEAVE) -> None:
        """Leave the function: Python handles this event, if nothing else is said."""
        self.line(f"return left(j, u, {reason})")

    def leave_if(self, condition: str, reason: int) -> None:
        """Leave for a reason where the condition holds."""
        self.line(f"if {condition}:")
        self.line(f"    return left(j, u, {reason})")

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

    def room_if(self, condition: str) -> None:
        """A buffer is full: the event starts again when there is room.

        There is always room where nothing fills the buffer in a loop (see `Unit`); then this is taken
        out again. A loop may leave none for what comes after it.
        """
        if self.loops:
            self.filled.add(condition.rpartition(" and ")[2])
        self.leave_if(condition, ROOM)
