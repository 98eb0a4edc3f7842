"""`any`, `all`, `sum`, `min`, `max` and `len` of comprehensions and lists: loops that keep one value."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.comparisons import equal, present
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.form import Break
from timelapse.kernels.native.lowering.numbers import is_decimal
from timelapse.kernels.native.lowering.trying import Trial
from timelapse.kernels.native.lowering.values import Env, Value, decimal_kind
from timelapse.kernels.native.refused import Refused
from timelapse.model.types import DecimalType, ListType, OptionalType

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules


class Folds:
    """Writes folds as loops."""

    def __init__(self, ctx: Context, code: Code, trial: Trial, rules: Rules) -> None:
        self._ctx, self._code, self._trial, self._rules = ctx, code, trial, rules

    def folded(self, fold: str, node: ast.Call, env: Env, frame: Frame) -> Value | None:
        """The fold; None where its argument is nothing to loop over."""
        what = node.args[0]
        if isinstance(what, ast.GeneratorExp | ast.ListComp):
            return self._looped(fold, what.elt, what.generators, node, env, frame)
        if isinstance(what, ast.SetComp | ast.DictComp):
            return None
        if fold == "len" and (short := self._short_list(what, env, frame)) is not None:
            return self._distinct(short)
        value = present(self._code, self._rules.expr(what, env, frame))
        if value.kind != "list":
            return None
        if fold == "len":
            return self._code.temp("int", f"{value.items[1].code} - {value.items[0].code}")
        name = ast.Name(".item", ast.Load())
        over = ast.comprehension(ast.Name(".item", ast.Store()), ast.Name(".list", ast.Load()), [], 0)
        return self._looped(fold, name, [over], node, {**env, ".list": value}, frame)

    def _short_list(self, node: ast.expr, env: Env, frame: Frame) -> Value | None:
        """The list of `set(...)`, where it is one of few values that can be compared one with the other."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=[given], keywords=[]) if name not in env:
                if frame.names.get(name) is not set or isinstance(given, ast.Starred):
                    return None
                mark = self._trial.mark()
                value = self._rules.expr(given, env, frame)
                if value.kind == "list" and value.bound is not None and value.items[2].kind != "float":
                    return value
                self._trial.back(mark)
        return None

    def _distinct(self, value: Value) -> Value:
        """How many different values a list has."""
        start, stop, element = value.items
        count, i, j, seen = (self._code.name(stem) for stem in ("x", "i", "j", "among"))
        self._code.assign(count, "0")
        with self._code.each(i, f"{start.code}, {stop.code}"):
            self._code.assign(seen, "False")
            with self._code.each(j, f"{start.code}, {i}"):
                one, other = (Value(element.kind, f"{value.code}[{place}]") for place in (i, j))
                with self._code.when(equal(self._code, one, other)):
                    self._code.assign(seen, "True")
                    self._code.add(Break())
            with self._code.when(f"not {seen}"):
                self._code.assign(count, "1", "+=")
        return Value("int", count)

    def _looped(
        self, fold: str, element: ast.expr, generators: list[ast.comprehension], node: ast.Call, env: Env,
        frame: Frame,
    ) -> Value:  # fmt: skip
        named = {k.arg: k.value for k in node.keywords}
        if set(named) - ({"default"} if fold in ("min", "max") else {"start"} if fold == "sum" else set()):
            raise Refused(f"{fold} with arguments by name", self._ctx.line)
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(element)):
            raise Refused("`:=` in a comprehension", self._ctx.line)
        match fold:
            case "any" | "all" if len(generators) > 1:
                raise Refused(f"{fold} over several loops", self._ctx.line)
            case "any" | "all":
                found = fold == "any"
                test = element if found else ast.UnaryOp(ast.Not(), element)
                body: list[ast.stmt] = [ast.If(test, [_set(".acc", ast.Constant(found)), ast.Break()], [])]
                starts = [self._ctx.const(not found)]
            case "len":
                body = [ast.Expr(element), _set(".acc", _plus(ast.Constant(1)))]
                starts = [self._ctx.const(0)]
            case "sum":
                body = [_set(".acc", _plus(element))]
                start = named.get("start")
                starts = [
                    self._ctx.const(0)
                    if start is None
                    else self._code.fixed(self._rules.expr(start, env, frame))
                ]
                if start is None and sys.version_info < (3, 12):  # later ones keep what rounding loses
                    starts.append(Value("float", "0.0"))
                if start is None:  # of decimals a 0 of their scale is the same
                    starts += [Value(decimal_kind(places), "0") for places in self._scales()]
            case _:
                return self._extreme(fold, element, generators, named.get("default"), env, frame)
        refusal = Refused("")
        for start_value in starts:
            mark = self._trial.mark()
            try:
                inner: Env = {**env, ".acc": start_value, ".any": self._ctx.const(False)}
                if start_value.kind == "float":
                    body = [*body, _set(".any", ast.Constant(True))]
                elif fold == "sum" and start is None:
                    body = [_set(".acc", _plus(element))]
                left = self._rounds_of(generators, body, inner, frame)
                result = left[".acc"]
                assert isinstance(result, Value)
                if start_value.kind == "float" and fold == "sum" and start is None:
                    some = left[".any"]
                    assert isinstance(some, Value)
                    self._code.exit_if(f"not {some.code}")  # the sum of nothing is the integer 0
                return result
            except Refused as found_refusal:
                self._trial.back(mark)
                refusal = found_refusal
        raise refusal

    def _scales(self) -> list[int]:
        """The scales of the event's decimals."""
        kinds = [f.type for f in self._ctx.source_event.__fields__]
        inner = [k.inner if isinstance(k, OptionalType | ListType) else k for k in kinds]
        return sorted({k.scale for k in inner if isinstance(k, DecimalType)})

    def _extreme(
        self, fold: str, element: ast.expr, generators: list[ast.comprehension], default: ast.expr | None,
        env: Env, frame: Frame,
    ) -> Value:  # fmt: skip
        sign: ast.cmpop = ast.Lt() if fold == "min" else ast.Gt()
        better = ast.Compare(ast.Name(".x", ast.Load()), [sign], [ast.Name(".acc", ast.Load())])
        first = ast.Compare(ast.Name(".acc", ast.Load()), [ast.Is()], [ast.Constant(None)])
        body: list[ast.stmt] = [
            _set(".x", element),
            ast.If(ast.BoolOp(ast.Or(), [first, better]), [_set(".acc", ast.Name(".x", ast.Load()))], []),
        ]
        without = None if default is None else self._code.fixed(self._rules.expr(default, env, frame))
        inner: Env = {**env, ".acc": self._ctx.const(None)}
        best = self._rounds_of(generators, body, inner, frame)[".acc"]
        assert isinstance(best, Value)
        if best.kind != "optional" or not (
            best.items[1].kind in ("int", "float", "bool") or is_decimal(best.items[1])
        ):
            raise Refused(f"{fold} of {best.text}", self._ctx.line)
        if without is None:
            return present(self._code, best)
        return self._code.choose(best.items[0].code, lambda: best.items[1], lambda: without)

    def _rounds_of(
        self, generators: list[ast.comprehension], body: list[ast.stmt], env: Env, frame: Frame
    ) -> Env:
        for generator in reversed(generators):
            for test in reversed(generator.ifs):
                body = [ast.If(test, body, [])]
            body = [ast.For(generator.target, generator.iter, body, [], None)]
        for statement in body:
            for part in ast.walk(statement):
                if "lineno" in part._attributes and not hasattr(part, "lineno"):
                    part.lineno = part.end_lineno = self._ctx.line  # type: ignore[attr-defined]
                    part.col_offset = part.end_col_offset = 0  # type: ignore[attr-defined]
        left = self._rules.block(body, env, frame)
        if left is None:
            raise Refused("this comprehension", self._ctx.line)
        return left


def _set(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _plus(value: ast.expr) -> ast.expr:
    return ast.BinOp(ast.Name(".acc", ast.Load()), ast.Add(), value)
