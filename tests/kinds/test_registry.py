"""Kinds are named by their own files and the registry, and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import timelapse as tl
from tests.writers import phrases
from timelapse.kinds import registry
from timelapse.kinds.base import State

SRC = Path(tl.__file__).parent
FILES = {module.rpartition(".")[2] for module in registry.MODULES.values()}
ROOMS = ("kinds", "kernels/python/flat/kinds", "kernels/native/lowering/states", "kernels/iterate/kinds")

MODULES = set(registry.MODULES.values())
REST = {
    "analysis/idioms/addition.py": {"Counter", "Sum", "Value"},
    "analysis/idioms/extremum.py": {"Value"},
    "analysis/idioms/first.py": {"Value"},
    "analysis/idioms/membership.py": {"First", "Set"},
    "analysis/idioms/values.py": {"Counter", "Sum"},
    "kernels/native/windows.py": {"Counter"},
    "kernels/rehearsal.py": {"Counter", "Max", "Set", "Value"},
    "kernels/native/memory/listing.py": {"NUMBER", "SUM"},
    "kernels/python/latest.py": {"beyond"},
    "program/pending.py": {"Value"},
}
"""Who still names kinds: programs and states of their own (rehearsal, pending, windows), rules about what is written with one kind (idioms),
and how a mean is listed, and its window added up. This only becomes shorter."""


def _named(tree: ast.AST) -> Iterator[str]:
    """The kinds that a module takes from their files, and what else it takes from these; kinds that it compares names with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("timelapse.kinds"):
            own = node.module in MODULES
            yield from (alias.name for alias in node.names if own or alias.name in registry.MODULES)
        if isinstance(node, ast.Compare):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and part.value in registry.MODULES:
                    yield str(part.value)


def test_no_other_file_names_a_kind() -> None:
    found = {}
    for path in SRC.rglob("*.py"):
        place = path.relative_to(SRC)
        own = place.parent.as_posix() in ROOMS and (place.stem in FILES or place.name == "registry.py")
        text = path.read_text(encoding="utf-8")
        may = "timelapse.kinds" in text or any(f'"{kind}"' in text for kind in registry.MODULES)
        names = set(_named(ast.parse(text))) if may else set()
        if names and not own:
            found[place.as_posix()] = names
    assert found == REST


def test_the_search_finds_names() -> None:
    text = "from timelapse.kinds.sum import Sum, units_of\nif spec.kind.__name__ in ('Set', 'x') or 'no':\n    pass\n"
    assert set(_named(ast.parse(text))) == {"Sum", "Set", "units_of"}


def test_files_of_other_rooms_are_named_as_their_kinds() -> None:
    for room in ROOMS[1:]:
        package = f"timelapse.{room.replace('/', '.')}"
        for kind in registry.forms(package):
            name = kind.__module__.rpartition(".")[2]
            assert (SRC / room / f"{name}.py").exists(), f"{kind.__name__} in {room}"


def test_the_registry_is_what_programs_are_given() -> None:
    assert sorted(registry.MODULES) == sorted(registry.__all__)
    for name, kind in registry.kinds().items():
        assert issubclass(kind, State)
        assert kind.__name__ == name
        assert getattr(tl, name) is kind
        assert name in tl.__all__


def test_random_programs_have_states_of_every_kind() -> None:
    declared = [*phrases.KINDS.values(), *(found.declared for found in phrases.FURTHER.values())]
    assert {text.removeprefix("tl.").partition("[")[0] for text in declared} == set(registry.MODULES)
