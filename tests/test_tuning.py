"""Thresholds are handed down: no test reaches into a module for a number, and no module sets what belongs to another one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NAME = re.compile(r"_?[A-Z][A-Z_0-9]*")
_OTHERS = re.compile(
    r"\b[sd]el?t?attr\(|^ *(?!self\b|cls\b)[a-z_]\w*\.\w+(, [\w.]+)*(: .*)? \S?= |^ *del (?!self\b)\w+\.",
    re.MULTILINE,
)
"""What an attribute of something that is not the object itself is set by."""
_SETTING = re.compile(r"setattr\(|^ *\w+\._?[A-Z][A-Z_0-9]* \S?= ", re.MULTILINE)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def _modules() -> dict[str, Path]:
    """The package's modules by name."""
    src = ROOT / "src"
    return {
        ".".join(path.relative_to(src).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((src / "timelapse").rglob("*.py"))
    }


def _bound(tree: ast.Module) -> dict[str, str]:
    """The names that stand for modules of the package, or of others, by imports anywhere in a file."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.split(".")[0]
                found[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if f"{node.module}.{alias.name}" in _modules():
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is made of numbers alone, or is a tuple of such."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(_is_number, node.elts))


@cache
def _numbers(module: str) -> frozenset[str]:
    """The constants of a module that are numbers: its own, and those that it imports by name."""
    if module not in _modules():
        return frozenset()
    found = set()
    for node in _tree(_modules()[module]).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module != module:
            names = {alias.asname or alias.name for alias in node.names if _NAME.fullmatch(alias.name)}
            found |= names & _numbers(node.module) if names else set()
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            found |= {t.id for t, v in pairs if isinstance(t, ast.Name) and _is_number(v)}
    return frozenset(n for n in found if _NAME.fullmatch(n))


def _functions(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The functions of a file and of its classes, with what is in them, and its other statements."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body)
        else:
            yield node


def _patched(path: Path) -> Iterator[tuple[str, str]]:
    """The modules, and numbers of theirs, that a test file sets: by monkeypatch or plainly, also by names of a loop or of parameters."""
    if not _SETTING.search(path.read_text(encoding="utf-8")):
        return
    bound = _bound(_tree(path))
    for function in _functions(_tree(path).body):
        nodes = list(ast.walk(function))
        words = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name):
                    yield bound.get(node.value.id, ""), node.attr
            elif isinstance(node, ast.Call) and len(node.args) > 1 and _called(node) == "setattr":
                owner, name = node.args[:2]
                names = [str(name.value)] if isinstance(name, ast.Constant) else words
                if isinstance(owner, ast.Constant):
                    module, _, attribute = str(owner.value).rpartition(".")
                    yield module, attribute
                elif isinstance(owner, ast.Name):  # or one of several modules
                    for module in [bound[owner.id]] if owner.id in bound else set(bound.values()):
                        yield from ((module, word) for word in names)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def test_no_test_sets_a_number_of_a_module() -> None:
    found = {
        (module.removeprefix("timelapse."), name)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for module, name in _patched(path)
        if name in _numbers(module)
    }
    still = {module: names for numbers in _STILL.values() for module, names in numbers.items()}
    assert found == {(module, name) for module, names in still.items() for name in names.split()}


def test_no_module_sets_what_belongs_to_another() -> None:
    """Nor by `setattr`. The interpreter's own are what a process is given: its path, and where it writes."""
    found = []
    for module, path in _modules().items():
        if not _OTHERS.search(path.read_text(encoding="utf-8")):
            continue
        bound = _bound(_tree(path))
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.Attribute | ast.Call):
                continue
            owner: ast.expr | None = None
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                owner = node.value
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("setattr", "delattr")
            ):
                owner = node.args[0]
            if isinstance(owner, ast.Name) and bound.get(owner.id, "sys") != "sys":
                found.append(f"{module}:{node.lineno} sets an attribute of {bound[owner.id]}")
    assert found == []


_SETS = {
    "cli.lean": "numpy's libraries read it while they load",
    "env.spark_session": "Spark's JVM and its workers get it, and it is put back",
}
"""Modules that write to the environment, for processes or libraries that read it when they begin."""


def test_the_environment_steers_no_module() -> None:
    writing = re.compile(r"environ(\[[^\]]*\] = |\.(setdefault|update|pop|clear)\()|putenv\(")
    found = {
        module.removeprefix("timelapse.")
        for module, path in _modules().items()
        if writing.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(_SETS)


_STILL: dict[str, dict[str, str]] = {
    "what a question does: a run hands down the thresholds of its kernels alone": {
        "kernels.walk": "_TOLD",
        "trace.columns": "_PIECE",
        "trace.few": "_OFTEN",
        "trace.focus": "MOST",
        "trace.likely": "_FEW _GUESSES _NEAR",
        "trace.matter": "_LONG _MOST _ROUNDS",
        "trace.moments": "LEAST _COMPILER _PATIENCE",
        "trace.passing": "_CLOSER _EVENLY _LIKELY _NEAR _TAIL",
        "trace.pieces": "_MOST _SHARED",
        "trace.thin": "LEAST _SHARE",
        "trace.writers": "_CLOSER _EVENLY _LEAST _STOPS",
    },
    "what a live run waits for, and how much it holds, beside what users set": {
        "store.waiting": "_FIRST _LAST",
        "streaming.chain": "_BRIEF",
        "streaming.choosing": "SMALL_SECONDS",
        "streaming.head": "FORGOTTEN",
        "streaming.loop": "GROWN_ROWS MOST_ROWS _AGAIN _BEHIND",
        "streaming.recovery": "PIECE_ROWS SLICED_ROWS",
        "streaming.saving": "_WHOLE_AFTER",
        "streaming.serve.app": "STALLED",
        "streaming.serve.asking": "_LOOK",
        "streaming.sinks.base": "_PAUSES",
        "streaming.sinks.kafka": "_FIRST_WAIT _LOOK_BACK",
        "streaming.sliced": "SLICED_ROWS",
        "streaming.sources.follow": "_READ",
        "streaming.sources.kafka": "_WAIT",
        "streaming.sources.kafka_spark": "_PAUSE",
        "streaming.sources.postgres": "_MOST_ROWS",
        "streaming.sources.push": "LOOK",
        "streaming.sources.sent_ids": "REMEMBERED SEGMENTS _READ",
    },
    "the layout of stored logs, which all that write one share": {
        "ingest.late": "BLOCK_EVENTS SEGMENT_EVENTS",
        "ingest.prepare": "BIN_BYTES",
        "ingest.records": "MOST",
        "ingest.runs": "RANGE_BYTES RUN_BYTES SEGMENT_EVENTS",
        "ingest.task": "BLOCK_BYTES BLOCK_EVENTS SEGMENT_EVENTS",
        "segments.periods": "MOST",
        "segments.segment": "BLOCK_EVENTS SEGMENT_EVENTS _HANDED_OVER",
    },
    "sizes of the pieces in which arrays, tables and files are gone through: only speed and memory depend on them": {
        "engine.exchange": "SHUFFLE_BYTES _PIECE_ROWS",
        "engine.portions": "LEAST",
        "frames.portions": "PORTION_BYTES",
        "kernels.native.memory.blocks": "LARGE _MOST",
        "kernels.native.memory.gathering": "WORTH_THREADS _PART",
        "kernels.native.memory.strings": "PIECE",
        "kernels.native.memory.table": "_PIECE",
        "kernels.python.rowlog": "BLOCK _LEAST",
        "tables.lookup": "_AT_ONCE",
        "tables.merge": "RANGE_ROWS",
        "tables.rowhash": "_BLOCK _SHORT_WORDS",
    },
    "bounds of user code that runs on what may be wrong, and samples of it": {
        "kernels.budget": "ROUNDS SECONDS _AGAIN",
        "kernels.iterate.repair": "FEWEST",
        "kernels.iterate.sweep": "COMPILED_ROWS",
        "kernels.native.computed": "ALL_SECONDS ROW_SECONDS",
        "run.twice": "SAMPLE",
        "run.verify": "AT_LEAST",
    },
    "what comparisons hold in memory": {
        "compare.by_parts": "FEWEST GROUP_ROWS NUMBERS _FEW_ROWS",
        "compare.causes": "_LONGEST",
        "compare.engines": "SPARK_ROWS",
    },
    "how long people wait before they are told something": {
        "cli.progress_view": "_PATIENCE",
        "progress.notebook": "_EVERY_SECONDS _FIRST_SECONDS",
        "progress.patience": "_PATIENCE",
    },
    "what is no threshold: numbers of steps, bounds in machine code, what is kept beside a program": {
        "env.spark_classes": "_ROOM",
        "kernels.native.lowering.steady": "LIMIT MOST",
        "kernels.takeout.steplog": "GAP",
        "program.kept": "_MOST_FILES",
    },
}
"""The numbers that tests set, by the reason why nothing hands them down."""
