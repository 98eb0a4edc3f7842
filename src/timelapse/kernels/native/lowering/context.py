"""What is compiled, and how far the writing has come: what all parts of the compiler share."""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Collection, Mapping
from typing import Any

from timelapse.analysis.result import PassProgram
from timelapse.kernels.native.lowering.flow import Join, Level, Rejected
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.lowering.values import Value, constant
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.windows import sliding_of
from timelapse.model.events import Event
from timelapse.program.program import Program, ProgramSpec, params_of, spec_of


class Frame:
    """One function being written out: where its names come from and what it returns."""

    def __init__(self, number: int, function: types.FunctionType, depth: int) -> None:
        self.number = number
        self.depth = depth
        self.function = function
        code = function.__code__
        self.locals = frozenset((*code.co_varnames, *code.co_cellvars))
        self.names: dict[str, Any] = {**vars(builtins), **function.__globals__}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.names[name] = cell.cell_contents
            except ValueError:
                self.names.pop(name, None)
        for name in self.locals:
            self.names.pop(name, None)
        self.result = Join(f"f{number}")
        self.level: Level | None = None
        """The loop to leave on `return`; None where what follows a return is never reached anyway."""


class Context:
    """One pass of one program, its unit, and the place at which code is written now."""

    def __init__(
        self, program: Program, work: PassProgram, *, final: bool, steady: Mapping[str, int] | None = None,
        counted: Collection[str] = (), indexed: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`steady`: counters of which that is known (steady.py). `counted`, `indexed`: SetOfs whose members are counted, or
        listed, by key."""
        self.program, self.work, self.final = program, work, final
        self.params = params_of(program)
        self.views = {} if work.timeless else sliding_of(program)
        self.steady: Mapping[str, int] = steady or {}
        self.counted, self.indexed = frozenset(counted), frozenset(indexed)
        self.unit = Unit(steady=self.steady)
        self.rejections: list[Rejected] = []
        self.sent: list[type[Event]] = []
        """The types of events that handlers send."""
        self.slides: list[tuple[int, str, int]] = []
        """Which event's code looks at which state's views, and their lags."""
        self.event, self.handler = 0, 0
        self.derived: type[Event] | None = None
        """The type of the derived event whose code is being written."""
        self.stack: list[Frame] = []
        """The functions that are being written out, one within the other."""
        self.line, self.file = 0, ""
        """The place in the user's source."""
        self._texts: dict[tuple[type, str | bytes], int] = {}
        for empty in ("", b""):
            self.text(empty)

    @property
    def spec(self) -> ProgramSpec:
        """What the program declares."""
        return spec_of(self.program)

    # --- the event --------------------------------------------------------------------------------

    @property
    def source_event(self) -> type[Event]:
        """The type of the event that handlers see."""
        return self.derived or self.unit.events[self.event]

    @property
    def ticks(self) -> bool:
        """Whether it is a tick's, which has no event."""
        return self.event in self.unit.ticking

    @property
    def late(self) -> bool:
        """Whether it is called later than the log's event."""
        return self.event in self.unit.later

    @property
    def now(self) -> str:
        """The time of the step."""
        return f"ts{self.event}[q{self.event}]" if self.derived is None else "own_ts"

    @property
    def root(self) -> str:
        """The seq of the log event that the step is of."""
        return f"seq{self.event}[q{self.event}]" if self.derived is None else "own_seq"

    @property
    def keeps(self) -> bool:
        """Whether rows are copied before they are written (memory/keeping.py)."""
        return self.work.keeps

    @property
    def goes_back(self) -> bool:
        """Whether it goes back to before an event of which a step has failed (`Unit.goes_back`)."""
        return self.work.decides and self.work.keeps

    # --- constants --------------------------------------------------------------------------------

    def text(self, text: str | bytes) -> int:
        """The code of a constant string."""
        key = (type(text), text)
        if key not in self._texts:
            self._texts[key] = len(self._texts)
            self.unit.texts.append(text)
        return self._texts[key]

    def const(self, value: Any) -> Value:
        """A Python value. Raises Refused."""
        found = constant(value, self.text)
        if found is None:
            raise Refused(f"the value {value!r}"[:80], self.line)
        return found

    def member(self, name: str) -> Any:
        """What the program's class holds under a name."""
        if name in self.work.members:
            return self.work.members[name]
        return inspect.getattr_static(type(self.program), name, None)
