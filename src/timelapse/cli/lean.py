"""What keeps short commands short."""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import typer.core


def without_pandas() -> None:
    """Keep pyarrow from importing pandas, for the rest of the process.

    Whenever it makes an array of Python values it asks whether they are pandas', and imports pandas to find out: longer
    than many a command takes. It asks once; so it is asked while there is none to be found. Only for commands that hand out
    no data frames.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _Hiding)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_Hiding)


def with_little_collecting() -> None:
    """Search for garbage in cycles rarely, for the rest of the process: else a sixth of the time that modules take to load is that search, which
    goes through all of what was loaded before. What handlers make may be in cycles, so it is not switched off.
    """
    if gc.isenabled() and 0 < gc.get_threshold()[0] < _RARELY:
        gc.set_threshold(_RARELY, *gc.get_threshold()[1:])


_RARELY = 500_000
"""Objects that are new, between two searches."""


def without_idle_threads() -> None:
    """Have numpy's linear algebra begin no threads, for the rest of the process, unless the user has said how many.

    Before they sleep they turn round for a twentieth of a second each, and wait for work that short commands do not have.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def without_markdown() -> None:
    """Have the command line's library load without what it shows Markdown and tracebacks with.

    It imports both for texts that this command line does not have, and they take longer to load than all of
    `timelapse --help`. In their place stands what loads them once they should be used after all.
    """
    if "typer.rich_utils" in sys.modules:
        return
    missing = [name for name in ("rich.markdown", "rich.traceback") if name not in sys.modules]
    for name in missing:
        sys.modules[name] = _later(name)
    try:
        import typer.rich_utils  # noqa: F401 - it keeps the stand-ins that it finds
    finally:
        for name in missing:
            del sys.modules[name]


def without_pydantic() -> None:
    """Have the command line's library read plain options by itself, for the rest of the process.

    It has pydantic check every argument and option, given or not, and to load that takes as long as numpy. Plain texts and
    whole numbers, and what is not given, are taken as pydantic would take them; all else, wrong numbers among it, goes
    to it as before.
    """
    core: Any = typer.core
    building = getattr(core, "build_runtime_param", None)  # not in all versions
    if building is not None:
        core.build_runtime_param = lambda descriptor: _Plain(descriptor, building)


class _Plain:
    """Reads what is given for an argument or option, in the place of the library's reader, which is made when it is needed."""

    def __init__(self, descriptor: Any, building: Callable[[Any], Any]) -> None:
        self._descriptor, self._building = descriptor, building

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """What the command is called with."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if not several and (found := self._read(value)) is not None:
            return found
        return self._building(self._descriptor).coerce(value, param, ctx)

    def _read(self, value: Any) -> str | int | None:
        """None: not by this."""
        wanted, how = self._descriptor.annotation, self._descriptor.parameter_info
        if how.parser is not None or how.clamp or wanted not in (str, int):
            return None
        if wanted is int and isinstance(value, str) and _WHOLE.fullmatch(value):
            value = int(value)
        if type(value) is not wanted:
            return None
        return value if wanted is str or _within(value, how.min, how.max) else None


def _within(value: int, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def _later(module: str) -> types.ModuleType:
    """A stand-in for a module: its names are classes that make an object of the real one's."""
    standing = types.ModuleType(module)

    def found(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(module, name)

    standing.__getattr__ = found  # type: ignore[method-assign]
    return standing


class _Later:
    """Stands for a class of a module that is not loaded yet."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _real(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._real()(*args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __or__(self, other: Any) -> Any:
        """In an annotation: `Markdown | Text`."""
        return other

    __ror__ = __or__


class _Hiding:
    """An importer that says that there is no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


__all__ = [
    "with_little_collecting", "without_idle_threads", "without_markdown", "without_pandas", "without_pydantic",
]  # fmt: skip
