"""SetOf, compiled: a Set under parts of keys."""

from __future__ import annotations

import ast
from typing import ClassVar

from timelapse.kernels.native.lowering.form import Key
from timelapse.kernels.native.lowering.states.base import Pass, StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.grouped import Members, single
from timelapse.kernels.native.lowering.states.rows import Rows
from timelapse.kernels.native.lowering.states.set import SetCode, SetView
from timelapse.kernels.native.lowering.values import Value
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.windows import members_spec
from timelapse.kinds.setof import SetOf


class SetOfCode(SetCode):
    """`tl.SetOf`."""

    parameters: ClassVar = {"add": ("member",), "discard": ("member",), "count": ()}
    compiled = "all but `x[k]` other than in loops, and `items`"
    lists = False

    under: Members

    def __init__(self, rows: Rows, own: Pass) -> None:
        super().__init__(rows, own)
        self.under = Members(rows, self.coding, own, "[k]")

    def key(self, key: Value | None) -> Key:
        return self.keys.pair(key)

    def get(self, key: Value | None) -> Value:
        raise Refused(f"{self.spec.name}[k], which needs an index")

    def delete(self, key: Value | None) -> None:
        if self.mode == "delta":
            raise Refused(f"del {self.spec.name}[k], which this pass does not know")
        self.under.clear(one(key, f"del {self.spec.name}"), "[k]")

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "count":
            return self.under.number_of(one(key, f"{self.spec.name}.count()"))
        if name in ("add", "discard"):
            what = f"{self.spec.name}.{name}()"
            member = one(given.get("member"), what)
            key = Value("tuple", items=(one(key, what), member))
        return super()._method(name, key, {})

    def _comes(self, key: Value | None, row: str) -> None:
        for lag, counted in self._counted():
            with self._out.when(f"{self.rows.lacks(row)} or {self._stamp(row)} < {self.rows.edge(lag)}"):
                counted.change(self.under.outer(key), ast.Add(), single)
        self.under.comes(key, row)
        super()._comes(key, row)

    def _goes(self, key: Value | None, row: str) -> None:
        for lag, counted in self._counted():
            with self._out.when(f"{self._stamp(row)} >= {self.rows.edge(lag)}"):
                counted.change(self.under.outer(key), ast.Sub(), single)
        self.under.goes(key)
        super()._goes(key, row)

    def _counted(self) -> list[tuple[int, StateCode]]:
        """The lags of views, with the counters of members within them."""
        lags = () if self.views is None else self.views.lags
        return [(lag, self._pass.hidden(members_spec(self.spec, lag))) for lag in lags]

    def _stamp(self, row: str) -> str:
        return self.rows.word(row, self.layout.twins)


class SetOfView(SetView):
    """Of a SetOf."""

    parameters: ClassVar = {"count": ()}

    def get(self, key: Value | None) -> Value:
        return self.state.get(key)

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        return self._pass.hidden(members_spec(self.spec, self.lag)).get(key)


FORMS = {SetOf: Form(SetOfCode, SetOfView)}
