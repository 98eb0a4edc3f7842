"""What windows keep by key, where it outgrows its memory: it goes to a file, and a key comes back when it is looked at.

The file is a database of SQLite's with a table for each dict. A row has all keys of one hash, which is Python's own, with what they hold.
So whoever finds a key there has all keys of its hash in memory, and what is put away takes the place of the whole row.
"""

from __future__ import annotations

import io
import pickle
import types
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from timelapse.kinds.base import ABSENT
from timelapse.tables.lookup import LazyDict

if TYPE_CHECKING:
    import sqlite3

KEY_BYTES = 250
"""What a key and its value take in a dict, roughly."""
_LOADED = 4
"""What was in a file takes so many times more in memory, roughly."""
_CACHE = 16
"""SQLite keeps no more than this part of what is meant for a pass's states,"""
_LEAST = 256 << 10
"""or so many bytes."""
_AT_ONCE = 1024
"""Rows that are written together."""
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
"""What a pickle would name by its module."""


class Shelf:
    """The file of one pass, and the dicts that it is for. `room`: bytes that these should not exceed by much."""

    def __init__(self, folder: Path, room: int) -> None:
        self._folder, self.room = folder, room
        self._cache = max(_LEAST, room // _CACHE) >> 10
        self._made: list[weakref.ref[Shelved]] = []  # who is in no cycle is gone at once
        self._kept: list[Any] = []
        """What rows name by its number here."""
        self._database: sqlite3.Connection | None = None
        self.loaded = 0
        """Bytes that were read since all was put away."""

    def dict(self) -> Shelved:
        """A new one."""
        made = Shelved(self, f"t{len(self._made)}")
        self._made.append(weakref.ref(made))
        return made

    @property
    def _dicts(self) -> list[Shelved]:
        return [one for made in self._made if (one := made()) is not None]

    @property
    def nbytes(self) -> int:
        """What the dicts take in memory, roughly, beside what their values grew by."""
        return KEY_BYTES * sum(one.held for one in self._dicts) + _LOADED * self.loaded

    def put_away(self) -> bool:
        """Put all that the dicts hold in memory into the file. False where there is no room for it: all stays as it is. Nobody may be going
        through a dict."""
        try:
            import sqlite3
        except ImportError:  # not every Python has it
            return False
        try:
            database = self._opened(sqlite3.connect)
            database.execute("BEGIN")
            for one in self._dicts:
                one.write(database)
            database.execute("COMMIT")
        except (sqlite3.Error, OSError):
            if self._database is not None:
                with suppress(sqlite3.Error):  # it was undone already
                    self._database.execute("ROLLBACK")
            return False
        for one in self._dicts:
            one.forget()
        self.loaded = 0
        return True

    def _opened(self, connect: Callable[..., sqlite3.Connection]) -> sqlite3.Connection:
        if self._database is None:
            self._folder.mkdir(exist_ok=True)
            path = self._folder / f"{uuid.uuid4().hex}.sqlite"
            made = connect(path, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, _remove, made, path)
            for setting in (
                f"cache_size = -{self._cache}",
                "journal_mode = TRUNCATE",  # what does not fit is undone
                "synchronous = OFF",  # nobody reads it after a crash
                "locking_mode = EXCLUSIVE",
            ):
                made.execute(f"PRAGMA {setting}")
            self._database = made
        return self._database

    def read(self, table: str, h: int | None = None) -> Iterator[list[tuple[Any, Any]]]:
        """The keys of one hash (None: of all) with what they hold."""
        if self._database is None:
            return
        import sqlite3

        where, given = ("", ()) if h is None else (" WHERE h = ?", (h,))
        try:
            for (data,) in self._database.execute(f"SELECT data FROM {table}{where}", given):  # noqa: S608  # names of our own
                self.loaded += len(data)
                unpickler = _Unpickler(io.BytesIO(data))
                unpickler.kept = self._kept
                yield unpickler.load()
        except (sqlite3.Error, pickle.UnpicklingError) as error:
            raise OSError(f"what windows keep cannot be read again: {error}") from error

    def packed(self, rows: list[tuple[Any, Any]]) -> bytes:
        """Keys of one hash with what they hold."""
        file = io.BytesIO()
        pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.kept = self._kept
        pickler.dump(rows)
        return file.getvalue()


def _remove(database: sqlite3.Connection, path: Path) -> None:
    database.close()
    for name in (path, path.with_name(f"{path.name}-journal")):
        name.unlink(missing_ok=True)


class _Pickler(pickle.Pickler):
    """Types, which may be local ones, functions that make values, and what stands for something by being that very object (ABSENT), are kept."""

    kept: list[Any]

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, _NAMED) and type(obj) is not object and obj is not ABSENT:
            return None
        number = next((n for n, one in enumerate(self.kept) if one is obj), -1)
        if number < 0:
            number = len(self.kept)
            self.kept.append(obj)
        return number


class _Unpickler(pickle.Unpickler):
    """What it makes is of types that this process has put in. It finds nothing by name, so what somebody else wrote into the file calls nothing."""

    kept: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} was not put in")

    def persistent_load(self, pid: int) -> Any:
        return self.kept[pid]


class Shelved(LazyDict):
    """A dict whose keys may be in the shelf's file. See LazyDict."""

    __slots__ = ("__weakref__", "_is_whole", "_shelf", "table")

    def __init__(self, shelf: Shelf, table: str) -> None:
        super().__init__(None)
        self._shelf, self.table = shelf, table
        self._is_whole = True
        """Whether all keys are in memory, whatever the file has."""

    def _find(self, key: Any) -> Any:
        value = dict.get(self, key, self)
        if value is not self:
            return value
        if self._is_whole:
            return ABSENT
        for rows in self._shelf.read(self.table, hash(key)):
            for other, held in rows:
                dict.setdefault(self, other, held)
        return dict.setdefault(self, key, ABSENT)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self._is_whole:
            self._find(key)  # with those of its hash
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if self._is_whole:
            dict.__delitem__(self, key)
        else:
            super().__delitem__(key)

    def pop(self, key: Any, *default: Any) -> Any:
        return dict.pop(self, key, *default) if self._is_whole else super().pop(key, *default)

    def _load(self) -> None:
        if not self._is_whole:
            for rows in self._shelf.read(self.table):
                for key, held in rows:
                    dict.setdefault(self, key, held)
            self._is_whole = True
        super()._load()

    def write(self, database: sqlite3.Connection) -> None:
        """Put what is in memory into the file, which is in order of hashes."""
        if self._is_whole:
            database.execute(f"CREATE TABLE IF NOT EXISTS {self.table} (h INTEGER PRIMARY KEY, data BLOB)")
            database.execute(f"DELETE FROM {self.table}")  # noqa: S608
        for rows in self._rows():
            gone = [(h,) for h, held in rows if not held]
            there = [(h, self._shelf.packed(held)) for h, held in rows if held]
            if not self._is_whole:
                database.executemany(f"DELETE FROM {self.table} WHERE h = ?", gone)  # noqa: S608
            database.executemany(f"INSERT OR REPLACE INTO {self.table} VALUES (?, ?)", there)  # noqa: S608

    def _rows(self) -> Iterator[Sequence[tuple[int, list[tuple[Any, Any]]]]]:
        """What is in memory, by hash: some at a time."""
        keys = list(dict.keys(self))
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        found: list[tuple[int, list[tuple[Any, Any]]]] = []
        for at in np.argsort(hashes).tolist():
            h, key = int(hashes[at]), keys[at]
            if not found or found[-1][0] != h:
                if len(found) >= _AT_ONCE:
                    yield found
                    found = []
                found.append((h, []))
            held = dict.__getitem__(self, key)
            if held is not ABSENT:
                found[-1][1].append((key, held))
        yield found

    def forget(self) -> None:
        """All is in the file."""
        self.clear()
        self._is_whole = False
