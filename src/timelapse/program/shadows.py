"""User modules that are called as one of the standard library's: profile.py, types.py, queue.py.

They go by a name of their own, here and on workers, so that whoever imports the library's gets that.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import sysconfig
import types
from pathlib import Path

_LOUD = ("antigravity", "this")
"""Modules that do something when they are imported."""


def shadows(name: str) -> bool:
    """Whether a module of the standard library has this name."""
    return name in sys.stdlib_module_names


def own_name(path: Path) -> str:
    """The name under which a file goes whose own is taken."""
    return f"timelapse_user_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def load_library(name: str) -> None:
    """Import the standard library's module of a name, if this platform has it."""
    if name in sys.modules or name in _LOUD:
        return
    path = list(sys.path)
    sys.path[:] = [p for p in path if _is_library(p)]
    try:
        importlib.import_module(name)
    except ImportError:
        pass
    finally:
        sys.path[:] = path


def rename(name: str, new: str) -> None:
    """Have a loaded module go by another name, with all that it defines."""
    module = sys.modules.pop(name)
    sys.modules[new] = module
    module.__name__ = new
    for value in list(vars(module).values()):
        if isinstance(value, type | types.FunctionType) and value.__module__ == name:
            value.__module__ = new


def put_behind_library(folder: str) -> None:
    """Have imports look into a folder after the standard library, and before what is installed."""
    path = [p for p in sys.path if p != folder]
    last = max((place for place, entry in enumerate(path) if _is_library(entry)), default=-1)
    sys.path[:] = [*path[: last + 1], folder, *path[last + 1 :]]


def _is_library(entry: str) -> bool:
    if not entry:
        return False
    paths = sysconfig.get_paths()
    own = {Path(paths["stdlib"]).resolve(), Path(paths["platstdlib"]).resolve()}
    path = Path(entry).resolve()
    return path in own or (path.name == "lib-dynload" and path.parent in own) or path.suffix == ".zip"
