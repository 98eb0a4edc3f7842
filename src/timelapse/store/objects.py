"""Object stores: `s3://`, `gs://` and `abfss://` by obstore, `hdfs://` by pyarrow (store/hadoop.py).

Keys and secrets come from the environment, as each vendor's tools take them, and stay there: a place knows its URL alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from timelapse.errors import Place as Where
from timelapse.errors import StorageError
from timelapse.store.place import Place, Stored
from timelapse.store.places import OBJECTS
from timelapse.store.waiting import Patience

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

SCHEMES = OBJECTS
_BULK = 64 << 20
"""A file above this is put in several pieces."""
_ANSWER = timedelta(seconds=30)
"""A request that gives nothing for so long has failed."""
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_HINT = "docs/spark.md says which variables of the environment name the store and the keys"


@lru_cache(maxsize=256)
def place_at(url: str) -> Place:
    """The place that a URL names: `s3://bucket/folder`. Raises StorageError (TL930) for a scheme that is none of SCHEMES."""
    scheme, _, rest = url.partition("://")
    if scheme == "hdfs":
        from timelapse.store.hadoop import HadoopPlace

        return HadoopPlace(url)
    if scheme not in SCHEMES:
        raise StorageError(f"{scheme}: is not understood", place=Where(url), code="TL930")
    host, _, folder = rest.partition("/")
    return ObjectPlace(f"{scheme}://{host}", folder.strip("/"))


class ObjectPlace:
    """A folder of a bucket (a container), by obstore. `create` is one conditional put (`If-None-Match: *`)."""

    def __init__(self, bucket: str, folder: str) -> None:
        self._bucket, self._folder = bucket, folder
        self._made: ObjectStore | None = None

    @property
    def _store(self) -> ObjectStore:
        if self._made is None:
            self._made = _open(self._bucket)
        return self._made

    def create(self, name: str, data: bytes) -> None:
        import obstore

        tries = 0

        def put() -> None:
            nonlocal tries
            tries += 1
            obstore.put(self._store, self._key(name), data, mode="create", use_multipart=False)

        try:
            self._do(name, put)
        except FileExistsError:
            if tries == 1 or self.read(name) != data:  # else an earlier try has put it, whose answer was lost
                raise

    def upload(self, name: str, path: Path) -> None:
        import obstore

        many = path.stat().st_size > _BULK
        self._do(name, lambda: obstore.put(self._store, self._key(name), path, use_multipart=many))

    def read(self, name: str) -> bytes:
        import obstore

        return self._do(name, lambda: bytes(obstore.get(self._store, self._key(name)).bytes()))

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        import obstore

        at, patience = start, Patience(f"{self}/{name}")
        while True:
            try:
                if at:
                    size = obstore.head(self._store, self._key(name))["size"]
                    if at >= size:
                        return
                    given = obstore.get(self._store, self._key(name), options={"range": {"offset": at}})
                else:
                    given = obstore.get(self._store, self._key(name))
                for piece in given.stream(min_chunk_size=4 << 20):
                    data = bytes(piece)
                    at += len(data)
                    patience.answered()
                    yield data
                return
            except Exception as error:  # obstore's errors have no common base but this
                self._judge(name, error, patience)

    def exists(self, name: str) -> bool:
        import obstore

        try:
            self._do(name, lambda: obstore.head(self._store, self._key(name)))
        except FileNotFoundError:
            return False
        return True

    def hint(self, name: str, data: bytes) -> None:
        import obstore

        self._do(name, lambda: obstore.put(self._store, self._key(name), data))

    rewrite = hint

    def names(self, folder: str) -> Iterator[str]:
        import obstore

        prefix = self._key(folder)
        found = self._do(folder, lambda: obstore.list_with_delimiter(self._store, prefix or None))
        start = len(prefix) + 1 if prefix else 0
        paths = [*found["common_prefixes"], *(o["path"] for o in found["objects"])]
        return iter(sorted({path[start:].strip("/") for path in paths}))

    def files(self, folder: str = "") -> Iterator[Stored]:
        import obstore

        prefix = self._key(folder)
        start = len(self._folder) + 1 if self._folder else 0
        found = self._do(
            folder, lambda: [o for page in obstore.list(self._store, prefix or None) for o in page]
        )
        return iter([Stored(o["path"][start:], o["size"]) for o in found])

    def remove(self, names: Iterable[str]) -> None:
        import obstore

        keys = [self._key(name) for name in names]

        def gone() -> None:
            for at in range(0, len(keys), 500):
                try:
                    obstore.delete(self._store, keys[at : at + 500])
                except FileNotFoundError:  # some stores tell; the others of the batch may be there still
                    for key in keys[at : at + 500]:
                        with suppress(FileNotFoundError):
                            obstore.delete(self._store, key)

        if keys:
            self._do("", gone)

    def __str__(self) -> str:
        return f"{self._bucket}/{self._folder}" if self._folder else self._bucket

    def _key(self, name: str) -> str:
        return "/".join(part for part in (self._folder, name) if part)

    def _do(self, name: str, ask: Callable[[], T]) -> T:
        """What `ask` returns, asked again while the store is away."""
        patience = Patience(f"{self}/{name}" if name else str(self))
        while True:
            try:
                return ask()
            except Exception as error:  # obstore's errors have no common base but this
                self._judge(name, error, patience)

    def _judge(self, name: str, error: Exception, patience: Patience) -> None:
        """Return, after a pause, where it may help to ask again; else raise what is wrong.

        FileNotFoundError and FileExistsError are answers. StorageError: TL936 (not allowed), TL937 (no bucket), TL935 (away), TL938 (else).
        """
        from obstore import exceptions

        if isinstance(error, StorageError):
            raise error
        text = str(error).partition("\n\nDebug")[0]
        code = _CODE.search(text)
        where = Where(f"{self}/{name}" if name else str(self))
        if (code is not None and code[1] in ("NoSuchBucket", "ContainerNotFound")) or (
            isinstance(error, FileNotFoundError) and "bucket does not exist" in text
        ):
            raise StorageError(
                f"there is no bucket {self._bucket}", place=where, code="TL937",
                hint="make it first, or correct the URL; Timelapse makes no buckets",
            ) from None  # fmt: skip
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(2, "no such object", f"{self}/{name}") from None
        if isinstance(error, FileExistsError | exceptions.AlreadyExistsError | exceptions.PreconditionError):
            raise FileExistsError(17, "there is an object already", f"{self}/{name}") from None
        refused = isinstance(
            error, PermissionError | exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
        )
        if _asks_machine(text):
            raise StorageError(
                "there are no keys for this store: none in the environment, and this machine has no role",
                place=where, hint=_NO_HINT, code="TL936",
            ) from None  # fmt: skip
        status = _STATUS.search(text)
        if refused or (status is not None and status[1] in ("401", "403")):
            raise StorageError(
                f"the store does not allow it: {_short(text)}", place=where, code="TL936",
                hint=f"check the keys and what they may do there (read, write, list, remove); {_NO_HINT}",
            ) from None  # fmt: skip
        if status is not None and status[1][0] == "4" and status[1] not in ("408", "409", "429"):
            raise StorageError(
                f"the store refuses the request: {_short(text)}", place=where, code="TL938", hint=_NO_HINT
            ) from None
        patience.wait(_short(text))


def _asks_machine(text: str) -> bool:
    """Whether a request failed because the machine's role was asked for, as is done where the environment has no keys."""
    return "169.254.169.254" in text or "metadata.google.internal" in text or "/metadata/identity" in text


def _short(text: str) -> str:
    """An error's text on one line. It holds URLs and codes, no keys."""
    code = _CODE.search(text)
    said = " ".join(text.partition("<?xml")[0].split())
    said = re.sub(r" in \d[\d.]*[mµn]?s", "", said)
    return (said if code is None else f"{said} {code[1]}")[:300].rstrip(" :")


def _open(bucket: str) -> ObjectStore:
    from obstore.store import from_url

    options: dict[str, Any] = {
        "client_options": {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(minutes=10), "read_timeout": _ANSWER},
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(minutes=3)},
    }  # fmt: skip
    scheme = bucket.partition(":")[0]
    if scheme in ("s3", "s3a"):
        ends = (os.environ.get(n, "") for n in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
        end = next((e for e in ends if e), "")
        config: dict[str, Any] = {"aws_endpoint": end} if end else {}
        if not any(os.environ.get(n) for n in ("AWS_REGION", "AWS_DEFAULT_REGION")):
            config["aws_region"] = "us-east-1"
        options["client_options"]["allow_http"] = end.startswith("http://")
        options["config"] = config
    try:
        return from_url(bucket, **options)
    except Exception as error:  # obstore's errors have no common base but this
        raise StorageError(
            f"the store cannot be opened: {_short(str(error))}",
            place=Where(bucket),
            hint=_NO_HINT,
            code="TL938",
        ) from None
