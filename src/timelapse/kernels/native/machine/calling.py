"""How Python calls a compiled function: as Numba does it, but in a loop over the arguments.

Numba generates code for each argument: to unpack it, to check it and to release it. A pass has up to a hundred arguments; that code would be a fifth
of the time that compiling takes. Here all arguments go through one loop, into a row of words each. A function of Numba's run-time unpacks
arrays without reference counts, and one of Python's unpacks numbers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.callconv import CPUCallConv
from numba.core.callwrapper import PyCallWrapper, _GilManager
from numba.np.numpy_support import as_dtype

from timelapse.kernels.native.machine.passing import is_short

_WORD, _BYTE = ir.IntType(64), ir.IntType(8)
_ITEMS, _DATA, _EXTENT, _DIMENSIONS = 2, 4, 5, 2
"""Numba's description of an array: two words that stand for its owner, how many elements, the size of one, where they are, the shape,
the strides."""
_WORDS = _EXTENT + 2 * _DIMENSIONS
_SCALARS = (types.int64, types.uint64, types.float64, types.boolean)


def is_unpacked(kind: Any) -> bool:
    """Whether the loop unpacks arguments of a type: numbers, and arrays of numbers of at most two dimensions."""
    if isinstance(kind, types.Array):
        return kind.ndim <= _DIMENSIONS and isinstance(
            kind.dtype, types.Integer | types.Float | types.Boolean
        )
    return kind in _SCALARS


class Wrapper(PyCallWrapper):  # type: ignore[misc, unused-ignore]
    """What Python calls, for a function of which nothing counts references and all arguments are unpacked so."""

    def build_wrapper(self, api: Any, builder: Any, closure: Any, args: Any, kws: Any) -> None:
        context, described = self.context, self.fndesc
        kinds = described.argtypes
        for attribute in ("noinline", "optnone"):  # else LLVM writes the loop out
            builder.function.attributes.add(attribute)
        environment = self.get_env(api, builder)
        rows = cgutils.alloca_once(builder, ir.ArrayType(ir.ArrayType(_WORD, _WORDS), len(kinds)))
        if kinds:
            self._unpack(api, builder, args, rows)
        words = [word for n, kind in enumerate(kinds) for word in self._words(builder, rows, n, kind)]
        lock = _GilManager(builder, api, _Nothing()) if self.release_gil else _Nothing()
        status, result = _OfWords(context).call_function(
            builder, self.func, described.restype, kinds, words, attrs=("noinline",)
        )
        lock.emit_cleanup()
        with builder.if_then(status.is_ok, likely=True):
            with builder.if_then(status.is_none):
                api.return_none()
            builder.ret(api.from_native_return(self._simplified_return_type(), result, environment))
        context.call_conv.raise_error(builder, api, status)
        builder.ret(api.get_null_object())

    def _unpack(self, api: Any, builder: Any, args: Any, rows: Any) -> None:
        """The loop. It returns to Python with an error where an argument is something else."""
        kinds = self.fndesc.argtypes
        codes = [_code(kind) for kind in kinds]
        table = cgutils.global_constant(
            self.module, "argument_kinds", ir.ArrayType(_BYTE, len(kinds))([_BYTE(code) for code in codes])
        )
        given = builder.call(
            api._get_function(ir.FunctionType(_WORD, [api.pyobj]), name="PyTuple_Size"), [args]
        )
        self._refuse(
            api, builder, builder.icmp_signed("!=", given, _WORD(len(kinds))), "arguments are missing"
        )
        item_of = api._get_function(ir.FunctionType(api.pyobj, [api.pyobj, _WORD]), name="PyTuple_GetItem")
        with cgutils.for_range(builder, _WORD(len(kinds))) as loop:
            item = builder.call(item_of, [args, loop.index])
            code = builder.load(builder.gep(table, [_WORD(0), loop.index]))
            row = builder.gep(rows, [_WORD(0), loop.index])
            for one, kind in dict(zip(codes, kinds, strict=True)).items():
                with builder.if_then(builder.icmp_signed("==", code, _BYTE(one))):
                    if isinstance(kind, types.Array):
                        self._array(api, builder, item, row, kind)
                        continue
                    native = api.to_native_value(kind, item)
                    with cgutils.if_unlikely(builder, native.is_error):
                        builder.ret(api.get_null_object())
                    builder.store(native.value, builder.bitcast(row, native.value.type.as_pointer()))

    def _array(self, api: Any, builder: Any, item: Any, row: Any, kind: Any) -> None:
        described = self.context.make_array(kind)(
            self.context, builder, ref=builder.bitcast(row, self.context.get_data_type(kind).as_pointer())
        )
        status = api.numba_array_adaptor(item, builder.bitcast(row, api.voidptr))
        size = described.itemsize
        other = builder.icmp_unsigned("!=", size, size.type(as_dtype(kind.dtype).itemsize))
        wrong = builder.or_(cgutils.is_not_null(builder, status), other)
        self._refuse(api, builder, wrong, "an argument is not an array of the type that was compiled for")

    def _refuse(self, api: Any, builder: Any, wrong: Any, text: str) -> None:
        with cgutils.if_unlikely(builder, wrong):
            api.err_set_string("PyExc_TypeError", text)
            builder.ret(api.get_null_object())

    def _words(self, builder: Any, rows: Any, n: int, kind: Any) -> list[Any]:
        """What the compiled function is given for an argument. Nothing counts references, so arrays have no owner."""

        def word(place: int, type_: Any = _WORD) -> Any:
            found = builder.gep(rows, [_WORD(0), _WORD(n), _WORD(place)])
            return builder.load(builder.bitcast(found, type_.as_pointer()))

        if not isinstance(kind, types.Array):
            return [word(0, self.context.get_argument_type(kind))]
        data = self.context.get_data_type(kind.dtype).as_pointer()
        if is_short(kind):
            return [word(_DATA, data), *(word(_EXTENT + d) for d in range(kind.ndim))]
        nobody = cgutils.voidptr_t(None)
        extent = [word(_EXTENT + d) for d in range(2 * kind.ndim)]
        return [nobody, nobody, word(_ITEMS), _WORD(_code(kind)), word(_DATA, data), *extent]


def _code(kind: Any) -> int:
    """How an argument is unpacked: the size of an array's elements, or which of the scalars it is."""
    if isinstance(kind, types.Array):
        return int(as_dtype(kind.dtype).itemsize)
    return -1 - _SCALARS.index(kind)


class _Nothing:
    """Nothing is released after the call."""

    def emit_cleanup(self) -> None:
        pass


class _OfWords(CPUCallConv):  # type: ignore[misc, unused-ignore]
    """Numba's calls, of arguments that are taken apart already."""

    def _get_arg_packer(self, kinds: Any) -> Any:
        return self

    def as_arguments(self, builder: Any, words: Any) -> Any:
        return words
