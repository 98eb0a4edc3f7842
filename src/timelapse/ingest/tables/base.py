"""What tables that are kept elsewhere have in common: they are opened as they are at one moment, as parts that are read like files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from timelapse.errors import IngestError, Place
from timelapse.ingest.files import Format, SourceFile


def _nothing() -> None: ...


@dataclass(frozen=True)
class Opened:
    """A table at one moment. `files`: its parts; `rows`: how many each has; `told`: what the log's manifest keeps of the moment,
    so that the log can be made again. `close` is called when all has been read."""

    format: Format
    files: list[SourceFile]
    rows: list[int]
    columns: dict[str, pa.DataType]
    told: dict[str, Any]
    close: Callable[[], None] = field(default=_nothing)

    def only(self, paths: Sequence[str] | None) -> Opened:
        """Some of the parts; None: all."""
        if paths is None:
            return self
        wanted = set(paths)
        kept = [(f, n) for f, n in zip(self.files, self.rows, strict=True) if f.path in wanted]
        return replace(self, files=[f for f, _ in kept], rows=[n for _, n in kept])


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that is kept elsewhere. `parts`: those of its parts that are read, by path; None: all."""

    parts: tuple[str, ...] | None = None

    def open(self) -> Opened:
        """The table as it is, or as it was at the version that was asked for. Raises IngestError (TL418)."""
        raise NotImplementedError

    def some(self, opened: Opened, paths: Sequence[str]) -> Self:
        """The same table at the moment at which it was opened, and of it these parts."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """What the log's manifest says of it; never a password."""
        raise NotImplementedError


def unreadable(what: str, error: object, hint: str = "") -> IngestError:
    """The error for a table that cannot be read."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return IngestError(
        f"the table cannot be read: {' '.join(text[:3])}", place=Place(what=what), code="TL418",
        hint=hint or "check its name, and that this machine may read it",
    )  # fmt: skip
