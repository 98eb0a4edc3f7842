"""Makes fewer instructions of a function than Numba does, for the same results: Numba prints less, and LLVM parses and removes less.

Elements of tables and columns are read and written through an address. (Numba copies the array's description for each element.) Functions
hand each other few words (`passing.py`). Arguments stay where they are. Python calls a function through a loop over its arguments (`calling.py`).

This depends on Numba's internals. With versions of Numba that were not tried, Numba makes all instructions itself, for the same results.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numba.core.types
from llvmlite import ir
from numba.core import cgutils, config, errors
from numba.core.compiler_machinery import register_pass
from numba.core.ir import UNDEFINED, Arg, Assign, Global
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

from timelapse.kernels.native.machine.calling import Wrapper, is_unpacked
from timelapse.kernels.native.machine.inference import is_tried, numbas_errors, signature_of
from timelapse.kernels.native.machine.passing import (
    Passing,
    Target,
    flag,
    is_called_so,
    part,
    passing,
)

types: Any = numba.core.types
_WORD = ir.IntType(64)
_DATA, _SHAPE = 4, 5
"""In Numba's description of an array: where its elements are, and its shape."""


@register_pass(mutates_CFG=True, analysis_only=False)
class Instructions(NativeLowering):  # type: ignore[misc, unused-ignore]
    """Numba's lowering, or ours."""

    _name = "timelapse_native_lowering"

    @property
    def lowering_class(self) -> Any:
        return _Lower if is_tried() else Lower

    def run_pass(self, state: Any) -> bool:
        numbas = state.targetctx
        calls_itself = any(isinstance(kind, types.RecursiveCall) for kind in state.typemap.values())
        if is_tried() and not (state.flags.nrt or state.func_ir.is_generator or calls_itself):
            state.targetctx = Target(numbas)
        try:
            return bool(super().run_pass(state))
        finally:
            state.targetctx = numbas


class _Lower(Lower):  # type: ignore[misc, unused-ignore]
    """Numba's, which writes less for elements of arrays, for calls and for what Python calls."""

    context: Any

    def init(self) -> None:
        super().init()
        self._operators: dict[Any, Any] = {}

    @property
    def call_conv(self) -> Any:
        return Passing(self.context) if is_called_so(self.fndesc) else self.context.call_conv

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that need no place in memory. Arguments are among them if nothing else is assigned to them."""
        super()._find_singly_assigned_variable()
        assigned = Counter(a.target.name for block in self.blocks.values() for a in block.find_insts(Assign))
        self._singly_assigned_vars.update(
            name for name in self.func_ir.arg_names if assigned[name] == 1 and self.generator_info is None
        )

    def lower_block(self, block: Any) -> None:
        """As Numba's, but an error names the block. Numba makes a text of each statement for errors and for debugging."""
        if self.flags.nrt or self.flags.debuginfo or self._loc_notify_registry or config.DEBUG_JIT:
            super().lower_block(block)
            return
        self.pre_block(block)
        with numbas_errors.new_error_context(
            "lowering a block at {loc}", loc=block.loc, errcls_=partial(errors.LoweringError, loc=block.loc)
        ):
            for statement in block.body:
                self.loc = statement.loc
                if isinstance(statement, Assign) and not isinstance(statement.value, Arg):
                    name = statement.target.name
                    self.storevar(self.lower_assign(self.typeof(name), statement), name)
                else:
                    self.lower_inst(statement)
        self.post_block(block)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """As Numba's, which first loads the old value to release its reference."""
        if self.flags.nrt or argidx is not None or name in self._singly_assigned_vars:
            super().storevar(value, name, argidx)
        else:
            self._alloca_var(name, self.typeof(name))
            place = self.getvar(name)
            if value.type != place.type.pointee:
                raise AssertionError(f"{name}: {value.type} and {place.type.pointee}")
            self.builder.store(value, place)

    def setup_function(self, fndesc: Any) -> None:
        own = self.context
        if is_called_so(fndesc):
            self.context = passing(own)
        super().setup_function(fndesc)
        self.context = own
        if self.library.apart:
            self.function.attributes.add("noinline")

    def create_cfunc_wrapper(self) -> None:
        own = self.context
        if is_called_so(self.fndesc):
            self.context = passing(own)
        super().create_cfunc_wrapper()
        self.context = own

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        context, described = self.context, self.fndesc
        if not is_called_so(described):
            super().create_cpython_wrapper(release_gil)
            return
        context = passing(context)
        if not all(map(is_unpacked, described.argtypes)):
            context.create_cpython_wrapper(self.library, described, self.env, self.call_helper, release_gil)
            return
        module = context.create_module("wrapper")
        kind = context.call_conv.get_function_type(described.restype, described.argtypes)
        called = ir.Function(module, kind, described.llvm_func_name)
        Wrapper(context, module, called, described, self.env, self.call_helper, release_gil).build()
        self.library.add_ir_module(module)

    def lower_assign(self, ty: Any, inst: Any) -> Any:
        if isinstance(ty, types.Dispatcher) and isinstance(inst.value, Global):
            return self.context.get_constant_null(ty)  # what is called follows from its type
        return super().lower_assign(ty, inst)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        if expr.op == "getattr" and expr.attr == "shape":
            array = expr.value.name
            if isinstance(self.typeof(array), types.Array):
                return part(self.builder, self.loadvar(array), _SHAPE)
        return super().lower_expr(resty, expr)

    def _lower_call_normal(self, fnty: Any, expr: Any, signature: Any) -> Any:
        if isinstance(fnty, types.Function) and fnty.typing_key is len and expr.args:
            array = expr.args[0].name
            if isinstance(self.typeof(array), types.Array) and self.typeof(array).ndim:
                return part(self.builder, self.loadvar(array), _SHAPE, 0)
        return super()._lower_call_normal(fnty, expr, signature)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """What an operator does is looked up once for the same types."""
        if expr.static_lhs is not UNDEFINED or expr.static_rhs is not UNDEFINED:
            return super().lower_binop(resty, expr, op)
        context, builder = self.context, self.builder
        given = self.fndesc.calltypes[expr].args
        found = self._operators.get((op, given))
        if found is None:
            function = context.typing_context.resolve_value_type(op)
            signature = signature_of(context.typing_context, function, given)
            found = context.get_function(function, signature), signature.return_type
            self._operators[op, given] = found
        impl, result = found
        words = [
            context.cast(builder, self.loadvar(side.name), self.typeof(side.name), kind)
            for side, kind in zip((expr.lhs, expr.rhs), given, strict=True)
        ]
        return context.cast(builder, impl(builder, words), result, resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        place = self._place(value, index, signature)
        if place is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        kind = signature.args[0].dtype
        if kind == types.boolean:
            found = flag(self.builder, self.builder.load(place))
        else:
            found = self.context.unpack_value(self.builder, kind, place)
        return self.context.cast(self.builder, found, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        place = self._place(target_var, index_var, signature)
        if place is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        array, _, given = signature.args
        value = self.context.cast(
            self.builder, self.loadvar(value_var.name), self.typeof(value_var.name), given
        )
        value = self.context.cast(self.builder, value, given, array.dtype)
        self.context.pack_value(self.builder, array.dtype, value, place)
        return self.context.get_dummy_value()

    def _place(self, array: Any, index: Any, signature: Any) -> Any:
        """Where an element of an array is; None for what is not an element of a table or a column."""
        context, builder, kind = self.context, self.builder, signature.args[0]
        taken = signature.args[1]
        kinds = taken.types if isinstance(taken, types.BaseTuple) else (taken,)
        if (
            not isinstance(kind, types.Array) or self.typeof(array.name) != kind or kind.layout != "C"
            or not kind.aligned or kind.ndim != len(kinds) or context.enable_boundscheck
            or not all(isinstance(k, types.Integer) for k in kinds)
        ):  # fmt: skip
            return None
        described = self.loadvar(array.name)
        found = context.cast(builder, self.loadvar(index.name), self.typeof(index.name), taken)
        words = [found] if taken is kinds[0] else cgutils.unpack_tuple(builder, found)
        given = self.typeof(index.name)
        written = given.types if isinstance(given, types.BaseTuple) else (given,)
        place = None
        for d, (word, k, w) in enumerate(zip(words, kinds, written, strict=True)):
            size = part(builder, described, _SHAPE, d)
            if isinstance(w, types.IntegerLiteral) and w.literal_value >= 0:
                at = _WORD(w.literal_value)
            else:
                at = self._counted(word, k, size)
            place = at if place is None else builder.add(builder.mul(place, size), at)
        return builder.gep(part(builder, described, _DATA), [place])

    def _counted(self, index: Any, kind: Any, size: Any) -> Any:
        """An index from the beginning: one below zero counts from the end."""
        context, builder = self.context, self.builder
        if not kind.signed:
            return context.cast(builder, index, kind, types.uintp)
        at = context.cast(builder, index, kind, types.intp)
        return builder.select(builder.icmp_signed("<", at, _WORD(0)), builder.add(at, size), at)
