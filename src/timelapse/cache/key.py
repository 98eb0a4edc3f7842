"""The key of a core: a hash of everything that start states and resolved reads depend on.

That is: the log (its id covers types, events and positions) and where it is cut; the statements that
the core consists of, as they are compiled from source that was checked against the running code; all
functions, constants, closures, defaults and classes that these reach; the parameters they name; the
states' declarations; Python, and the Timelapse that interprets all this. Where the program reaches into other times also
which states are looked back on (that decides what is kept of them), delays and calendars, and how far the clock
goes on. What cannot be hashed for certain has no key.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timelapse.analysis import Analysis, build_pass
from timelapse.analysis.outputs import Site
from timelapse.analysis.result import PassProgram, Severity
from timelapse.program.calendar import zone_rules
from timelapse.program.fingerprint import Unsure, Writer, fingerprint
from timelapse.program.program import Program, params_of, spec_of
from timelapse.program.times import span_of

FORMAT = 1


@dataclass(frozen=True)
class CoreKey:
    """The key of a program's core over a log, or the reason why there is none."""

    text: str = ""
    reason: str = ""
    cuts: tuple[int, ...] = ()
    whole: str = ""
    """The key without the cuts."""
    until: int | None = None
    """How far the clock goes on after the last event."""
    core: str = ""
    """The key without log and cuts."""

    def of(self, *more: str) -> str:
        """The key of something that depends on the core and on this."""
        return hashlib.sha256("\0".join([self.text, *more]).encode()).hexdigest()

    def anywhere(self, *more: str) -> str:
        """The key of something that depends on the core and on this, whatever the log is."""
        return hashlib.sha256("\0".join([self.core, *more]).encode()).hexdigest()

    def at(self, cuts: Sequence[int]) -> CoreKey:
        """The key of the same core over the same log, cut in this way."""
        text = hashlib.sha256(f"{self.whole} {list(cuts)}".encode()).hexdigest()
        return CoreKey(text, "", tuple(cuts), self.whole, self.until, self.core)


def core_key(
    program: Program, analysis: Analysis, log_id: str | None, cuts: Sequence[int], until: int | None = None
) -> CoreKey:
    """The key of a program's core over a log that is cut at `cuts`; the clock goes on to `until`."""
    if log_id is None:
        return CoreKey(reason="the log is in memory: it has no identity")
    reason = refusal(analysis)
    if reason is not None:
        return CoreKey(reason=reason)
    core = build_pass(analysis, "core", tuple(analysis.spec.states), ())
    reason = _trusted(analysis, core)
    if reason is not None:
        return CoreKey(reason=reason)
    try:
        digest = _hashed(program, core).digest()
    except (Unsure, RecursionError) as unsure:
        return CoreKey(reason=f"its states depend on what cannot be hashed: {unsure}")
    end = "" if until is None or not analysis.spec.times else str(until)
    parts = [f"timelapse states {FORMAT}", software(), log_id, digest, end]
    whole, anywhere = (
        hashlib.sha256("\0".join(p).encode()).hexdigest() for p in (parts, [*parts[:2], *parts[3:]])
    )
    return CoreKey(whole=whole, until=until, core=anywhere).at(cuts)


def refusal(analysis: Analysis) -> str | None:
    """Why nothing of a program is kept, whatever the log; None where there is no such reason."""
    return uncertain(analysis) if analysis.spec.states else "the program has no states"


def uncertain(analysis: Analysis) -> str | None:
    """Why the hash of a program's code does not say for certain what it does; None where it may."""
    if analysis.opaque:
        return analysis.functions.opaque[0].message
    if (use := analysis.serial_only) is not None:
        return f"{use.text_of_what} ({use.place}) reaches into another time, and all runs by the serial loop"
    impure = [d for d in analysis.diagnostics if d.severity is Severity.ERROR]
    return f"it is not pure: {impure[0].message}" if impure else None


def _trusted(analysis: Analysis, core: PassProgram) -> str | None:
    """The reason, where the core makes a call that analysis cannot see through."""
    texts = [h.text for h in core.handlers]
    for member in core.members.values():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        texts.append(function.__dict__.get("__tl_text__", ""))
    for call in analysis.trusted:
        what = call.message.partition(" is trusted")[0]
        if any(what.partition(":")[0] in text for text in texts):
            return f"its states depend on {what}, which is trusted ({call.place})"
    return None


def core_parameters(program: Program, analysis: Analysis) -> list[str]:
    """The parameters that the states depend on; all of them where that cannot be said."""
    params = params_of(program)
    try:
        named = _hashed(program, build_pass(analysis, "core", tuple(analysis.spec.states), ())).names
    except (Unsure, RecursionError):
        return list(params)
    return [name for name in params if name in named]


def _hashed(program: Program, core: PassProgram) -> Writer:
    """The core's code and what it reaches, hashed. Raises Unsure."""
    spec = spec_of(program)
    mro = type(program).__mro__
    writer = Writer(strict=True, mro=mro)
    for state in spec.states.values():
        writer.add("state", state.name, state.text)
        writer.value("default", None if repr(state.default) == "ABSENT" else (state.default,))
    for event in spec.events:
        writer.add("event type", event.__name__)  # their names, where handlers of other types may reject
    if spec.times:
        _times(program, core, writer)
    for handler in core.handlers:
        writer.add("handler", str(len(handler.events)))
        for event in handler.events:
            writer.value("event", event)
        writer.function(handler.function)
    for name, member in core.members.items():
        writer.value(f"cut:{name}", member)
    _members(program, core, writer)
    return writer


def _times(program: Program, core: PassProgram, writer: Writer) -> None:
    """How the core reaches into other times. Raises Unsure."""
    spec = spec_of(program)
    writer.add("times", str(spec.loop))
    for name, forms in sorted(core.logs.items()):
        writer.add("log", name, str(spec.states[name].history), *forms)
    specs = {handler.name: handler for handler in spec.handlers}
    for handler in core.handlers:
        declared = specs[handler.name]
        writer.add("named", handler.name)  # dated writes say who issued them
        if declared.after is not None:
            writer.add("after", str(span_of(program, declared.after)))
        if declared.every is not None:
            writer.add("every", str(span_of(program, declared.every)), _zone(declared.zone))


def _zone(name: str) -> str:
    """The hash of a time zone's rules. Raises Unsure where they are not known."""
    rules = b"" if name == "UTC" else zone_rules(name)
    if rules is None:
        raise Unsure(f"the rules of the time zone {name}")
    return hashlib.sha256(rules).hexdigest()


def program_key(program: Program, analysis: Analysis, *more: str) -> str | None:
    """The key of something that depends on all of a program and on this; None where no hash says for certain what the program does."""
    if uncertain(analysis) is not None or analysis.trusted:
        return None
    writer = Writer(strict=True, mro=type(program).__mro__)
    try:
        for handler in spec_of(program).handlers:
            if handler.every is not None:
                writer.add("zone", _zone(handler.zone))
            for event in handler.events:
                writer.value("event", event)
            writer.function(handler.function)
        _members(program, None, writer)
    except (Unsure, RecursionError):
        return None
    parts = [software(), fingerprint(program), writer.digest(), *more]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def site_key(program: Program, key: CoreKey, site: Site) -> str:
    """The key of one column of resolved reads. Raises Unsure."""
    writer = Writer(strict=True, mro=type(program).__mro__)
    writer.value("event", site.event)
    writer.function(site.function)
    _members(program, None, writer)
    return key.of("read", str(site.writers), site.text, site.type.text, writer.digest())


def _members(program: Program, core: PassProgram | None, writer: Writer) -> None:
    """Whatever of the program the core may name: parameters, methods, constants of the class."""
    cut = {} if core is None else core.members
    spec, params = spec_of(program), params_of(program)
    done: set[str] = set()
    while True:
        names = [n for n in writer.names if n not in done]
        if not names:
            return
        done.update(names)
        for name in names:
            if name in params:
                writer.value(f"param:{name}", params[name])
            elif name not in spec.states and name not in cut:
                for base in type(program).__mro__:
                    member = base.__dict__.get(name, None)
                    if member is not None and base.__module__.partition(".")[0] != "timelapse":
                        writer.value(f"member:{base.__qualname__}.{name}", _plain(member))


def _plain(member: Any) -> Any:
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


@functools.lru_cache(maxsize=1)
def software() -> str:
    """Everything that turns a program and a log into states: this package's files, Python, libraries."""
    import numpy as np
    import pyarrow as pa

    h = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in ("cli", "synth", "testing", "env"):
            h.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    try:
        numba = importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        numba = ""
    python = f"{sys.implementation.name} {platform.python_version()} {sys.flags.optimize} {sys.byteorder}"
    return f"{h.hexdigest()} {python} numpy {np.__version__} pyarrow {pa.__version__} numba {numba}"
