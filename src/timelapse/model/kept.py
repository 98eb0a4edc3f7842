"""A program's source, kept with its run: what ran can be looked into after the files have been edited."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterator
from pathlib import Path

from timelapse.model.load import is_user_module
from timelapse.model.program import Program
from timelapse.model.versions import load_apart, split_revision
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
    for node in ast.walk(ast.parse(text)):
        names: list[list[str]] = []
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = [*base, *(node.module or "").split(".")] if node.module else base
            names = [[*base, alias.name] for alias in node.names]
        for parts in names:
            for length in range(1, len(parts) + 1):
                place = root.joinpath(*parts[:length])
                for candidate in (place.with_suffix(".py"), place / "__init__.py"):
                    if candidate.is_file():
                        yield candidate
