"""Passes as the compiler gets them, and what is asked of them without compiling anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from timelapse.analysis.result import PassProgram
from timelapse.analysis.views import beyond_sums
from timelapse.depth import roomy
from timelapse.env.machine import memory_setting
from timelapse.kernels.once import made_once
from timelapse.kernels.python.starts import can_be_looked_up
from timelapse.program.program import Program, spec_of

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.showing import Shown
    from timelapse.kernels.native.lowering.unit import Unit


def lowered_pass(program: Program, work: PassProgram, *, final: bool) -> Unit:
    """A pass as the compiler gets it. Raises what `refused` gives where it does not compile. Compiles nothing."""

    def made() -> Unit | Exception:
        try:
            return _lower(program, work, final=final)
        except refused() as refusal:
            refusal.__context__ = refusal.__cause__ = None
            return refusal.with_traceback(None)

    found = made_once("lowered", program, work, final, made)
    if isinstance(found, Exception):
        raise found.with_traceback(None)
    return found


@roomy
def _lower(program: Program, work: PassProgram, *, final: bool) -> Unit:
    from timelapse.kernels.native.lowering.lower import lowered

    return lowered(program, _of_task(program, work, final=final), final=final)


@roomy
def shown_pass(program: Program, work: PassProgram, *, final: bool) -> Shown:
    """The compiler's form of a pass, and the source that it makes. Raises what `refused` gives where it does not compile."""
    from timelapse.kernels.native.lowering.showing import shown

    return shown(program, _of_task(program, work, final=final), final=final)


def _of_task(program: Program, work: PassProgram, *, final: bool) -> PassProgram:
    """The pass as a task runs it."""
    if final:
        return work
    if found := kept_whole(program, work):
        raise refused()(f"the rows of windows ({', '.join(sorted(found))}) are found as Python")
    return replace(work, by_key=None)  # what is shared out among tasks is filtered before it gets to them


def viewed(work: PassProgram) -> set[str]:
    """The states of a pass that are looked back on."""
    return work.logs.keys() & {*work.exact, *work.targets}


def kept_whole(program: Program, work: PassProgram) -> set[str]:
    """Those of which windows compile only where one pass goes through the whole log."""
    return viewed(work) & beyond_sums(spec_of(program), work.logs)


def refused() -> type[Exception]:
    """What says why a pass does not compile."""
    from timelapse.kernels.native.refused import Refused

    return Refused


def event_bytes(program: Program, work: PassProgram, *, mapped: bool) -> int | None:
    """The memory that an event of a compiled final pass can take until its slice's end, if it touches only new keys; of a
    loop, one round. None where the pass does not compile. Compiles nothing. `mapped`: start states may be in files; tables are
    where windows look back and the user has set the budget."""
    try:
        unit = lowered_pass(program, work, final=True)
    except refused():
        return None
    return unit.event_bytes(
        mapped=mapped, filed=mapped and bool(unit.windows) and memory_setting() is not None
    )


def loaded_whole(program: Program, work: PassProgram, *, compiled: bool) -> list[str]:
    """The states with keys whose start a final pass loads whole, however large it is. Compiles nothing."""
    specs = {n: s for n, s in spec_of(program).states.items() if n in work.exact and s.key is not None}
    if not compiled:
        return sorted(name for name, spec in specs.items() if not can_be_looked_up(spec))
    from timelapse.kernels.native.memory.layout import can_be_mapped

    unit = lowered_pass(program, work, final=True)
    listed = set(specs) if unit.lists and unit.ticking else set(unit.indexed)
    own = {name: spec for name, spec in specs.items() if name in unit.layouts}
    return sorted(n for n, spec in own.items() if n in listed or not can_be_mapped(spec, unit.layouts[n]))
