"""From `FILE:Class` or `module:Class` to the class, with errors that say what is wrong."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from timelapse.errors import Place, TimelapseError, UsageError, meant
from timelapse.model.events import Event, Record
from timelapse.program.program import Program
from timelapse.program.shadows import load_library, own_name, put_behind_library, rename, shadows
from timelapse.store.places import local_path

_LIBRARY = Path(__file__).parents[1]
_FILES: set[str] = set()
"""Names of the modules that were loaded by their files' paths."""


def load_program(reference: str) -> type[Program]:
    """The program class that `FILE:Class` or `module:Class` names.

    The class may be left out when the file defines one program. Raises UsageError: TL803 when the
    file or module does not exist, TL804 when the class does not, TL805 when importing it fails.
    """
    where, _, name = _split(reference)
    module = load_module(where)
    if name:
        found = module
        for part in name.split("."):
            found = getattr(found, part, None)  # type: ignore[assignment]
        if isinstance(found, type) and issubclass(found, Program) and found is not Program:
            return found
        if isinstance(found, Program):
            raise UsageError(
                f"{name} is a program with parameters already set", place=Place(where),
                hint="name the class, and set parameters with --set", code="TL804",
            )  # fmt: skip
        known = programs_in(module)
        what = f"there is no {name}" if found is None else f"{name} is not a tl.Program"
        raise UsageError(
            what, place=Place(where), code="TL804",
            hint=f"{meant(name, known)}programs there: {', '.join(known) or 'none'}",
        )  # fmt: skip
    known = programs_in(module)
    if len(known) == 1:
        return next(iter(known.values()))
    if not known:
        raise UsageError(
            "no program is defined there", place=Place(where), hint="subclass tl.Program", code="TL804"
        )
    raise UsageError(
        f"several programs are defined there: {', '.join(known)}", place=Place(where),
        hint=f"name one: {where}:{next(iter(known))}", code="TL804",
    )  # fmt: skip


def load_events(reference: str) -> dict[str, type[Event]]:
    """The event classes, by name, that a file or module defines or imports."""
    module = load_module(_split(reference)[0])
    return {
        value.__name__: value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Event) and value is not Event
    }


def program_beside(reference: str) -> str:
    """The program that a reference to event classes names, or the first one that their file or module defines; empty where there is none."""
    where, _, named = _split(reference)
    found = programs_in(load_module(where))
    name = named if named in found else next(iter(found), "")
    return f"{where}:{name}" if name else ""


def programs_in(module: ModuleType) -> dict[str, type[Program]]:
    """The programs that a module itself defines, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Program)
        and value.__module__ == module.__name__
        and not issubclass(value, Event | Record)
    }


def user_modules() -> list[ModuleType]:
    """Loaded modules that are not installed: executors cannot import them."""
    return [module for name, module in list(sys.modules.items()) if _is_users(name, module)]


def user_folders() -> list[str]:
    """Folders in which imports look for modules that are not installed: for what handlers import only when they run.

    Behind everything else, where it is given to workers: nothing in them takes another module's place.
    """
    paths = [Path(p or ".").resolve() for p in sys.path]
    return [str(p) for p in dict.fromkeys(paths) if p.is_dir() and not _is_installed(p)]


def is_user_module(name: str) -> bool:
    """Whether a module of this name is among them. Asking for one looks at no other's file."""
    return name in sys.modules and _is_users(name, sys.modules[name])


def _is_users(name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if name == "__main__" or not isinstance(file, str) or module.__name__ != name:
        return False
    # A file in there that was loaded by its path has no such name for others.
    return name in _FILES or not _is_file_installed(file if os.path.isabs(file) else os.path.abspath(file))


@functools.lru_cache(maxsize=1 << 14)
def _is_file_installed(file: str) -> bool:
    """The same of an absolute path as text. Kept: a process has a thousand modules, and each replay on Spark asks for all of them."""
    return (
        _is_installed(Path(file).resolve())
        if os.path.islink(file)
        else _is_folder_installed(os.path.dirname(file))
    )


@functools.lru_cache(maxsize=1 << 12)
def _is_folder_installed(folder: str) -> bool:
    """The same of what lies in a folder: a thousand files lie in a hundred, and following links takes longest."""
    return _is_installed(Path(folder).resolve())


def _is_installed(path: Path) -> bool:
    return any(path.is_relative_to(root) for root in _installed())


@functools.cache
def _installed() -> tuple[Path, ...]:
    """The folders of what is installed, this package among them."""
    installed = {*sysconfig.get_paths().values(), *site.getsitepackages()}
    return (Path(__file__).resolve().parents[1], *(Path(p).resolve() for p in sorted(installed)))


def _split(reference: str) -> tuple[str, str, str]:
    """`C:\\rules.py:Antispam` -> file, ':', class. A colon in a path stays with the path."""
    head, colon, tail = reference.rpartition(":")
    if not colon or "/" in tail or "\\" in tail or tail.endswith(".py"):
        return reference, "", ""
    return head, colon, tail


def load_module(where: str) -> ModuleType:
    """Import a file (its folder goes first on sys.path, as when Python runs it) or a module by name."""
    path = local_path(where, "program")
    if where.endswith(".py") or "/" in where or path.is_file():
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise UsageError(
                f"{where or '(empty)'} {what}", code="TL803",
                hint=f"{_file_meant(path)}name a Python file: rules.py:Antispam",
            )  # fmt: skip
        return _import_file(path.resolve(), where)
    if not where or not all(part.isidentifier() for part in where.split(".")):
        raise UsageError(
            f"{where or '(empty)'} is neither a file nor a module", hint="rules.py:Antispam, or rules:Antispam",
            code="TL803",
        )  # fmt: skip
    here = Path.cwd() / f"{where}.py"
    if shadows(where) and here.is_file():
        return _import_file(here.resolve(), where)
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        missing = importlib.util.find_spec(where) is None
    except ModuleNotFoundError:
        missing = True
    except Exception as error:
        raise _import_failed(where, error) from error
    if missing:
        raise UsageError(
            f"there is no module {where}", hint=f"if a file is meant, write {where}.py:Class", code="TL803"
        )
    return _import(where, where)


def _file_meant(path: Path) -> str:
    """The Python file beside a path that was probably meant."""
    beside = [p for p in path.parent.glob("*.py") if p.is_file()] if path.parent.is_dir() else []
    return meant(str(path), [str(p) for p in beside])


def _import_file(path: Path, shown: str) -> ModuleType:
    name = path.stem
    loaded = sys.modules.get(name)
    if loaded is not None and _same(loaded, path):
        return loaded
    if shadows(name):
        load_library(
            name
        )  # before this file is in sight, which anything that imports the library's would get
    with _beside(path.parent):
        if name.isidentifier() and loaded is None and not shadows(name):
            importlib.invalidate_caches()
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path:
                _FILES.add(name)
                return _import(name, shown)
        # The name is taken by another module, or is none: give the file a name of its own.
        name = own_name(path)
        loaded = sys.modules.get(name)
        if loaded is not None:
            return loaded
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        _FILES.add(name)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, TimelapseError | KeyboardInterrupt):
                raise
            raise _import_failed(shown, error) from error
        return module


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Imports find a folder's own modules, not those of the same names that another folder's program brought along.

    These stay what they are: functions keep the modules that they were defined with.
    """
    own = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    # Names first: asking for a module's file costs more, and hundreds may be loaded.
    near = [(n, m) for n, m in list(sys.modules.items()) if n.partition(".")[0] in own]
    others = {n: m for n, m in near if _is_users(n, m) and not _file_of(m).is_relative_to(folder)}
    for name in others:
        del sys.modules[name]
    first = str(folder)
    kept = [p for p in sys.path if p != first]
    sys.path[:] = [first, *kept]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.modules.update(others)
        shadowing = [folder / f"{name}.py" for name in own if shadows(name)]
        for path in filter(Path.is_file, shadowing):
            if is_user_module(path.stem) and _file_of(sys.modules[path.stem]) == path:
                rename(path.stem, own_name(path))
            put_behind_library(first)


def _file_of(module: ModuleType) -> Path:
    return Path(str(module.__file__)).resolve()


def _same(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path


def _import(name: str, shown: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (TimelapseError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: a script that calls sys.exit when imported
        raise _import_failed(shown, error) from error


def _import_failed(shown: str, error: BaseException) -> UsageError:
    """The user's part of the traceback: the frames after the import machinery's."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith("<frozen") and Path(f.filename) != Path(__file__)
        and "importlib" not in Path(f.filename).parts
    ]  # fmt: skip
    text = "".join(traceback.format_list(frames)) + "".join(traceback.format_exception_only(error))
    own = [f for f in frames if not Path(f.filename).is_relative_to(_LIBRARY)] or frames
    line = error.lineno if isinstance(error, SyntaxError) else own[-1].lineno if own else None
    file = error.filename if isinstance(error, SyntaxError) else own[-1].filename if own else shown
    hint = "importing the file must work: python " + shown
    if isinstance(error, ModuleNotFoundError):
        hint = f"install {error.name}, or put {error.name}.py beside {shown}"
    return ImportFailed(
        f"importing it fails: {type(error).__name__}: {error}", place=Place(file or shown, line), hint=hint,
        user_traceback=text,
    )  # fmt: skip


class ImportFailed(UsageError):
    """A program's file cannot be imported. `user_traceback` is the traceback in the user's code."""

    code = "TL805"

    def __init__(
        self,
        message: str,
        *,
        place: Place | None = None,
        hint: str | None = None,
        code: str | None = None,
        user_traceback: str = "",
    ) -> None:
        super().__init__(message, place=place, hint=hint, code=code)
        self.user_traceback = user_traceback
