"""A program's source, kept with its run: what ran can be looked into after the files have been edited."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from timelapse.code.source import statements
from timelapse.program.load import is_user_module
from timelapse.program.program import Program
from timelapse.program.versions import load_apart, split_revision
from timelapse.store.drafts import here

FOLDER = "program"
_MOST_FILES, _MOST_BYTES = 200, 2_000_000


def keep_sources(program: type[Program], reference: str | None, run: Path) -> None:
    """Copy the program's file and what it imports from beside it into the run's folder.

    `reference` is where the run says that its program is (`FILE:Class`). Nothing is kept of programs that git has
    (`FILE:Class@REV`), that are installed, or that need more than 200 files or 2 MB.
    """
    file = _file_of(program)
    if reference is None or file is None or split_revision(reference)[1] is not None:
        return
    if not is_user_module(program.__module__):
        return
    root = _root(program.__module__, file)
    texts: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        try:
            texts[path] = path.read_bytes()
            waiting += _imported(path, texts[path], root)
        except (OSError, SyntaxError, ValueError):
            return
        if len(texts) > _MOST_FILES or sum(map(len, texts.values())) > _MOST_BYTES:
            return
    for path, text in texts.items():
        target = run / FOLDER / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)


def load_kept(run: Path, reference: str) -> type[Program] | None:
    """The program that a run was made with, from the files kept with it; None where there are none.

    Modules of it that are not kept are today's. Raises UsageError as `load_program` does.
    """
    where, _, name = reference.rpartition(":")
    root = here(run / FOLDER)
    parts = Path(where).parts
    for start in range(1, len(parts)):
        file = root.joinpath(*parts[start:])
        if file.is_file():
            return load_apart(f"{file}:{name}", None, beside=root)
    return None


def _file_of(program: type[Program]) -> Path | None:
    """The file that a class was made from, also where its module's name is another module's now."""
    for member in program.__dict__.values():
        function = inspect.unwrap(member) if callable(member) else None
        if isinstance(function, types.FunctionType) and function.__module__ == program.__module__:
            path = Path(function.__code__.co_filename)
            return path.resolve() if path.suffix == ".py" and path.is_file() else None
    return None


def _root(module: str, file: Path) -> Path:
    """The folder from which a file is imported by its module's name."""
    names = module.split(".")
    found = file.with_suffix("") if file.name != "__init__.py" else file.parent
    return found.parents[len(names) - 1] if list(found.parts[-len(names) :]) == names else file.parent


def _imported(file: Path, text: bytes, root: Path) -> Iterator[Path]:
    """The files below `root` that a file's import statements may load."""
    package = list(file.parent.relative_to(root).parts)
    places: dict[Path, None] = {}
    for level, parts in _import_names(text):
        base = package[: len(package) + 1 - level] if level else []
        for length in range(1, len(base) + len(parts) + 1):
            places[root.joinpath(*[*base, *parts][:length])] = None
    for place in places:
        for candidate in (place.with_suffix(".py"), place / "__init__.py"):
            if candidate.is_file():
                yield candidate


@lru_cache(maxsize=256)
def _import_names(text: bytes) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """What a file's import statements name: levels above its own folder, and a module or what may be one.

    Kept, because each replay of a process asks for the same files.
    """
    found: dict[tuple[int, tuple[str, ...]], None] = {}
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[0, tuple(alias.name.split("."))] = None
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            for alias in node.names:
                found[node.level, (*module, alias.name)] = None
    return tuple(found)
