"""A compiled function as bytes: object code, and in JSON what Numba has to know to call it.

Numba's own cache pickles this description. Here it is data: names, the type of the result, the names of environments.
What would need more (constants that are Python objects, code to run when loading, other types) is not kept.
Reading it runs no code but that of the function itself, when it is called. (Numba has the machine code carry the
exceptions that it may raise, in a form of Numba's own.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import llvmlite.binding as llvm
import numba.core.types
import numpy as np
from numba.core import sigutils
from numba.core.compiler import CompileResult
from numba.core.environment import _rebuild_env
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.runtime import rtsys
from numba.core.typing import signature

from timelapse.kernels.native.machine.passing import SURE

types: Any = numba.core.types
Read: TypeAlias = Callable[[str], bytes | None]
"""What is kept under a name, or None."""
_HEAD = 8
"""Bytes that hold the length of the description."""


class NotKept(Exception):
    """This function cannot be described."""


class Parts:
    """Kept functions whose code is in place in this process, by the names that they define: passes call them there."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}
        self._held: list[Any] = []

    def add(self, entry: str, held: Any, symbols: Iterable[str]) -> None:
        """An entry's code is in place and defines these names. It stays: `held` is what would take it away."""
        self._held.append(held)
        for symbol in symbols:
            self._entries.setdefault(symbol, entry)

    def entry_of(self, symbol: str) -> str | None:
        """The entry that defines this name, if any does."""
        return self._entries.get(symbol)

    def load(self, entry: str, target: Any, read: Read) -> None:
        """Have an entry's code in place. Raises ValueError where it is not kept any more."""
        payload = read(entry)
        if payload is None:
            raise ValueError(f"{entry} is gone")
        head, code, _ = _taken_apart(payload)
        if _missing(head["symbols"], target):
            self.add(entry, _in_place(head, code, b"", target, read), head["symbols"])


PARTS = Parts()


def to_bytes(made: Any, *, linked: bool) -> bytes:
    """A compiled function (Numba's CompileResult). Raises NotKept.

    `linked`: other functions that are compiled later may call it; then it takes its bitcode along, for the linker.
    """
    described, library = made.fndesc, made.library
    if library.has_dynamic_globals or made.reload_init or made.objectmode or made.lifted:
        raise NotKept(described.qualname)
    environments = [made.environment, *made._find_referenced_environments()]
    if not all(e.can_cache() for e in environments):
        raise NotKept(f"{described.qualname} belongs to no module")
    name, _, (code, bitcode) = library.serialize_using_object_code()
    needs = sorted(_names(library._final_module, defined=False))
    head = {
        "library": name,
        "module": described.modname,
        "qualname": described.qualname,
        "unique_name": described.unique_name,
        "mangled": described.mangled_name,
        "environment": described.env_name,
        "args": list(described.args),
        "inline": bool(described.inline),
        "noalias": bool(described.noalias),
        "sure": described.mangled_name in SURE,
        "result": _described(made.signature.return_type),
        "environments": [
            [e.env_name, e.globals.get("__name__", ""), [_constant(c, described.qualname) for c in e.consts]]
            for e in environments
        ],
        "symbols": symbols_of(library),
        "needs": needs,
        "parts": sorted({part for n in needs if (part := PARTS.entry_of(n)) is not None}),
        "code": len(code),
    }
    text = json.dumps(head, sort_keys=True).encode()
    parts: list[bytes] = [len(text).to_bytes(_HEAD, "little"), text, code, bitcode if linked else b""]
    return b"".join(parts)


def from_bytes(entry: str, payload: bytes, sig: Any, target: Any, read: Read) -> Any:
    """The CompileResult, for the signature that it was compiled for. Raises where the bytes are something else, or
    what it calls is not kept any more."""
    head, code, bitcode = _taken_apart(payload)
    library, environments = _in_place(head, code, bitcode, target, read)
    if bitcode:
        PARTS.add(entry, (library, environments), head["symbols"])
    if head["sure"]:
        SURE.add(head["mangled"])
    else:
        SURE.discard(head["mangled"])
    arguments, _ = sigutils.normalize_signature(sig)
    result = _type(head["result"])
    described = PythonFunctionDescriptor(
        True, head["module"], head["qualname"], head["unique_name"], "", None, result, None, tuple(head["args"]), (),
        mangler=lambda *_, **__: head["mangled"], argtypes=tuple(arguments), inline=head["inline"],
        noalias=head["noalias"], env_name=head["environment"],
    )  # fmt: skip
    called = target.get_executable(library, described, environments[0])
    return CompileResult(
        target_context=target, typing_context=target.typing_context, library=library, environment=environments[0],
        entry_point=called, fndesc=described, type_annotation="", signature=signature(result, *arguments),
        objectmode=False, lifted=(), typing_error=None, call_helper=None, metadata=None, reload_init=[],
        referenced_envs=environments[1:],
    )  # fmt: skip


def _taken_apart(payload: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """The description, the object code, the bitcode. Raises ValueError where the bytes are something else."""
    size = int.from_bytes(payload[:_HEAD], "little")
    head = json.loads(payload[_HEAD : _HEAD + size])
    at = _HEAD + size + int(head["code"])
    code, bitcode = payload[_HEAD + size : at], payload[at:]
    if len(code) != head["code"]:
        raise ValueError("the object code is cut off")
    return head, code, bitcode


def _in_place(
    head: dict[str, Any], code: bytes, bitcode: bytes, target: Any, read: Read
) -> tuple[Any, list[Any]]:
    """Put object code where it can be called, after what it calls. Its library, and its environments."""
    if _missing(head["needs"], target):
        for part in head["parts"]:
            PARTS.load(part, target, read)
    _provide(head["needs"], target)
    library = _library(target.codegen(), head, code, bitcode)
    environments = [
        _rebuild_env(module, [np.dtype(c) for c in constants], name)
        for name, module, constants in head["environments"]
    ]
    for environment in environments:
        library.codegen.set_env(environment.env_name, environment)
    return library, environments


def _provide(names: Iterable[str], target: Any) -> None:
    """Have what object code calls by name in place. Raises ValueError for a function of this project's that is not.

    Numba first loads all that it can compile (its refresh of a target). That takes longer than the rest of loading
    machine code, and most of this needs Numba's run-time alone.
    """
    rtsys.initialize(target)
    missing = _missing(names, target)
    if missing:
        target.refresh()
    for name in missing:
        if name.startswith("_ZN9timelapse"):  # it was compiled anew since, under another name
            raise ValueError(f"{name} is gone")


def _missing(names: Iterable[str], target: Any) -> list[str]:
    """Those that nothing in this process defines."""
    engine = target.codegen()._engine
    return [n for n in names if not (llvm.address_of_symbol(n) or engine.is_symbol_defined(n))]


def _library(codegen: Any, head: dict[str, Any], code: bytes, bitcode: bytes) -> Any:
    library = codegen.create_library(head["library"])
    library.enable_object_caching()
    library._set_compiled_object(code)
    if bitcode:
        library._shared_module = llvm.parse_bitcode(bitcode)
    library._finalize_final_module()
    codegen._engine._defined_symbols.update(head["symbols"])
    return library


def symbols_of(library: Any) -> list[str]:
    """The names that a function's code defines, where this process has compiled it."""
    return sorted(_names(library._final_module, defined=True))


def symbols_in(payload: bytes | None) -> frozenset[str]:
    """The names that a kept function's code defines; none where it is not kept."""
    return frozenset() if payload is None else frozenset(_taken_apart(payload)[0]["symbols"])


def _names(module: Any, *, defined: bool) -> Iterable[str]:
    """What a module defines, or needs from elsewhere."""
    for values in (module.functions, module.global_variables):
        for value in values:
            if value.is_declaration != defined and not value.name.startswith("llvm."):
                yield value.name


def _constant(value: Any, function: str) -> str:
    """A constant of the code that is a Python object: the type of an array's elements, which arrays that are returned
    are made with. Raises NotKept for any other."""
    if isinstance(value, np.dtype) and value.kind in "iufb" and value.isnative:
        return value.str
    raise NotKept(f"{function} has constants that are Python objects")


def _described(kind: Any) -> Any:
    """A type as JSON: what functions of this project return. Raises NotKept where it could not be read back."""
    kind = types.unliteral(kind)  # that it always returns the same number is of no use to who calls it
    if isinstance(kind, types.Integer | types.Float | types.Boolean | types.NoneType):
        if getattr(types, kind.name, None) != kind:
            raise NotKept(f"a result of type {kind}")
        return kind.name
    if isinstance(kind, types.Array):
        return ["array", _described(kind.dtype), kind.ndim, kind.layout, not kind.mutable, kind.aligned]
    if isinstance(kind, types.BaseTuple):
        return ["tuple", [_described(part) for part in kind.types]]
    raise NotKept(f"a result of type {kind}")


def _type(text: Any) -> Any:
    if isinstance(text, str):
        kind = getattr(types, text)
        if not isinstance(kind, types.Type):
            raise ValueError(f"{text} is no type")
        return kind
    if text[0] == "array":
        _, dtype, ndim, layout, readonly, aligned = text
        return types.Array(_type(dtype), ndim, layout, readonly=readonly, aligned=aligned)
    return types.Tuple([_type(part) for part in text[1]])
