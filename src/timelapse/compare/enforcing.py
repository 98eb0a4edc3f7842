"""Counterfactuals: what a program would have put out, had its flags been enforced on the very same events.

Two meanings, by name:

- `"event"`: a flagged event is rejected at its first flag, and that record is kept: what a gateway does that blocks. What else
  the event did is undone, what would have come after the flag in it does not happen.
- a field KEY with a duration: a ban. When a record flags a key, later events with that key, until less than the duration has
  passed, are dropped whole, as if they had not been in the log. The flagged event itself stands.

The enforced program is an ordinary program, so its replay is exact and proves itself as any other: for `"event"` every
`self.emit(Flag(...))` is read as `self.reject(Flag(...))`; for a ban every one also writes until when the key is banned, and a
handler before all others rejects events with a banned key. That all flags were found in the text is checked afterwards
against what the run put out.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from timelapse.code.functions import remade
from timelapse.code.source import function_source
from timelapse.compare.differences import Diff, diff
from timelapse.errors import Place, UsageError, meant
from timelapse.ids import INT64_MIN, Phase
from timelapse.model.events import Event, Record
from timelapse.model.types import ScalarType
from timelapse.program.program import Program, as_program, params_of, spec_of
from timelapse.results.records import record_types
from timelapse.run.request import Engine
from timelapse.run.run import Run
from timelapse.run.start import replay

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from timelapse.progress import Progress

EVENT = "event"
WARNING = (
    "the same events under other rules, not what would have happened: people who are blocked behave differently, and so do"
    " those they would have met"
)
GATE, UNTIL, FOR, BANNED = "enforced_gate", "enforced_until", "enforced_for", "banned"
"""What a ban adds to a program: its first handler, a state, a parameter, and the reason of its rejections."""

_PLAIN = (
    ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load,
    ast.Tuple,
)  # fmt: skip
_KEYS = ("int", "str", "bool", "bytes")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Counterfactual:
    """What enforcing changes: `diff` has the factual run as A and the enforced one as B.

    `blocked` is the number of events that were blocked (or dropped, in a ban).
    """

    how: str
    diff: Diff
    blocked: int
    warning: str = WARNING

    def __repr__(self) -> str:
        return f"<Counterfactual {self.how}: {self.blocked:,} events blocked; {self.diff!r}>"


def what_if(
    program: Program | type[Program] | Run, log: Any, how: str, *, duration: int | None = None,
    flags: Sequence[str] = (), spark: SparkSession | Literal[False] | None = None, progress: Progress | None = None, engine: Engine = "auto",
    out: str | Path | None = None,
) -> Counterfactual:  # fmt: skip
    """Compare a program over a log with itself enforced. See `enforce`; `program` may be a finished run of it.

    `out` is the enforced run's folder. Raises what `enforce` and `tl.replay` raise, and UsageError (TL821) where a flag was
    put out by code that enforcing does not see.
    """
    base = program.need_program() if isinstance(program, Run) else as_program(program)
    chosen = _flags(base, flags)
    enforced = enforce(base, how, duration=duration, flags=flags)  # before work: it may refuse
    factual = (
        program
        if isinstance(program, Run)
        else replay(base, log, spark=spark, progress=progress, engine=engine)
    )
    run = replay(enforced, log, out, spark=spark, progress=progress, engine=engine)
    names = [c.__name__ for c in chosen]
    blocked = _blocked_events(run, names) if how == EVENT else _blocked_by_ban(run, names, how, duration or 0)
    where = engine if factual.path is not None and run.path is not None else "auto"
    return Counterfactual(how, diff(factual, run, engine=where, spark=spark), blocked)


def enforce(
    program: Program | type[Program], how: str, *, duration: int | None = None, flags: Sequence[str] = ()
) -> Program:
    """The program that enforces its own flags: `how` is `"event"`, or the field that names who is banned.

    `duration` (microseconds) is how long a ban lasts. `flags` names the record types that flag; by default the only one that
    the program puts out. For a ban these and at least one event type have the field. Raises UsageError (TL821) where
    a flag is put out in a way that enforcing cannot see through, or for programs that send events or are called later.
    """
    base = as_program(program)
    chosen = _flags(base, flags)
    _refuse_later(base)
    if (how == EVENT) != (duration is None):
        raise _cannot("a ban needs its length, and only a ban has one", hint="--enforce sender --for 30d")
    if duration is not None and duration <= 0:
        raise _cannot("a ban's length must be positive", hint="--for 30d")
    key = None if how == EVENT else how
    overrides = _overrides(type(base), chosen, key)
    if not overrides:
        raise _cannot(f"{spec_of(base).name} puts out no {' or '.join(c.__name__ for c in chosen)}")
    bases: tuple[type, ...] = (type(base),)
    params = params_of(base)
    if key is not None:
        bases = (type(base), _gate(base, chosen, key))
        params = {**params, FOR: duration}
    name = f"{type(base).__name__}_enforced"
    namespace = {
        "__module__": type(base).__module__,
        "__qualname__": name,
        "__doc__": type(base).__doc__,
        **overrides,
    }
    meta: Any = type(type(base))
    made: type[Program] = meta(name, bases, namespace)
    return made(**params)


def _flags(program: Program, names: Sequence[str]) -> list[type[Record]]:
    known = {cls.__name__: cls for cls in record_types(program)}
    for name in names:
        if name not in known:
            raise _cannot(
                f"{name} is no record type of {spec_of(program).name}",
                hint=f"{meant(name, known)}types: {', '.join(known)}",
            )
    if not names and len(known) != 1:
        raise _cannot(
            f"{spec_of(program).name} puts out {', '.join(known) or 'nothing'}: which of these flag?",
            hint="--flags " + (next(iter(known), "Spam")),
        )
    return [known[n] for n in names] if names else list(known.values())


def _refuse_later(program: Program) -> None:
    for handler in spec_of(program).handlers:
        if getattr(handler, "after", None) is not None:
            raise _cannot(f"{handler.name} is called later, also for events that are blocked", handler.place)
    for name, function in _methods(type(program)).items():
        if "send" in function.__code__.co_names:
            raise _cannot(f"{name} sends events: whether these are blocked too is not said", _place(function))


def _methods(cls: type) -> dict[str, types.FunctionType]:
    """The methods that calls by name find."""
    found = {}
    for base in cls.__mro__:
        if base is Program:
            continue
        for name in base.__dict__:
            value = inspect.getattr_static(cls, name)
            if isinstance(value, types.FunctionType):
                found[name] = value
    return found


# --- the text -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Edit:
    """In a line (from 1), from byte `start` to `end`: a new text."""

    line: int
    start: int
    end: int
    text: str


def _overrides(cls: type, flags: Sequence[type[Record]], key: str | None) -> dict[str, types.FunctionType]:
    """The methods that flag, rewritten."""
    methods = _methods(cls)
    if any("super" in f.__code__.co_names for f in methods.values()):
        for base in cls.__mro__[1:]:
            for name, value in base.__dict__.items():
                hidden = (
                    isinstance(value, types.FunctionType) and name in methods and methods[name] is not value
                )
                if hidden and base is not Program and _edits(value, flags, key):
                    raise _cannot(
                        f"{base.__name__}.{name} flags, and is overridden: super() would not be enforced",
                        _place(value),
                    )
    return {n: _rewritten(f, edits) for n, f in methods.items() if (edits := _edits(f, flags, key))}


def _edits(function: types.FunctionType, flags: Sequence[type[Record]], key: str | None) -> list[_Edit]:
    """How a method's text changes; empty where it does not flag."""
    if "emit" not in function.__code__.co_names and not any(
        isinstance(c, types.CodeType) and "emit" in c.co_names for c in function.__code__.co_consts
    ):
        return []
    source = function_source(function)
    if source.node is None:
        raise _cannot(f"{function.__name__} cannot be read: {source.problem}", _place(function))
    arguments = [*source.node.args.posonlyargs, *source.node.args.args]
    receiver = arguments[0].arg if arguments else ""
    statements = {id(n.value): n for n in ast.walk(source.node) if isinstance(n, ast.Expr)}
    edits = []
    for node in ast.walk(source.node):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="emit") as attribute) if (
                name == receiver
            ):
                place = Place(source.file, node.lineno, function.__qualname__)
                record, call = _record_of(function, node, place)
                if record not in flags:
                    continue
                statement = statements.get(id(node))
                if statement is None:
                    raise _cannot(
                        "a flag is put out inside an expression", place, "write self.emit(...) on its own"
                    )
                if key is None:
                    end = attribute.end_col_offset or 0
                    edits.append(_Edit(attribute.end_lineno or node.lineno, end - len("emit"), end, "reject"))
                else:
                    text = _key_text(record, call, key, place)
                    ban = f"{receiver}.{UNTIL}[{text}] = {receiver}.now + {receiver}.{FOR}; "
                    edits.append(_Edit(statement.lineno, statement.col_offset, statement.col_offset, ban))
    return edits


def _record_of(function: types.FunctionType, call: ast.Call, place: Place) -> tuple[type[Record], ast.Call]:
    """The record class that is emitted, and the call that makes it."""
    if len(call.args) == 1 and not call.keywords and isinstance(call.args[0], ast.Call):
        made = call.args[0]
        found = _resolve(function, made.func)
        if isinstance(found, type) and issubclass(found, Record):
            return found, made
    raise _cannot("what is put out here does not show in the text", place, "write self.emit(Spam(...))")


def _resolve(function: types.FunctionType, node: ast.expr) -> Any:
    if isinstance(node, ast.Attribute):
        return getattr(_resolve(function, node.value), node.attr, None)
    if not isinstance(node, ast.Name):
        return None
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name == node.id:
            return cell.cell_contents
    return None if node.id in function.__code__.co_varnames else function.__globals__.get(node.id)


def _key_text(record: type[Record], call: ast.Call, key: str, place: Place) -> str:
    """The expression that the record's key field is made of."""
    names = [f.name for f in record.__fields__]
    if key not in names:
        raise _cannot(
            f"{record.__name__} has no field {key}", place, f"{meant(key, names)}fields: {', '.join(names)}"
        )
    given: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    given.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    found = given.get(key)
    if found is None or not all(isinstance(n, _PLAIN) for n in ast.walk(found)):
        raise _cannot(f"{key} is no plain expression here", place, f"compute it before: {key} = ...")
    return ast.unparse(found)


def _rewritten(function: types.FunctionType, edits: Iterable[_Edit]) -> types.FunctionType:
    """The same function with an edited text: compiled as a whole file is, so that analysis finds its source."""
    file = inspect.getsourcefile(function) or function.__code__.co_filename
    lines = [t.encode() for t in linecache.getlines(file, function.__globals__)]
    for edit in sorted(edits, key=lambda e: (e.line, e.start), reverse=True):
        old = lines[edit.line - 1]
        lines[edit.line - 1] = old[: edit.start] + edit.text.encode() + old[edit.end :]
    text = b"".join(lines).decode()
    code = _find(compile(text, _remember(text, file), "exec", dont_inherit=True), function.__code__)
    made = remade(function, code)
    made.__annotations__, made.__doc__ = function.__annotations__, function.__doc__
    made.__dict__.update(function.__dict__)
    return made


def _remember(text: str, file: str) -> str:
    """A name under which the text is found again, as a file's would be."""
    name = f"<enforced {next(_numbers)}>/{file.lstrip('/')}"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return name


def _find(module: types.CodeType, like: types.CodeType) -> types.CodeType:
    todo = [module]
    while todo:
        for const in todo.pop().co_consts:
            if isinstance(const, types.CodeType):
                todo.append(const)
                same = (const.co_name, const.co_firstlineno) == (like.co_name, like.co_firstlineno)
                if same and const.co_freevars == like.co_freevars:
                    return const
    raise _cannot(
        f"{like.co_qualname} was not found in its file", Place(like.co_filename, like.co_firstlineno)
    )


_GATE = '''
class Gate(tl.Program):
    """Rejects events of a key that is banned."""

    {FOR}: int
    {UNTIL}: tl.Value[{kind}, int] = tl.state(default={never})

    @tl.on({events})
    def {GATE}(self, e):
        if self.{UNTIL}[e.{key}] > self.now:
            self.reject("{BANNED}")
'''


def _gate(program: Program, flags: Sequence[type[Record]], key: str) -> type[Program]:
    """A base class whose handler comes before all others."""
    import timelapse as tl

    if not key.isidentifier():
        raise _cannot(f"{key!r} is no field")
    listening: list[type[Event]] = [
        e for e in spec_of(program).events if any(f.name == key for f in e.__fields__)
    ]
    if not listening:
        names = sorted({f.name for e in spec_of(program).events for f in e.__fields__})
        raise _cannot(
            f"no event that {spec_of(program).name} listens to has a field {key}",
            hint=f"{meant(key, names)}fields: {', '.join(names) or 'none'}",
        )
    kinds = {f.type for cls in (*listening, *flags) for f in cls.__fields__ if f.name == key}
    kind = kinds.pop()
    if kinds or not isinstance(kind, ScalarType) or kind.text not in _KEYS:
        raise _cannot(f"{key} is not a key of one type in all events and records that have it")
    text = _GATE.format(
        FOR=FOR, UNTIL=UNTIL, GATE=GATE, BANNED=BANNED, key=key, kind=kind.text, never=INT64_MIN,
        events=", ".join(f"event_{n}" for n in range(len(listening))),
    )  # fmt: skip
    scope: dict[str, Any] = {"__name__": type(program).__module__, "tl": tl}
    scope.update({f"event_{n}": cls for n, cls in enumerate(listening)})
    exec(compile(text, _remember(text, "ban"), "exec", dont_inherit=True), scope)  # noqa: S102 the text above
    made: type[Program] = scope["Gate"]
    return made


# --- afterwards -----------------------------------------------------------------------------------------


def _blocked_events(run: Run, flags: Sequence[str]) -> int:
    """How many events were blocked. Raises UsageError where a flagged one was not."""
    rejected = run.stored_rejected()
    gone = set(zip(rejected.column("phase").to_pylist(), rejected.column("seq").to_pylist(), strict=True))
    flagged: set[tuple[int, int]] = set()
    for name in (n for n in flags if n in run.counts):
        table = run.stored(name)
        flagged |= set(zip(table.column("phase").to_pylist(), table.column("seq").to_pylist(), strict=True))
    if any(phase != Phase.LOG_EVENT for phase, _ in flagged):
        raise _cannot(
            "a flag stems from a tick: there is no event to block", hint="ban instead: --enforce FIELD --for"
        )
    if not flagged <= gone:
        raise _unseen(min(flagged - gone)[1])
    return len(flagged)


def _blocked_by_ban(run: Run, flags: Sequence[str], key: str, duration: int) -> int:
    """How many events were dropped. Raises UsageError where a flag banned nobody."""
    last: dict[Any, tuple[int, int]] = {}
    for name in (n for n in flags if n in run.counts):
        table = run.stored(name)
        ts = np.asarray(table.column("ts")).tolist()
        for k, t, seq in zip(table.column(key).to_pylist(), ts, table.column("seq").to_pylist(), strict=True):
            last[k] = max(last.get(k, (t, seq)), (t, seq))
    found: Mapping[Any, Any] = run.state_at_cut(UNTIL, run.slices)
    for k, (t, seq) in last.items():
        if found.get(k) != t + duration:
            raise _unseen(seq)
    return sum(h == GATE for h in run.rejected.column("handler").to_pylist())


def _unseen(seq: int) -> UsageError:
    return _cannot(
        f"the flag at event {seq} was put out by code that enforcing does not see",
        hint="emit flags in the program's own methods: self.emit(Spam(...))",
    )


def _place(function: types.FunctionType) -> Place:
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno, function.__qualname__)


def _cannot(message: str, place: Place | None = None, hint: str = "see docs/compare.md") -> UsageError:
    return UsageError(message, place=place, hint=hint, code="TL821")
