"""Claims about the structure: dependencies run one way, Spark stays in its files, imports stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from timelapse.code.cfg import components
from timelapse.code.source import all_nodes, statements

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
PACKAGE = SRC / "timelapse"

# From what all stand on (top) to the command line, folders and single modules. A module may import its own layer and those above it.
LAYERS: list[set[str]] = [
    {"errors", "ids", "moments", "depth", "kept", "decoding"},
    {"store"},
    {"display", "charts", "cards", "progress"},
    {"env"},
    {"code", "model"},
    {"kinds"},
    {"program"},
    {"serial", "observed"},
    {"tables", "divergence"},
    {"analysis"},
    {"plan"},
    {"explanation"},
    {"segments"},
    {"ingest"},
    {"log"},
    {"kernels"},
    {"engine"},
    {"cache"},
    {"results"},
    {"trace", "frames"},
    {"run", "synth"},
    {"testing"},
    {"compare", "streaming", "training", "checks"},
    {"reporting"},
    {"cli", "__main__"},
]
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}


class Import(NamedTuple):
    """An import statement: the module it stands in, its line, the module imported, the names taken from it."""

    module: str
    line: int
    target: str
    names: tuple[str, ...]


@cache
def _modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((SRC / "timelapse").rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def _imports(module: str, path: Path, *, types: bool = False) -> list[Import]:
    """All imports, those inside functions too; `types`: those that only type checkers see, too."""

    def walk(node: ast.AST) -> Iterator[Import]:
        if not types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            yield from (Import(module, node.lineno, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            assert node.module is not None
            yield Import(module, node.lineno, node.module, tuple(alias.name for alias in node.names))
        for within in ("body", "handlers", "cases", "orelse", "finalbody"):
            found = getattr(node, within, None)
            if isinstance(found, list):  # statements: a lambda's body is none
                for child in found:
                    yield from walk(child)

    return list(walk(_tree(path)))


def _level(module: str) -> int | None:
    """The layer of `timelapse.a.b`: that of `a`."""
    parts = module.split(".")[1:]
    return LEVELS.get(parts[0]) if parts else None


_DOOR = "timelapse"
"""It offers names of all layers, and loads them when they are used."""


def _violations(imports: list[Import]) -> Iterator[str]:
    for one in imports:
        if one.target.split(".")[0] != "timelapse" or one.module == _DOOR:
            continue
        here = _level(one.module)
        assert here is not None, f"{one.module} is in no layer: add it to LAYERS"
        for target in [one.target, *(f"{one.target}.{name}" for name in one.names)]:
            level = _level(target)
            if target == "timelapse":
                if set(one.names) - {"__version__"} and all(
                    _level(f"timelapse.{n}") is None for n in one.names
                ):
                    yield f"{one.module}:{one.line} imports the package as users do"
            elif level is not None and level > here:
                yield f"{one.module}:{one.line} imports {target}, which is below it"


def test_dependencies_run_one_way() -> None:
    """No module imports from a lower layer, not even inside a function or for type checkers only."""
    found = (_imports(module, path, types=True) for module, path in _modules())
    assert [v for imports in found for v in _violations(imports)] == []


def test_a_layer_has_whole_folders() -> None:
    """Each folder, and each module beside the folders, is in exactly one layer."""
    found = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert sorted(name for names in LAYERS for name in names) == sorted(found - {"__init__"})


def _within(folder: str, module: str) -> str | None:
    """Which of a folder's modules and folders a module is, or is in; None: it is not in the folder, or the folder's `__init__`."""
    inside = module.removeprefix(f"{folder}.")
    return inside.split(".")[0] if inside != module else None


def _circles(folder: str, imports: list[Import]) -> list[set[str]]:
    """What of a folder imports one another: those circles of its modules and folders in which a folder is."""
    modules = dict(_modules())
    graph: dict[str, list[str]] = {}
    for one in imports:
        names = [f"{one.target}.{name}" for name in one.names]
        for target in [n if n in modules else one.target for n in names] or [one.target]:
            here, there = _within(folder, one.module), _within(folder, target)
            if here is not None and there is not None and here != there:
                graph.setdefault(here, []).append(there)
                graph.setdefault(there, [])
    return [
        set(part) for part in components(graph)
        if len(part) > 1 and any(modules.get(f"{folder}.{name}", _FILE).name == "__init__.py" for name in part)
    ]  # fmt: skip


_FILE = Path("file.py")
_FOLDERS = sorted(module for module, path in _modules() if path.name == "__init__.py")


def test_no_folders_import_one_another() -> None:
    """All imports count, those inside functions and for type checkers too."""
    imports = [i for module, path in _modules() for i in _imports(module, path, types=True)]
    found = {folder: _circles(folder, imports) for folder in _FOLDERS}
    assert {folder: circles for folder, circles in found.items() if circles} == {}


def test_circles_of_folders_are_found() -> None:
    def imports(module: str, target: str, *names: str) -> Import:
        return Import(f"timelapse.{module}", 1, f"timelapse{target}", names)

    there, back = imports("plan.plan", ".analysis.result", "Analysis"), imports("analysis.keys", "", "plan")
    assert _circles("timelapse", [there]) == _circles("timelapse.plan", [there, back]) == []
    assert _circles("timelapse", [there, back]) == [{"plan", "analysis"}]
    round_about = [imports("serial", ".plan.plan"), imports("analysis.keys", ".serial", "run")]
    assert _circles("timelapse", [there, *round_about]) == [{"plan", "analysis", "serial"}]


@pytest.mark.parametrize(
    ("module", "code", "wrong"),
    [
        ("timelapse.serial", "from timelapse.engine import driver", True),
        ("timelapse.serial", "def f():\n    import timelapse.plan", True),
        ("timelapse.kinds.base", "from timelapse.program import program", True),
        ("timelapse.kinds.base", "from timelapse.model.types import INT", False),
        ("timelapse.log.log", "import timelapse as tl\nfrom timelapse import Run", True),
        ("timelapse.segments.manifest", "from timelapse.ingest.source import Source", True),
        ("timelapse.log.log", "from timelapse.ingest.write import write_log", False),
        ("timelapse.log.log", "from timelapse import __version__", False),
        ("timelapse.log.log", "if TYPE_CHECKING:\n    from timelapse.run import Run", True),
        ("timelapse.run.run", "from timelapse.engine.driver import x", False),
    ],
)
def test_the_direction_test_can_fail(tmp_path: Path, module: str, code: str, wrong: bool) -> None:
    """Planted imports are judged as they should be."""
    path = tmp_path / "planted.py"
    path.write_text(code)
    assert bool(list(_violations(_imports(module, path, types=True)))) is wrong


def test_spark_is_imported_only_in_files_named_so() -> None:
    """Modules that import pyspark say `spark` in their file name."""
    wrong = [
        f"{one.module}:{one.line}"
        for module, path in _modules()
        for one in _imports(module, path)
        if one.target.split(".")[0] in ("pyspark", "py4j") and "spark" not in path.name
    ]
    assert wrong == []


def test_what_is_not_installed_is_imported_by_its_door_only() -> None:
    """The package needs nothing of a checkout: `timelapse bench` alone looks there for the benchmarks."""
    wrong = [
        f"{one.module}:{one.line} imports {one.target}"
        for module, path in _modules()
        for one in _imports(module, path)
        if one.target.split(".")[0] in ("benchmarks", "tests", "examples")
        and one.module != "timelapse.cli.bench_command"
    ]
    assert wrong == []


def _is_matplotlib(one: Import) -> bool:
    return one.target.split(".")[0] in ("matplotlib", "pylab", "mpl_toolkits")


def test_one_room_draws() -> None:
    """Charts are described and drawn in charts/: matplotlib is one of its two ways to draw them."""
    drawing = {i.module for m, p in _modules() for i in _imports(m, p, types=True) if _is_matplotlib(i)}
    assert drawing == {"timelapse.charts.drawn"}


@pytest.mark.parametrize(
    "code",
    ["def f():\n    from matplotlib.figure import Figure", "if TYPE_CHECKING:\n    import matplotlib as m"],
)
def test_drawing_elsewhere_is_found(tmp_path: Path, code: str) -> None:
    path = tmp_path / "planted.py"
    path.write_text(code)
    assert [_is_matplotlib(i) for i in _imports("planted", path, types=True)] == [True]


def test_modules_stay_small() -> None:
    """No module has more than 500 lines, of the benchmarks neither."""
    paths = [*(path for _, path in _modules()), *(ROOT / "benchmarks").rglob("*.py")]
    sizes = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in paths}
    assert {m: n for m, n in sizes.items() if n > 500} == {}


# --- classes ----------------------------------------------------------------------------------------------

LARGEST_CLASS = 599
"""Lines, with those of the classes of the project that it inherits from."""


class _Classes:
    """The classes of some modules, by module and name, with the classes that they inherit from; and those that are known already, which
    inherit from none of these."""

    def __init__(self, modules: list[tuple[str, Path]], known: _Classes | None = None) -> None:
        self.found: dict[tuple[str, str], ast.ClassDef] = {}
        self._imported: dict[tuple[str, str], tuple[str, str]] = {}
        self._all: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._private: dict[tuple[str, str], set[str]] = {}
        if known is not None:
            self.found |= known.found
            self._imported |= known._imported
            self._all |= known._all
            self._private |= known._private
        for module, path in modules:
            for node in statements(_tree(path)):
                if isinstance(node, ast.ClassDef):
                    self.found[module, node.name] = node
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    for alias in node.names:
                        self._imported[module, alias.asname or alias.name] = (node.module, alias.name)

    def _named(self, module: str, name: str) -> tuple[str, str] | None:
        """The class that a name means in a module, which may have it from another that has it from a third."""
        place: tuple[str, str] | None = (module, name)
        while place is not None and place not in self.found:
            place = self._imported.get(place)
        return place

    def _bases(self, place: tuple[str, str]) -> Iterator[tuple[str, str]]:
        module, _ = place
        for base in self.found[place].bases:
            node = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                own = self._imported.get((module, node.value.id))
                found = None if own is None else self._named(".".join(own), node.attr)
            else:
                found = self._named(module, node.id) if isinstance(node, ast.Name) else None
            if found is not None:
                yield found

    def all_of(self, place: tuple[str, str]) -> set[tuple[str, str]]:
        """A class and all those it inherits from."""
        if place not in self._all:
            self._all[place] = {place}.union(*(self.all_of(base) for base in self._bases(place)))
        return self._all[place]

    def private(self, place: tuple[str, str]) -> set[str]:
        """The private names of a class: its methods, and what it uses of itself."""
        if place not in self._private:
            self._private[place] = _own(self.found[place])
        return self._private[place]

    def lines(self, place: tuple[str, str]) -> int:
        """How many lines a class has, with what it inherits."""
        return sum(
            (n.end_lineno or 0) - n.lineno + 1 for n in map(self.found.__getitem__, self.all_of(place))
        )


@pytest.fixture(scope="module")
def classes() -> _Classes:
    return _Classes(_modules())


def test_classes_stay_small(classes: _Classes) -> None:
    """No class has 600 lines or more with what it inherits: what is larger is given parts."""
    large = {".".join(place): n for place in classes.found if (n := classes.lines(place)) > LARGEST_CLASS}
    assert large == {}


def test_what_a_class_inherits_counts(tmp_path: Path) -> None:
    """By import, by a module's name, with parameters and through a third module."""
    texts = {
        "a": "class A:\n    x = 1\n    y = 2\n",
        "b": "from a import A as Z\nfrom p import a\nclass B(Z, list):\n    pass\nclass C(a.A):\n    pass\n",
        "c": "from b import B, Z\nclass D(B[int], Z):\n    pass\n",
        "p.a": "class A:\n    x = 1\n",
    }
    modules = []
    for name, text in texts.items():
        modules.append((name, tmp_path / f"{name}.py"))
        modules[-1][1].write_text(text)
    classes = _Classes(modules)
    places = (("a", "A"), ("b", "B"), ("b", "C"), ("c", "D"))
    assert [classes.lines(place) for place in places] == [3, 5, 4, 7]


@pytest.mark.parametrize("heavy", ["pyspark", "numba", "pandas", "typer"])
def test_importing_timelapse_stays_light(heavy: str) -> None:
    """`import timelapse`, and defining a program, load neither Spark nor a compiler."""
    code = (
        "import sys, timelapse as tl\n"
        "class E(tl.Event):\n    x: int\n"
        f"sys.exit(any(m == {heavy!r} or m.startswith({heavy + '.'!r}) for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_units_of_time_are_there_without_being_asked_for() -> None:
    """Handlers name them, and what looks at handlers looks them up without running a module's `__getattr__`."""
    code = (
        "import timelapse, sys; sys.exit(not {'SECOND', 'MINUTE', 'HOUR', 'DAY'} <= vars(timelapse).keys())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what is said of the layout is true -----------------------------------------------------------------

_NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_]+\.py|(?:[a-z_]+/)+)`")


def test_the_native_compiler_reads_no_code_by_regular_expressions() -> None:
    """What a statement does is said by its node (form.py). `guess.py` and `closing.py` know what handlers call."""
    lowering = PACKAGE / "kernels" / "native" / "lowering"
    reading = {
        i.module for m, p in _modules() if lowering in p.parents for i in _imports(m, p) if i.target == "re"
    }
    assert reading == {f"timelapse.kernels.native.lowering.{name}" for name in ("closing", "guess")}


_RENAMING = {
    "os": ("rename", "renames", "replace", "link", "fsync", "fdatasync"),
    "shutil": ("move",),
}


def _renames(tree: ast.Module) -> Iterator[str]:
    """Where a module gives files or folders other names, or makes them durable. `replace` of a text has two arguments, of a path one."""
    for n in all_nodes(tree):
        if isinstance(n, ast.ImportFrom) and n.module in _RENAMING:
            yield from (a.name for a in n.names if a.name in _RENAMING[n.module])
        elif isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name):
            if n.attr in _RENAMING.get(n.value.id, ()):
                yield ast.unparse(n)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute):
            one = len(n.args) == 1 and not n.keywords and ast.unparse(n.func.value) != "msgspec.structs"
            if n.func.attr in ("hardlink_to", "renameat2") or (one and n.func.attr in ("rename", "replace")):
                yield ast.unparse(n)


def test_what_is_durable_stands_on_the_store() -> None:
    """Outside of store/ nothing renames, links or syncs by itself: what that promises is said, and tested with kills, once."""
    wrong = {
        m: found for m, p in _modules() if not m.startswith("timelapse.store") and (found := list(_renames(_tree(p))))
    }  # fmt: skip
    assert wrong == {}


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("os.replace(a, b)", True),
        ("from os import rename as put", True),
        ("call = os.rename", True),
        ("shutil.move(a, b)", True),
        ("(folder / 'a').rename(folder / 'b')", True),
        ("made.replace(path)", True),
        ("path.hardlink_to(other)", True),
        ("os.fsync(file.fileno())", True),
        ("text.replace('a', 'b'); dataclasses.replace(x, a=1); msgspec.structs.replace(x)", False),
        ("move([(a, b)]); put_folder(a, b); array.move(a)", False),
    ],
)
def test_the_test_of_renames_can_fail(code: str, wrong: bool) -> None:
    assert bool(list(_renames(ast.parse(code)))) is wrong


PROCESS_WIDE = {
    "cli.quiet": "the line under which a command's terminal is silent",
    "depth": "the room on the stack",
    "env.garbage": "Python's garbage collector",
    "env.master": "the master of the session that a command has this process start",
    "env.spark_start": "that session, while it starts",
    "model.resource": "whether what is pickled is on its way to other processes",
    "store.fetched": "how much was copied since old copies were looked for",
    "tables.loops": "loops over arrays, once they are compiled: they give the same",
}
"""What a module keeps for the whole process in a variable that it changes. Nothing else does: settings are handed down."""


def _globals(tree: ast.Module) -> bool:
    return any(isinstance(n, ast.Global) for n in statements(tree))


_SETTING = ("putenv", "unsetenv", "pop", "setdefault", "update", "clear")


def _sets_environment(tree: ast.Module) -> bool:
    """Whether a module changes variables of the environment of this process."""
    for n in all_nodes(tree):
        if (
            isinstance(n, ast.Subscript)
            and not isinstance(n.ctx, ast.Load)
            and "os.environ" in ast.unparse(n)
        ):
            return True
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in _SETTING:
            if ast.unparse(n.func.value) in ("os", "os.environ"):
                return True
    return False


def test_no_module_steers_another_by_globals_or_the_environment() -> None:
    """Only what others take from there is put into the environment: Spark's Java and Python, the threads of OpenBLAS."""
    assert {m.removeprefix("timelapse.") for m, p in _modules() if _globals(_tree(p))} == set(PROCESS_WIDE)
    setting = {m.removeprefix("timelapse.") for m, p in _modules() if _sets_environment(_tree(p))}
    assert setting == {"cli.lean", "env.spark_session"}


@pytest.mark.parametrize(
    "code",
    [
        "os.environ['A'] = '1'",
        "del os.environ['A']",
        "os.environ.setdefault('A', '1')",
        "os.putenv('A', '1')",
    ],
)
def test_changes_of_the_environment_are_found(code: str) -> None:
    assert _sets_environment(ast.parse(f"import os\n{code}"))
    assert not _sets_environment(
        ast.parse("import os\nx = {**os.environ}['A'] + os.environ.get('A', '') + os.environ['A']")
    )


OF_PROGRAMS = {
    ("timelapse.kinds.base", "State"), ("timelapse.kinds.past", "Window"), ("timelapse.model.events", "_Row"),
}  # fmt: skip
"""Classes on which names without an underscore are those of programs: fields, and what states can do. Ours have one."""


def _private(module: str, tree: ast.Module, classes: _Classes, rooms: tuple[str, ...]) -> Iterator[str]:
    """What a module of these rooms uses that is private elsewhere: of what it inherits, and of other objects."""
    given = {"_replace", "_getframe"}  # of named tuples, and of sys
    for place in classes.found:
        if classes.all_of(place) & OF_PROGRAMS:
            given |= classes.private(place)
        if place[0] == module:
            theirs = {b for b in classes.all_of(place) if not b[0].startswith(rooms)}
            inherited = set[str]().union(*map(classes.private, theirs))
            yield from (f"{module}.{place[1]}: {n}" for n in sorted(classes.private(place) & inherited))
    here = set[str]().union(*(_own(n) for n in statements(tree) if isinstance(n, ast.ClassDef)))
    for n in all_nodes(tree):
        if isinstance(n, ast.Attribute) and _is_private(n.attr) and not _is_self(n.value):
            if n.attr not in given | here:
                yield f"{module}:{n.lineno}: {ast.unparse(n)}"


def _own(node: ast.ClassDef) -> set[str]:
    """The private names of a class: its methods, and what it uses of itself."""
    found = {n.attr for n in all_nodes(node) if isinstance(n, ast.Attribute) and _is_self(n.value)}
    found |= {n.name for n in statements(node) if isinstance(n, ast.FunctionDef)}
    return {name for name in found if _is_private(name)}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _is_self(node: ast.expr) -> bool:
    """Whether it is `self` or `super()`."""
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Name) and name.id in ("self", "super", "cls")


def test_questions_use_nothing_private(classes: _Classes) -> None:
    """Who asks about a run does so by what the loop and the kernels offer: their private parts can be tidied."""
    rooms = ("timelapse.trace", "timelapse.explanation")
    wrong = [
        found for module, path in _modules() if module.startswith(rooms)
        for found in _private(module, _tree(path), classes, rooms)
    ]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("class A(Loop):\n    def f(self):\n        return self._journal", True),
        ("class A(Loop):\n    def f(self):\n        return self.states", False),
        ("class A(Loop):\n    def _undo(self):\n        pass", True),
        ("def f(loop):\n    return loop._agenda", True),
        ("def f(state, event):\n    return state._get, event._at(1, 2)", False),
        ("class A:\n    def f(self, other):\n        self._x = other._x", False),
    ],
)
def test_the_test_of_private_names_can_fail(
    tmp_path: Path, classes: _Classes, code: str, wrong: bool
) -> None:
    path = tmp_path / "planted.py"
    path.write_text("from timelapse.serial import Loop\n" + code)
    classes = _Classes([("timelapse.trace.planted", path)], classes)
    tree = ast.parse(path.read_text())
    assert bool(list(_private("timelapse.trace.planted", tree, classes, ("timelapse.trace",)))) is wrong


def test_files_that_are_named_exist() -> None:
    """In docs/architecture.md, and in the guides that rooms begin with."""
    wrong = []
    for page in ("docs/architecture.md", "CONTRIBUTING.md"):
        for name in _NAMED.findall((ROOT / page).read_text(encoding="utf-8")):
            places = [
                ROOT / name,
                PACKAGE / name,
                *PACKAGE.glob(f"streaming/*/{name}"),
                PACKAGE / "reporting" / name,
            ]
            if not any(place.exists() for place in places):
                wrong.append(f"{page}: {name}")
    guides = list(PACKAGE.rglob("__init__.py"))
    for file in guides:
        doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        wrong += [
            f"{file.relative_to(SRC)}: {name}" for name in _NAMED.findall(doc)
            if not any((place / name).exists() for place in (file.parent, PACKAGE, PACKAGE.parent.parent))
        ]  # fmt: skip
    assert not wrong


def test_every_room_is_in_the_table() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rooms = [p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()]
    table = text[text.index("## The rooms") : text.index("## Where a change goes")]
    assert [room for room in rooms if f"`{room}/`" not in table] == []
