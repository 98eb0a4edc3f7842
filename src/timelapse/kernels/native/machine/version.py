"""What decides which machine code a source becomes."""

from __future__ import annotations

import hashlib
import os
import pkgutil
import platform
import sys
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

_MADE_BY = ("timelapse.kernels.native.machine", "timelapse.kernels.native.memory")
"""The packages whose functions are compiled, or compile."""
_ELSEWHERE = ("NUMBA_CACHE_DIR",)
"""Settings of Numba that change no machine code."""
_HEAD = ("timelapse.kernels.native", "build.py")
"""What stands above each generated function."""


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """A hash of what turns a source into machine code: change any of it and passes are compiled anew."""
    import llvmlite.binding as llvm

    parts: list[Any] = [
        platform.python_implementation(), sys.version, version("numba"), version("llvmlite"), version("numpy"),
        llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(),
        *sorted((k, v) for k, v in os.environ.items() if k.startswith("NUMBA_") and k not in _ELSEWHERE),
        pkgutil.get_data(*_HEAD),
    ]  # fmt: skip
    for package in _MADE_BY:
        for module in sorted(m.name for m in pkgutil.iter_modules(import_module(package).__path__)):
            parts.append((package, module, pkgutil.get_data(package, f"{module}.py")))
    return hashlib.sha256(repr(parts).encode()).hexdigest()
