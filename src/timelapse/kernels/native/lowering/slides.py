"""Views come up to an event's time before its code runs."""

from __future__ import annotations

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.form import Node
from timelapse.kernels.native.windows import USED, members_spec


class Slides:
    """Writes what moves the cursors of views."""

    def __init__(self, ctx: Context, code: Code) -> None:
        self._ctx, self._code = ctx, code

    def before(self, event: int) -> list[Node]:
        """Lines to stand before an event type's code: the views that it looks at come up to the event's time."""
        self._code.begin()
        self._ctx.event = event
        unit = self._ctx.unit
        for _, name, lag in dict.fromkeys(s for s in self._ctx.slides if s[0] == event):
            i, views, log = unit.table_with(name), unit.windows[name], unit.states.index(name)
            cursor, layout = views.cursor(lag), unit.layouts[name]
            edge = self._code.name("x")
            back = f"k{log}[{cursor + 1}]"  # ticks see W back what stood before
            self._code.assign(
                edge, f"minus({self._ctx.now}, {f'plus({back}, 1)' if event in unit.ticking else back})"
            )
            place = f"k{log}[{cursor}]"
            soon = f"{place} < k{log}[{USED}] and w{log}[np.uint64({place}), 0] <= {edge}"
            with self._code.when(f"{soon} and {edge} < {self._ctx.now}"):
                hidden = members_spec(self._ctx.spec.states[name], lag).name
                given = f"w{log}, k{log}, {cursor}"
                if hidden in unit.states:
                    h = unit.tables.index((hidden,))
                    counts = f"t{h}, m{h}, {unit.layouts[hidden].place}, {unit.layouts[hidden].width}"
                    self._code.do(
                        f"slide_members({given}, t{i}, {layout.twins}, N{layout.present}, {counts}, {edge})"
                    )
                elif views.stamped:
                    self._code.do(f"skip({given}, {edge})")
                elif views.queued:
                    at = layout.twins + 1 + views.lags.index(lag)
                    self._code.do(f"slide_queues({given}, t{i}, {at}, {edge})")
                else:
                    at = layout.twins + views.lags.index(lag)
                    self._code.do(f"slide({given}, t{i}, {at}, {edge})")
        return self._code.finished()
