"""SetOf, compiled: a Set under parts of keys."""

from __future__ import annotations

import ast
from typing import ClassVar

from timelapse.kernels.native.lowering.states.base import StateCode, one
from timelapse.kernels.native.lowering.states.forms import Form
from timelapse.kernels.native.lowering.states.grouped import Listed, single
from timelapse.kernels.native.lowering.states.set import SetCode, SetView
from timelapse.kernels.native.lowering.values import Refused, Value
from timelapse.kernels.native.windows import members_spec
from timelapse.kinds.setof import SetOf


class SetOfCode(Listed, SetCode):
    """`tl.SetOf`."""

    parameters: ClassVar = {"add": ("member",), "discard": ("member",), "count": ()}
    compiled = "all but `x[k]` other than in loops, and `items`"
    lists = False

    def get(self, key: Value | None) -> Value:
        raise Refused(f"{self.spec.name}[k], which needs an index")

    def delete(self, key: Value | None) -> None:
        if self.mode == "delta":
            raise Refused(f"del {self.spec.name}[k], which this pass does not know")
        self.clear(one(key, f"del {self.spec.name}"), "[k]")

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        if name == "count":
            return self.number_of(one(key, f"{self.spec.name}.count()"))
        if name in ("add", "discard"):
            what = f"{self.spec.name}.{name}()"
            member = one(given.get("member"), what)
            key = Value("tuple", items=(one(key, what), member))
        return super()._method(name, key, {})

    def _comes(self, key: Value | None, row: str) -> None:
        for lag, counted in self._counted():
            with self._out.when(f"{self.lacks(row)} or {self._stamp(row)} < {self.edge(lag)}"):
                counted.change(self._outer(key), ast.Add(), single)
        super()._comes(key, row)

    def _goes(self, key: Value | None, row: str) -> None:
        for lag, counted in self._counted():
            with self._out.when(f"{self._stamp(row)} >= {self.edge(lag)}"):
                counted.change(self._outer(key), ast.Sub(), single)
        super()._goes(key, row)

    def _counted(self) -> list[tuple[int, StateCode]]:
        """The lags of views, with the counters of members within them."""
        lags = () if self.views is None else self.views.lags
        return [(lag, self._pass.hidden(members_spec(self.spec, lag))) for lag in lags]

    def _stamp(self, row: str) -> str:
        return self.word(row, self.layout.twins)


class SetOfView(SetView, SetOfCode):
    """Of a SetOf."""

    lists = False

    parameters: ClassVar = {"count": ()}

    def _method(self, name: str, key: Value | None, given: dict[str, Value]) -> Value:
        return self._pass.hidden(members_spec(self.spec, self.lag)).get(key)


FORMS = {SetOf: Form(SetOfCode, SetOfView)}
