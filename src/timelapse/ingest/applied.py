"""Functions of the user's that rows go through, for what columns and expressions cannot say.

A function gets a row as a dict by column, and returns one by event field or column (fields and times are then found in it as in a
file); None leaves the row out. Its result must follow from the row alone: rows are read in any number of batches and processes. Within a
process calls come one at a time, though files are parsed in several threads: a function may use what is not safe to share.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

from timelapse.errors import IngestError, Place
from timelapse.program.load import load_module

_ONE_AT_A_TIME = RLock()
"""Held while a function of the user's runs: also several functions may share something."""

Row = dict[str, Any]
RowFunction = Callable[[Row], Mapping[str, Any] | None]
RowsFunction = Callable[[list[Row]], Sequence[Mapping[str, Any] | None]]


@dataclass(frozen=True)
class Applied:
    """A function with its name. `whole`: it takes a list of rows, and returns as many. Travels to tasks by value."""

    name: str
    function: Callable[[Any], Any]
    whole: bool

    @classmethod
    def of(cls, given: Callable[[Any], Any] | str, *, whole: bool) -> Applied:
        """A function, or one that is named: `prepare.py:clean`. Raises IngestError (TL411)."""
        if not isinstance(given, str):
            if not callable(given):
                raise _wrong(f"{given!r} is no function")
            return cls(f"{given.__module__}:{getattr(given, '__qualname__', given)}", given, whole)
        where, _, name = given.rpartition(":")
        if not where:
            raise _wrong(f"apply= is {given!r}, which names no function of a file")
        found = getattr(load_module(where), name, None)
        if not callable(found):
            raise _wrong(f"there is no function {name} in {where}")
        return cls(given, found, whole)

    @property
    def text(self) -> str:
        """What the log's manifest says of it: its name, and a hash of its text."""
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError):
            return self.name
        return f"{self.name} {hashlib.blake2b(source.encode(), digest_size=8).hexdigest()}"

    def rows(self, rows: list[Row]) -> list[Mapping[str, Any] | str | None]:
        """What becomes of rows: a row, None where it is left out, a text where it is bad: the reason.

        Raises IngestError (TL419) where a function of whole lists fails, or returns another number of rows.
        """
        with _ONE_AT_A_TIME:
            return self._rows(rows)

    def _rows(self, rows: list[Row]) -> list[Mapping[str, Any] | str | None]:
        name = self.name.rpartition(":")[2]
        if not self.whole:
            return [self._one(name, row) for row in rows]
        try:
            found = list(self.function(rows))
        except Exception as error:
            raise self._failed(f"{name}: {type(error).__name__}: {error}") from error
        if len(found) != len(rows):
            raise self._failed(f"{name} returned {len(found):,} rows for {len(rows):,}")
        return [_checked(name, one) for one in found]

    def _one(self, name: str, row: Row) -> Mapping[str, Any] | str | None:
        try:
            found = self.function(row)
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}"
        return _checked(name, found)

    def _failed(self, text: str) -> IngestError:
        return IngestError(
            text, place=Place(what=self.name), code="TL419",
            hint="it takes a list of rows (dicts), and returns a list with a dict, or None to leave the row out, for each",
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        from timelapse.ingest.spark_functions import by_value

        return _unpacked, (self.name, by_value(self.function), self.whole)


def _unpacked(name: str, data: bytes, whole: bool) -> Applied:
    import pickle

    return Applied(name, pickle.loads(data), whole)  # noqa: S301 our own bytes, from our own driver


def _checked(name: str, found: object) -> Mapping[str, Any] | str | None:
    if found is None or isinstance(found, Mapping):
        return found
    return f"{name}: returned {type(found).__name__}, and not a dict or None"


def _wrong(message: str) -> IngestError:
    return IngestError(
        message,
        code="TL411",
        hint='apply = "prepare.py:clean", a function of a row; apply_batch of a list of rows',
    )
