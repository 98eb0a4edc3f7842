"""What a place is: a path of this machine's file system, also written as a `file:` URL.

Everything that users name a place with goes through `local_path`: labels, reports, sources, cache folders. Logs and runs go through `place_path`
(store/remote.py), which takes object stores too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from timelapse.errors import StorageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""A scheme has two letters or more: one is a drive. `pathlib` makes one slash of two, so one has to do."""
_HERE = ("", "localhost")
OBJECTS = ("s3", "s3a", "gs", "abfss", "abfs", "hdfs")
"""Schemes of object stores, where logs and runs may lie (store/remote.py)."""


_READ = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Schemes that sources are read from: those of Arrow."""


def local_path(place: str | Path, what: str = "place") -> Path:
    """The path that a place means, as it is written: relative ones stay so.

    `file:/a`, `file:///a` and `file://localhost/a` are `/a`, with `%20` and the like decoded. `what` names the place in
    an error: "log". Raises StorageError (TL930) for every other scheme (`s3://bucket/run`), because what is written
    there would land in a folder called `s3:`.
    """
    text = str(place)
    found = _SCHEME.match(text)
    if found is None and not text.lower().startswith("file:"):
        scheme, colon, rest = text.partition(":")
        if colon and scheme.lower() in {*OBJECTS, *_READ}:
            raise StorageError(
                f"a {what} cannot be at {text}: a URL has two slashes", code="TL930",
                hint=f"{scheme}://{rest}; a file or folder of that name is ./{text}",
            )  # fmt: skip
        return Path(place)
    scheme = "file" if found is None else found[1].lower()
    if scheme != "file":
        raise not_understood(text, what)
    rest = text[len("file:") :]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host not in _HERE or not slash:
            raise StorageError(
                f"a {what} cannot be at {text}: {host or 'nothing'} is not this machine", code="TL930",
                hint=f"file:///{host}/{rest} is a path of this machine",
            )  # fmt: skip
        rest = "/" + rest
    return Path(unquote(rest))


def not_understood(place: str, what: str) -> StorageError:
    """The error for a place of another scheme."""
    text = _as_written(place)
    scheme = text.partition(":")[0].lower()
    if what == "source":
        hint = f"sources are read from a path, or from {_schemes(_READ)}"
    elif scheme in OBJECTS:
        return StorageError(
            f"a {what} cannot be at {text}: of what Timelapse writes, logs, runs and live runs alone lie in object stores", code="TL930",
            hint="give a folder or file of a file system that this machine mounts, and copy it",
        )  # fmt: skip
    else:
        hint = (
            f"give a folder or file of a file system that this machine, and with Spark all workers, mount; logs, runs and live runs may lie at {_schemes(OBJECTS)} too"
        )  # fmt: skip
    return StorageError(f"a {what} cannot be at {text}: {scheme}: is not understood", code="TL930", hint=hint)


def _schemes(known: Sequence[str]) -> str:
    return f"{', '.join(f'{one}://' for one in known[:-1])} or {known[-1]}://"


def absolute_path(place: str | Path, what: str = "place") -> Path:
    """The same from the root, `~` replaced."""
    return local_path(place, what).expanduser().absolute()


def _as_written(text: str) -> str:
    """A URL with both slashes, where a path has lost one."""
    return re.sub(r"^([^/:]+):/(?!/)", r"\1://", text)
