"""Numba with this project's store in place of its own cache.

What is stored is object code and a description in JSON (`objects.py`). It is read back only from a folder that
nobody else may write to (`store.folder`), and only if its checksum is right.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numba as nb

from timelapse.kernels.native.machine import store
from timelapse.kernels.native.machine.objects import PARTS, NotKept, from_bytes, symbols_of, to_bytes
from timelapse.kernels.native.machine.passing import Target, is_called_so, see_whether_it_fails
from timelapse.kernels.native.machine.pipeline import ApartPipeline, Pipeline
from timelapse.kernels.native.machine.version import compiler_version

COUNTS: Counter[str] = Counter()
"""What this process has done: `compiled` and `loaded` functions, `damaged` entries, and those `unkept` on disk."""


_MAKING: dict[str, ExitStack] = {}
"""The right to make what this process is compiling for all: released when it is stored, or by `release`."""


def release(*names: str) -> None:
    """Let other processes compile these functions, or all that this one has begun and, after an error, not ended."""
    for name in names or tuple(_MAKING):
        making = _MAKING.pop(name, None)
        if making is not None:
            making.close()


class NotStored(Exception):
    """There is no whole entry of this name."""


class OnDisk:
    """Takes the place of a dispatcher's cache. `name` gives a signature's entry.

    With `load_only` a function that is not stored raises NotStored instead of being compiled. `linked`: other
    functions will call it. Of processes that miss such a function at once one compiles it and the others wait: it
    compiles those that it calls on the way, always in the same order, so none waits for another in a circle.
    """

    cache_path = None

    def __init__(self, name: Callable[[Any], str], *, load_only: bool = False, linked: bool = False) -> None:
        self._name = name
        self._load_only = load_only
        self._linked = linked

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        name = self._name(sig)
        found = self._stored(name, sig, target_context)
        if found is None and self._linked and name not in _MAKING:
            making = _MAKING[name] = ExitStack()
            making.enter_context(store.being_made(name))
            if store.has(name):  # it was made meanwhile
                found = self._stored(name, sig, target_context)
            if found is not None:
                release(name)
        if found is None and self._load_only:
            raise NotStored(name)
        return found

    def _stored(self, name: str, sig: Any, target_context: Any) -> Any:
        payload = store.read(name)
        if payload is not None:
            try:
                found = from_bytes(name, payload, sig, target_context, store.read)
            except Exception:  # whole, and still not what this Numba understands
                COUNTS["damaged"] += 1
                store.remove(name)
            else:
                COUNTS["loaded"] += 1
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        COUNTS["compiled"] += 1
        name = self._name(sig)
        if self._linked and is_called_so(data.fndesc):
            see_whether_it_fails(data.fndesc.mangled_name, data.library._final_module)
        try:
            kept = store.write(name, to_bytes(data, linked=self._linked))
            if kept and self._linked:
                PARTS.add(name, data, symbols_of(data.library))
        except NotKept:
            kept = False
        finally:
            release(name)
        COUNTS["unkept"] += not kept

    def enable(self) -> None:
        """Nothing: it is always on."""

    disable = flush = enable


def primitive(
    signature: Any = None, *, arrays: bool = False, apart: bool = False, **options: Any
) -> Callable[[Any], Any]:
    """A decorator: compiled and kept on disk, now for a signature, else for each with which it is first used.

    `arrays`: whether it makes arrays, or returns one. Numba refuses that without. `apart`: it is never written into what calls it,
    as is certain for a long one; LLVM then passes over it wherever it is called.
    """
    pipeline = ApartPipeline if apart else Pipeline

    def decorate(function: Any) -> Any:

        def name(sig: Any) -> str:
            text = f"{compiler_version()} {function.__module__}.{function.__qualname__} {sig}"
            return hashlib.sha256(text.encode()).hexdigest()[:32]

        made = nb.njit(nogil=True, no_cfunc_wrapper=True, _nrt=arrays, pipeline_class=pipeline, **options)(
            function
        )
        if hasattr(made, "overloads"):
            made._cache, made.targetctx = OnDisk(name, linked=True), Target(made.targetctx)
            if signature is not None:
                made.compile(signature)
                made.disable_compile()
        return made

    return decorate
