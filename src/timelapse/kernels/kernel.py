"""The contract of kernels: what the engine may ask of whatever runs handlers over events, and what it is promised.

A kernel is opened on a pass of a program: on the states at a slice's start, and with the number of events that it is expected to
see (`kernels/choose.py`, `opened`). It is then given slices, one after the other, and keeps the states from one to the next. There
are five of them, and the engine does not tell them apart:

| | |
|---|---|
| handlers as plain Python | `kernels/python/interpreted.py`, with steps of other times `kernels/python/steps.py` |
| handlers written anew as Python | `kernels/python/flat/kernel.py` |
| machine code, alone or shared out by key | `kernels/native/kernel.py`, `kernels/native/shared.py` |
| guess and repair | `kernels/iterate/repair.py` |
| the serial loop | `kernels/python/timed.py`, to take out what fails late `kernels/takeout/kernel.py` |

The first three stand behind `choose.SliceKernel`, which goes from one to another where it has to.

**What is promised**, for every slice that is run without a failure:

1. The result is what the serial loop does with the slice's events from the same states: outputs and rejections in the order of
   their positions, every target state's effects, the events that were taken out.
2. The slices of a kernel follow one another without a gap. So do their times: a slice ends where `Source.end` says, and all that
   was due until then has been done; what lies further ahead waits in the kernel.
3. Effects name each key once, in the order of the keys' hashes; `changes` has their digest. Applied to the states at the slice's
   start they give the states at its end, which the next slice begins with.
4. Tables that it was given are never written to. What it returns is Arrow, is the caller's, and is not changed by later runs.
5. How events are cut into slices, how many of them there are, and what runs beside it change none of this.

A failure (a handler's exception, a budget that is spent, `Abandoned`) ends the kernel's use. Whoever called closes it, and opens another one.

A kernel that is closed holds nothing any more: no states, buffers, mapped files or threads. What it has returned stays as it is.

`tests/kernels/contract.py` checks what can be checked of this, around every implementation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from timelapse.kernels.base import PassResult, Tick
from timelapse.kernels.former import Former, Guard
from timelapse.kernels.source import Source

if TYPE_CHECKING:
    from timelapse.kernels.rowlog import Before


class Kernel(Protocol):
    """A pass that is open. See the module for what is promised."""

    @property
    def compiled(self) -> bool:
        """Whether handlers run as machine code (until now, at least)."""

    @property
    def why_python(self) -> str:
        """Why they do not, or not any more, where only trying shows it; else empty."""

    @property
    def workers(self) -> bool:
        """Whether events are shared out among threads by key."""

    @property
    def accompanied(self) -> bool:
        """Whether the companions that it was opened with run beside it (kernels/companions.py)."""

    @property
    def state_bytes(self) -> int:
        """What the states that need not be in memory take there, roughly."""

    @property
    def seconds(self) -> Mapping[str, float]:
        """Where the time went that opening it took, by phase."""

    def run(self, source: Source, tick: Tick) -> PassResult:
        """Process the next slice. `tick` is told how many events were done since it was last called.

        A handler's exception is in the result. Raises budget.Spent in passes that run ahead, and Abandoned where the pass has to
        be opened again, in another way.
        """

    def carried(self) -> Before | None:
        """What windows of a kernel begin with that goes on from here; None where there are none."""

    def close(self) -> None:
        """Let go of states, buffers, mapped files and threads. It may be called again, and after a failure, but not while `run` does
        something; nothing else may be asked of it afterwards."""


class EpochKernel(Kernel, Protocol):
    """A kernel that stays open for as long as events come: a slice a run, of any number of events.

    A run gives what was put out. What was done to states is asked for apart, and seldom.
    """

    @property
    def text_bytes(self) -> int:
        """What the texts take that machine code has met: it forgets none, whether states still hold them or not."""

    @property
    def guard(self) -> Guard:
        """Held by the kernel while it changes what `former` gives is read from, and by who reads."""

    def settle(self) -> None:
        """What states hold now is what `former` gives from now on. Who calls it holds the guard."""

    def former(self, name: str) -> Former | None:
        """A state as it was when the kernel was last settled; None where that is not known any more, until it is settled again."""

    def changes(self, later: int = 0) -> PassResult:
        """What was done to states since this was last called. `later`: it may be found while the kernel goes on (PassResult.settle), if it takes no
        more than so many bytes. Raises Abandoned where that cannot be told."""

    def live(self, name: str) -> Any:
        """A state as handlers use it, as it stands. It must not be written to."""

    def held(self, name: str) -> Iterator[tuple[Any, Any]]:
        """The keys of a state, with what is stored under them. Nothing may be processed meanwhile."""


__all__ = ["EpochKernel", "Kernel"]
