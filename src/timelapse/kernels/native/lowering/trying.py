"""Writing something on trial: what was written can be taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from timelapse.kernels.native.lowering.code import Code, CodeMark
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.stateful import States
from timelapse.model.events import Record


@dataclass(frozen=True)
class Mark:
    """How far everything had come."""

    code: CodeMark
    place: tuple[int, str]
    functions: int
    sizes: list[tuple[list[Any], int]]
    emits: dict[type[Record], int]
    states: dict[str, dict[str, Any]]


class Trial:
    """Remembers how far the writing has come, and goes back to there."""

    def __init__(self, ctx: Context, code: Code, states: States) -> None:
        self._ctx, self._code, self._states = ctx, code, states

    def mark(self) -> Mark:
        """Where everything stands."""
        ctx, code = self._ctx, self._code
        return Mark(
            code.mark(), (ctx.line, ctx.file), len(ctx.stack), [(grows, len(grows)) for grows in self._growing()],
            dict(ctx.unit.emits), {name: dict(vars(state)) for name, state in self._states.used.items()},
        )  # fmt: skip

    def back(self, mark: Mark) -> None:
        """Forget what was written since."""
        ctx, code, used = self._ctx, self._code, self._states.used
        code.back(mark.code)
        del ctx.stack[mark.functions :]
        ctx.line, ctx.file = mark.place
        ctx.unit.emits = dict(mark.emits)
        for grows, size in mark.sizes:
            del grows[size:]
        for name in list(used):
            if name in mark.states:
                vars(used[name]).update(mark.states[name])
            else:
                del used[name]
        for name in [n for n in ctx.unit.layouts if n not in ctx.unit.states]:
            del ctx.unit.layouts[name]

    def _growing(self) -> list[list[Any]]:
        """The lists that only grow while code is written."""
        ctx, unit = self._ctx, self._ctx.unit
        return [
            unit.columns, unit.params, unit.records, unit.states, unit.tables, unit.raising, ctx.rejections, ctx.slides,
            ctx.sent,
            *(frame.result.values for frame in ctx.stack), *(level.outs for level in self._code.levels),
        ]  # fmt: skip
