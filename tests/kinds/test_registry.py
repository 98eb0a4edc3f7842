"""Kinds are named by their own files and the registry, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import timelapse as tl
from tests.writers import phrases
from timelapse.kinds import registry
from timelapse.kinds.base import State

SRC = Path(tl.__file__).parent
FILES = {module.rpartition(".")[2] for module in registry.MODULES.values()}
ROOMS = ("kinds", "kernels/python/flat/kinds", "kernels/native/lowering/states", "kernels/iterate/kinds")

MODULES = {f"timelapse.{room.replace('/', '.')}.{name}" for room in ROOMS for name in FILES}
PROGRAMS = {
    "cli/demo_programs/antispam.py": {"Counter", "Set"},
    "cli/demo_programs/collegemsg.py": {"Counter", "Set"},
    "compare/enforcing.py": {"Value"},
    "kernels/rehearsal.py": {"Counter", "Max", "Set", "Value"},
    "synth/company.py": {"Counter", "SetOf", "Value"},
}
"""Who names kinds because it has a program of its own, or writes one."""
WORDS = {
    "cli/codes.py",
    "cli/codes_of_programs.py",
    "cli/kinds_page.py",
    "cli/trace_commands.py",
    "program/declare.py",
    "program/failure.py",
}
"""Who tells users how programs are written, with examples."""
ABOUT_STATES = (
    "analysis",
    "cache",
    "engine",
    "kernels",
    "kinds",
    "model",
    "plan",
    "program",
    "results",
    "run",
    "tables",
    "trace",
)
"""Rooms in which a name that is made of a kind's is that kind's; elsewhere a mean or a counter may be anything."""
PLAIN = {"Set", "Value", "Max", "Min", "First", "Last", "Sum", "Recent", "Distinct", "Decayed"}
"""Kinds whose names are words that names of functions are made of otherwise."""

GIVERS = {"timelapse", "timelapse.kinds", "timelapse.kinds.registry", *MODULES}
_NAMES = "|".join(registry.MODULES)
_IN_TEXT = re.compile(rf"\b(?:tl|timelapse|registry)\.({_NAMES})\b|^({_NAMES})$|\b((?:Set|Map|List)Of)\b")
_IN_PATH = re.compile(rf"({'|'.join(map(re.escape, MODULES))})\b")
_IN_NAME = re.compile(rf"_({'|'.join(kind.lower() for kind in set(registry.MODULES) - PLAIN)})s?_")


def _named(tree: ast.AST, *, about_states: bool = True) -> Iterator[str]:
    """The kinds that a module names: imported, as attributes, in texts that are no docstrings, and in names of functions and
    classes; and what else it takes from the files of kinds."""
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names) if module in GIVERS:
                own = module in MODULES
                for alias in names:
                    if own or alias.name in registry.MODULES or f"{module}.{alias.name}" in MODULES:
                        yield alias.name
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in MODULES)
            case ast.Attribute(value=ast.Name(id="tl" | "timelapse" | "registry"), attr=attr):
                if attr in registry.MODULES:
                    yield attr
            case ast.Constant(value=str(text)) if id(node) not in said:
                yield from (next(filter(None, found.groups())) for found in _IN_TEXT.finditer(text))
                yield from (found[0] for found in _IN_PATH.finditer(text))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if about_states:
                words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
                if _IN_NAME.search(f"_{words}_"):
                    yield name


def test_no_other_file_names_a_kind() -> None:
    found = {}
    for path in SRC.rglob("*.py"):
        place = path.relative_to(SRC)
        own = place.parent.as_posix() in ROOMS and (place.stem in FILES or place.name == "registry.py")
        if own or place.as_posix() in WORDS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if names := set(_named(tree, about_states=place.parts[0] in ABOUT_STATES)):
            found[place.as_posix()] = names
    assert found == PROGRAMS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from timelapse.kinds.sum import Sum, units_of", {"Sum", "units_of"}),
        ("from timelapse.kinds import sum, Set", {"sum", "Set"}),
        ("import timelapse.kinds.mean", {"timelapse.kinds.mean"}),
        ("from timelapse import First", {"First"}),
        ("import timelapse as tl\nkinds = (tl.Max, tl.Event)", {"Max"}),
        ("spec.kind.__name__ in ('Set', 'x') or 'no'", {"Set"}),
        ("WORDS = {'Counter': 'added up'}", {"Counter"}),
        ("hint = f'use tl.Sum or {x}, not a SetOf'", {"Sum", "SetOf"}),
        ("def list_means(): pass", {"list_means"}),
        ("class CounterRows: pass", {"CounterRows"}),
        ("def meant_by(): 'Of a Counter or tl.Mean.'", set()),
    ],
)
def test_the_search_finds_names(text: str, names: set[str]) -> None:
    assert set(_named(ast.parse(text))) == names


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
