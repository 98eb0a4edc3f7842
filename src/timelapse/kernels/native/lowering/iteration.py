"""What `for` goes over: ranges, tuples, list fields and their slices, `enumerate`, `zip`, `reversed`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.comparisons import present
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.numbers import arithmetic
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.lowering.states import StateCode
from timelapse.kernels.native.lowering.states.grouped import Members
from timelapse.kernels.native.lowering.values import NONE, Env, Value
from timelapse.kernels.native.memory.layout import key_kinds, value_words
from timelapse.kernels.native.refused import ReadsAll, Refused
from timelapse.kernels.native.status import LISTS
from timelapse.kinds.grouped import parts_of
from timelapse.model.types import ScalarType

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules

_SORTED = ("int", "Time", "bool", "str", "bytes")
"""The types whose order is that of their words, or of the strings that these stand for."""


@dataclass(frozen=True)
class Rounds:
    """So many rounds, and what each of them gets, by its number (from 0)."""

    count: Value
    item: Callable[[Value], Value]


class Iteration:
    """Finds out what loops go over."""

    def __init__(self, ctx: Context, code: Code, states: States, rules: Rules) -> None:
        self._ctx, self._code, self._states, self._rules = ctx, code, states, rules

    def rounds(self, node: ast.expr, env: Env, frame: Frame) -> Rounds | list[Value]:
        """What a loop over an expression gets: the values where they can be written out, else rounds."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=args) if name not in env:
                found = frame.names.get(name)
                if found is range and 1 <= len(args) <= 3 and not node.keywords:
                    return self._range([present(self._code, self._rules.expr(a, env, frame)) for a in args])
                if found is enumerate and 1 <= len(args) <= 2 and not node.keywords:
                    inner = self.rounds(args[0], env, frame)
                    start = self._rules.expr(args[1], env, frame) if len(args) > 1 else self._ctx.const(0)
                    return self._enumerated(inner, start)
                if found is zip and len(args) >= 2 and not node.keywords:
                    return self._zipped([self.rounds(a, env, frame) for a in args])
                if found is reversed and len(args) == 1 and not node.keywords:
                    return self._reversed(self.rounds(args[0], env, frame))
            case ast.Call(func=ast.Attribute(value=base, attr="items" | "top" as what)) if (
                self._ctx.ticks and (state := self._states.of(base, env)) is not None
            ):
                most = [present(self._code, self._rules.expr(a, env, frame)) for a in node.args]
                return self._listed(state, what, most, plain=not node.keywords)
            case ast.Subscript(value=base, slice=part) if under := self._under(base, env, "[k]"):
                return self._members(under, self._code.fixed(self._rules.expr(part, env, frame)))
            case ast.Call(func=ast.Attribute(value=base, attr="fields"), args=[part], keywords=[]) if (
                under := self._under(base, env, ".fields()")
            ):
                return self._members(under, self._code.fixed(self._rules.expr(part, env, frame)))
        if isinstance(node, ast.List | ast.Set):
            if isinstance(node, ast.Set):
                raise Refused("a loop over a set", self._ctx.line)
            return [self._code.fixed(self._rules.expr(e, env, frame)) for e in node.elts]
        return self._over(present(self._code, self._rules.expr(node, env, frame)))

    def _over(self, value: Value) -> Rounds | list[Value]:
        if value.kind == "tuple":
            return list(value.items)
        if value.kind == "list":
            start, stop, element = value.items
            count = self._code.temp("int", f"{stop.code} - {start.code}")
            return Rounds(count, lambda i: Value(element.kind, f"{value.code}[{start.code} + {i.code}]"))
        raise Refused(f"a loop over {value.text}", self._ctx.line)

    def _listed(self, state: StateCode, what: str, most: Sequence[Value], *, plain: bool) -> Rounds:
        """`x.items()` and `x.top(n)`: a list as it is now.

        Within a loop each round's would have to be kept.
        """
        spec, top = state.spec, what == "top"
        width = value_words(state.listed_key)  # a key's parts are a word each
        kinds = key_kinds(spec)[:width]
        known = plain and state.lists and state.mode == "exact" and not self._code.in_loop
        if not known or len(most) != top or spec.key is None or "float" in kinds or (top and not state.ranks):
            raise ReadsAll(f"{spec.name}.{what}(), a read of every key", self._ctx.line)
        first = self._code.temp("int", "listing")
        count = self._code.temp("int", state.listing(first.code))
        self._code.exit_if(f"{count.code} < 0")
        self._code.leave_if(f"{first.code} + 2 * {count.code} > listed.shape[0]", LISTS)
        texts = sum(1 << place for place, kind in enumerate(kinds) if kind in ("str", "bytes"))
        text = f"N{texts}, starts, spelt"
        if top:
            if most[0].kind != "int":
                raise Refused(f"{spec.name}.top() of {most[0].text}", self._ctx.line)
            self._code.exit_if(f"{most[0].code} < 0")
            given = f"listed, {first.code}, {count.code}, {most[0].code}, N{width}, {text}"
            count = self._code.temp("int", f"largest({given})")
        else:
            self._code.do(
                f"in_order(listed, {first.code}, {count.code}, N{width}, N{texts}, N0, starts, spelt)"
            )
        self._code.assign("listing", f"{first.code} + {count.code}")
        words = width + state.listed_words
        self._ctx.unit.lists = max(self._ctx.unit.lists, words)

        def item(i: Value) -> Value:
            row = self._code.temp("int", f"{first.code} + {i.code}").code
            found = [f"listed[{row}, {w}]" for w in range(words)]
            return state.listed(found[:width], found[width:])

        return Rounds(count, item)

    def _under(self, base: ast.expr, env: Env, loop: str) -> Members | None:
        """What stands under the keys of a state, if a loop asks for it so."""
        state = self._states.of(base, env)
        under = None if state is None else state.under
        return None if under is None or under.loop != loop else under

    def _members(self, under: Members, key: Value) -> Rounds | list[Value]:
        """`x[k]` of a SetOf, `x.fields(k)` of a MapOf: what stands under a key in its order, as it is now."""
        spec, what = under.spec, under.loop
        inner = spec.inner
        assert inner is not None
        kinds = [kind.name if isinstance(kind, ScalarType) else "" for kind in parts_of(inner)]
        if any(kind not in _SORTED for kind in kinds):
            raise Refused(f"{spec.name}{what}, under whose keys there are {inner.text}", self._ctx.line)
        found = under.listed(key, what)
        if found is None:
            return []
        first, count = found
        texts = sum(1 << place for place, kind in enumerate(kinds) if kind in ("str", "bytes"))
        self._code.do(f"in_order(listed, {first}, {count}, N{len(kinds)}, N{texts}, N0, starts, spelt)")
        self._states.listing = self._code.temp("int", f"{first} + {count}").code

        def item(i: Value) -> Value:
            own, value = under.member(first, i)
            return own if value is None else Value("tuple", items=(own, value))

        return Rounds(Value("int", count), item)

    def _range(self, args: Sequence[Value]) -> Rounds | list[Value]:
        if any(a.kind != "int" for a in args):
            raise Refused(f"range of {' and '.join(a.text for a in args)}", self._ctx.line)
        zero, one = self._ctx.const(0), self._ctx.const(1)
        start, stop = (zero, args[0]) if len(args) == 1 else (args[0], args[1])
        step = args[2].const if len(args) == 3 else 1
        if type(step) is not int or step == 0:
            raise Refused("a range whose step is no constant", self._ctx.line)
        consts = (start.const, stop.const)
        if all(type(c) is int for c in consts) and len(found := range(*consts, step)) <= 4:
            return [self._ctx.const(i) for i in found]
        low, high = (start, stop) if step > 0 else (stop, start)
        span = arithmetic(self._code, ast.Sub(), high, low)
        width = abs(step)
        count = (
            span
            if width == 1
            else self._code.temp("int", f"{span.code} // {width} + ({span.code} % {width} != 0)")
        )

        def item(i: Value) -> Value:
            if width == 1 and start is zero:
                return i
            by = i.code if width == 1 else f"{i.code} * {width}"
            return self._code.temp("int", f"{start.code} {'+' if step > 0 else '-'} {by}")

        del one
        return Rounds(count, item)

    def _enumerated(self, inner: Rounds | list[Value], start: Value) -> Rounds | list[Value]:
        if isinstance(inner, list):
            return [
                Value("tuple", items=(arithmetic(self._code, ast.Add(), start, self._ctx.const(i)), value))
                for i, value in enumerate(inner)
            ]

        def item(i: Value) -> Value:
            return Value("tuple", items=(arithmetic(self._code, ast.Add(), start, i), inner.item(i)))

        return Rounds(inner.count, item)

    def _zipped(self, parts: list[Rounds | list[Value]]) -> Rounds | list[Value]:
        if all(isinstance(p, list) for p in parts):
            lists: list[Any] = list(parts)
            return [Value("tuple", items=tuple(items)) for items in zip(*lists, strict=False)]
        rounds = [p for p in parts if isinstance(p, Rounds)]
        if len(rounds) < len(parts):
            raise Refused("`zip` of a tuple with something else", self._ctx.line)
        count = self._code.temp("int", f"min({', '.join(r.count.code for r in rounds)})")
        return Rounds(count, lambda i: Value("tuple", items=tuple(r.item(i) for r in rounds)))

    def _reversed(self, inner: Rounds | list[Value]) -> Rounds | list[Value]:
        if isinstance(inner, list):
            return inner[::-1]
        return Rounds(
            inner.count, lambda i: inner.item(self._code.temp("int", f"{inner.count.code} - 1 - {i.code}"))
        )

    # --- lists ------------------------------------------------------------------------------------

    def element(self, value: Value, index: Value) -> Value:
        """`xs[i]`; Python raises where it is out of range."""
        start, stop, element = value.items
        index = present(self._code, index)
        if index.kind != "int":
            raise Refused(f"a list indexed by {index.text}", self._ctx.line)
        count = self._code.temp("int", f"{stop.code} - {start.code}")
        self._code.exit_if(f"not (-{count.code} <= {index.code} < {count.code})")
        place = self._code.temp("int", f"{index.code} + ({stop.code} if {index.code} < 0 else {start.code})")
        return self._code.temp(element.kind, f"{value.code}[{place.code}]")

    def part(self, value: Value, node: ast.Slice, env: Env, frame: Frame) -> Value:
        """`xs[i:j]`."""
        if node.step is not None:
            raise Refused("a slice with a step", self._ctx.line)
        start, stop, element = value.items
        bounds = []
        for bound, without in ((node.lower, start), (node.upper, stop)):
            given = NONE if bound is None else self._rules.expr(bound, env, frame)
            if given.kind == "none":
                bounds.append(without)
                continue
            if given.kind != "int":
                raise Refused(f"a slice to {given.text}", self._ctx.line)
            end = f"{given.code} + ({stop.code} if {given.code} < 0 else {start.code})"
            # What lies outside is cut off before it is added, as it could leave int64.
            self._code.exit_if(f"not (-{2**40} < {given.code} < {2**40})")
            bounds.append(self._code.temp("int", f"max({start.code}, min({stop.code}, {end}))"))
        first, last = bounds
        last = self._code.temp("int", f"max({first.code}, {last.code})")
        return Value("list", value.code, (first, last, element))
