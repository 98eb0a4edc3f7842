"""Resources: files that handlers read, fingerprinted, loaded once per process."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from timelapse.errors import DefinitionError, Place, ReplayError
from timelapse.store.places import local_path

_LOADED: dict[tuple[str, str], Any] = {}
_FOLDERS: list[Path] = []
"""Where workers find shipped files, named by fingerprint."""
_PICKLED: list[Resource] | None = None
"""While a job is packed: the resources that went into it."""


class Resource:
    """What `tl.resource(path, load)` declares: a file, what it held when it was declared, its loader.

    Use it in a handler through its attributes: every access goes to the loaded object. It is a
    trusted call: Timelapse does not look inside.
    """

    __slots__ = ("_load", "fingerprint", "path")

    def __init__(self, path: str | Path, load: Callable[[Path], Any]) -> None:
        self.path = str(local_path(path, "resource").absolute())
        self._load = load
        try:
            self.fingerprint = _fingerprint(self.path)
        except OSError as error:
            raise DefinitionError(
                f"the resource cannot be read: {error.strerror}", place=Place(self.path),
                hint="the path is relative to the working directory", code="TL109",
            ) from None  # fmt: skip

    @property
    def value(self) -> Any:
        """The loaded object. Raises ReplayError when the file has changed since it was declared."""
        key = (self.path, self.fingerprint)
        if key not in _LOADED:
            _LOADED[key] = self._load(self._file())
        return _LOADED[key]

    def _file(self) -> Path:
        """The file with the declared contents: a shipped copy, or the original."""
        for folder in _FOLDERS:
            shipped = folder / self.fingerprint
            if shipped.is_file():
                return shipped
        if not Path(self.path).is_file() or _fingerprint(self.path) != self.fingerprint:
            raise ReplayError(
                "the resource changed after the program was defined", place=Place(self.path),
                hint="start again, so that the whole run sees one version", code="TL505",
            )  # fmt: skip
        return Path(self.path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __reduce__(self) -> tuple[Any, ...]:
        if _PICKLED is not None:
            _PICKLED.append(self)
        return (_rebuild, (self.path, self._load, self.fingerprint))

    def __repr__(self) -> str:
        return f"resource({self.path!r}, {self.fingerprint[:12]})"


def _rebuild(path: str, load: Callable[[Path], Any], fingerprint: str) -> Resource:
    made = Resource.__new__(Resource)
    made.path, made._load, made.fingerprint = path, load, fingerprint
    return made


@contextmanager
def pickled_resources() -> Iterator[list[Resource]]:
    """Within it, the list of the resources that were pickled so far."""
    global _PICKLED
    found: list[Resource] = []
    _PICKLED = found
    try:
        yield found
    finally:
        _PICKLED = None


def ship(resources: Iterable[Resource], folder: Path) -> None:
    """Copy resources to where workers can read them, checked against their fingerprints."""
    for each in {r.fingerprint: r for r in resources}.values():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(each._file(), folder / each.fingerprint)


def shipped_in(folder: Path) -> None:
    """In a worker: a folder that may hold shipped resources."""
    if folder not in _FOLDERS:
        _FOLDERS[:] = [folder, *_FOLDERS[:7]]


def _fingerprint(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def resource(path: str | Path, load: Callable[[Path], Any]) -> Any:
    """A file that handlers use: fingerprinted now, loaded once in each process with `load(path)`.

    `model: Any = tl.resource("model.json", load_model)` in a program's body, then `self.model(...)`,
    `self.model[...]` or `self.model.score(...)` in handlers. On a cluster the path must be readable
    on every machine. Raises DefinitionError when the file cannot be read.
    """
    return Resource(path, load)
