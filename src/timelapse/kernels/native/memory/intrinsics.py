"""What Numba has no function for: single machine instructions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.imputils import impl_ret_untracked
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Ask for the cache line where `array[place]` begins, to be written to. Any place will do: it never fails."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        stride = builder.extract_value(made.strides, 0)
        start = builder.ptrtoint(made.data, stride.type)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        pointer = builder.inttoptr(builder.add(start, builder.mul(args[1], stride)), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [pointer, word(1), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def load8(typing: Any, data: Any, place: Any) -> Any:
    """The 8 bytes of an array of bytes from a place on, which need not be aligned."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(64).as_pointer())
        loaded = builder.load(pointer)
        loaded.align = 1
        return impl_ret_untracked(context, builder, signature.return_type, loaded)

    return types.uint64(data, types.int64), generate
