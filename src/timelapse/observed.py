"""The serial loop under observation: an observer is told of each step, has it done by handlers of its own, and sees what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from timelapse.ids import Phase, Position
from timelapse.kinds.base import State
from timelapse.kinds.past import Done
from timelapse.model.events import Event
from timelapse.program.agenda import Dated
from timelapse.program.program import HandlerSpec, Program
from timelapse.serial import Backing, Journal, Loop


class Did(NamedTuple):
    """What a step has done. It is there until the next one begins."""

    kept: bool
    """Whether it was not rejected."""
    wrote: Journal
    """What stood under each key before it was written, oldest first: of several entries of a key the first counts."""
    operations: Sequence[tuple[Done, Any]]
    """Those on states whose operations are kept: in which record, under which key."""


class Observer:
    """Has the steps of an ObservedLoop done. What a subclass leaves out is done as it is."""

    def step(
        self, at: Position, event: Event | None, handlers: tuple[HandlerSpec, ...],
        do: Callable[[tuple[HandlerSpec, ...]], Did],
    ) -> None:  # fmt: skip
        """An event is due, or a tick (then there is none): `do` does it by these handlers, or by others in their place. `at`:
        where its first record is to stand."""
        do(handlers)

    def write(self, at: Position, state: str, do: Callable[[], Did]) -> None:
        """A dated write of a state is due."""
        do()

    def looked(self, state: State, how: str, argument: int, view: Any) -> Any:
        """A handler looks back by `state.ago(argument)`, `last` or `at`: what it gets in the place of `view`."""
        return view


class ObservedLoop(Loop):
    """The loop, with an observer, who is told of each step and has it done."""

    def __init__(
        self, program: Program | type[Program], observer: Observer, backing: Backing | None = None
    ) -> None:
        super().__init__(program, backing)
        self._observer = observer

    def _transaction(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> None:
        plain = super()._transaction

        def do(own: tuple[HandlerSpec, ...]) -> Did:
            refused = self.outcome.refused
            before = len(refused)
            plain(event, own, ts, phase, root)
            return Did(len(refused) == before, self._journal, self.past.done)

        ordinal = self._ordinal if self._last == (ts, phase, root) else 0
        self._observer.step(Position(ts, phase, root, ordinal), event, handlers, do)

    def _write(self, dated: Dated) -> None:
        plain = super()._write

        def do() -> Did:
            plain(dated)
            return Did(True, self._journal, self.past.done)

        self._observer.write(Position(dated.due, Phase.DATED_WRITE, dated.root, 0), dated.name, do)

    def ago(self, state: State, lag: int) -> Any:
        return self._observer.looked(state, "ago", lag, super().ago(state, lag))

    def last(self, state: State, width: int) -> Any:
        return self._observer.looked(state, "last", width, super().last(state, width))

    def at(self, state: State, at: int) -> Any:
        return self._observer.looked(state, "at", at, super().at(state, at))
