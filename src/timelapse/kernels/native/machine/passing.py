"""How compiled functions of this project call each other: an array is where its elements are and how many, and a status is asked for
where there can be an error.

Numba hands over all that it knows of an array, 7 to 9 words each, and looks at a status after each call. Most calls of a pass are of
functions that cannot fail, with two tables each: this was half of the instructions that LLVM was given.

What calls such a function need not be of this project: it is Numba's own table of functions that knows how (`Target`).
"""

from __future__ import annotations

import copy
from typing import Any

import numba.core.types
from llvmlite import ir
from numba.core import cgutils
from numba.core.callconv import CPUCallConv
from numba.core.cpu import CPUContext
from numba.core.datamodel import ArgPacker
from numba.core.imputils import impl_ret_new_ref, user_function
from numba.np.numpy_support import as_dtype

types: Any = numba.core.types
_TAG = "words"
"""In the name of a function that is called so."""
_ITEMS, _ITEM_SIZE, _DATA, _SHAPE, _STRIDES = 2, 3, 4, 5, 6
"""In Numba's description of an array; before them two words for its owner, of which there is none here."""

_FINE = (0, -2)
"""What a function returns that has not failed: with a result, or none."""

SURE: set[str] = set()
"""Names of functions that cannot fail: none of their ways out is with an error."""


def is_called_so(described: Any) -> bool:
    """Whether a function (Numba's description of it) is called in this way."""
    return f"B{len(_TAG)}{_TAG}" in described.mangled_name


def is_short(kind: Any) -> bool:
    """Whether an argument is the address of an array's elements and its shape: they lie one after the other."""
    return isinstance(kind, types.Array) and kind.layout == "C"


def part(builder: Any, value: Any, *place: int) -> Any:
    """A part of a structure. What has just been put into it is not taken out again."""
    while isinstance(value, ir.instructions.InsertValue):
        given = tuple(value.indices)
        if given == place:
            return value.value
        shared = min(len(given), len(place))
        if given[:shared] == place[:shared]:
            break
        value = value.aggregate
    return builder.extract_value(value, place)


def see_whether_it_fails(name: str, module: Any) -> None:
    """Note of a function, as it is after optimising, whether it is `SURE`: before that, each loop may have no step."""
    ends = [list(block.instructions)[-1] for block in module.get_function(name).blocks]
    codes = [next(end.operands) for end in ends if end.opcode == "ret"]
    if all(c.is_constant and c.get_constant_value(signed_int=True) in _FINE for c in codes):
        SURE.add(name)
    else:
        SURE.discard(name)


def passing(context: Any) -> Any:
    """Numba's context, as it is for what calls in this way."""
    own = copy.copy(context)
    own.__class__ = _Context
    own.cached_internal_func = {}
    return own


class Passing(CPUCallConv):  # type: ignore[misc, unused-ignore]
    """Numba's way of calling, with fewer words for arrays."""

    def _get_arg_packer(self, kinds: Any) -> Any:
        return ArgPacker(_Models(self.context.data_model_manager), kinds)


class _Context(CPUContext):  # type: ignore[misc, unused-ignore]
    @property
    def call_conv(self) -> Any:
        return Passing(self)


class Target:
    """Numba's context for functions as a whole: those that are compiled or loaded with it get names that tell how they are called,
    and are known with that."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def mangler(self, name: str, kinds: Any, *, abi_tags: Any = (), uid: Any = None) -> Any:
        """The name of a function in machine code."""
        return self._context.mangler(name, kinds, abi_tags=(*abi_tags, _TAG), uid=uid)

    def insert_user_function(self, function: Any, described: Any, libraries: Any = ()) -> None:
        """Have a function called by others."""
        if not is_called_so(described):
            self._context.insert_user_function(function, described, libraries)
            return
        written = _calling(described, libraries)
        self._context._defns[function].append(written, written.signature)


def _calling(described: Any, libraries: Any) -> Any:
    """What writes a call, in whatever function."""
    with_status = user_function(described, libraries)
    result = described.restype

    def call(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        own = passing(context)
        if described.mangled_name not in SURE or isinstance(result, types.Optional):
            return with_status(own, builder, signature, given)
        called = own.declare_function(builder.module, described)
        slot, error = (argument.type for argument in called.args[:2])
        found = cgutils.alloca_once(builder, slot.pointee)
        words = own.call_conv._get_arg_packer(described.argtypes).as_arguments(builder, given)
        builder.call(called, [found, ir.Constant(error, None), *words])
        if result == types.none:
            return context.get_dummy_value()
        value = own.get_returned_value(builder, result, builder.load(found))
        return impl_ret_new_ref(context, builder, result, value)

    call.signature = with_status.signature  # type: ignore[attr-defined]
    call.libs = with_status.libs  # type: ignore[attr-defined]
    return call


class _Models:
    """How Numba represents types, but for arguments that are written with less."""

    def __init__(self, models: Any) -> None:
        self._models = models

    def lookup(self, kind: Any) -> Any:
        """How a type is represented."""
        model = self._models.lookup(kind)
        if is_short(kind):
            return _Short(kind, model)
        return _Flag(model) if kind == types.boolean else model


class _Short:
    """An array as an argument: where its elements are, and its shape."""

    def __init__(self, kind: Any, model: Any) -> None:
        self._kind = kind
        self._type = model.get_value_type()

    def get_argument_type(self) -> Any:
        """A tuple of LLVM's types."""
        words = self._type.elements
        return (words[_DATA], tuple(words[_SHAPE].element for _ in range(self._kind.ndim)))

    def as_argument(self, builder: Any, value: Any) -> Any:
        """The words of an array."""
        extent = tuple(part(builder, value, _SHAPE, d) for d in range(self._kind.ndim))
        return (part(builder, value, _DATA), extent)

    def from_argument(self, builder: Any, words: Any) -> Any:
        """The array of these words. Nothing counts references, so it has no owner."""
        data, extent = words
        word = self._type.elements[_ITEMS]
        step = word(as_dtype(self._kind.dtype).itemsize)
        put = builder.insert_value
        found = put(ir.Constant(self._type, None), step, _ITEM_SIZE)
        found = put(found, data, _DATA)
        for d, size in enumerate(extent):
            found = put(found, size, [_SHAPE, d])
        count = word(1)
        for d in reversed(range(len(extent))):
            found = put(found, step, [_STRIDES, d])
            count = builder.mul(count, extent[d]) if d + 1 < len(extent) else extent[d]
            step = builder.mul(step, extent[d]) if d else step
        return put(found, count, _ITEMS)


class _Flag:
    """A truth value as an argument: Numba writes a branch for each."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def from_argument(self, builder: Any, word: Any) -> Any:
        """Whether it is true."""
        return flag(builder, word)


def flag(builder: Any, word: Any) -> Any:
    """Whether a byte is true."""
    return builder.icmp_unsigned("!=", word, word.type(0))
