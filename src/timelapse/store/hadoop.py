"""`hdfs://` by pyarrow, which needs Hadoop's native library (libhdfs) and CLASSPATH, as pyarrow's documentation says.

HDFS has no conditional put that pyarrow offers, and pyarrow's move of a file replaces what is there. A move of a *folder* does not: it puts the folder
into one that is there, or fails. So what is created is a folder with one file in it, made aside and moved, in one step of the name node; afterwards the
writer reads what is there. HDFS's folders do without the rename of whole versions: only commits are moved so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs

from timelapse.errors import Place as Where
from timelapse.errors import StorageError
from timelapse.store.place import Stored
from timelapse.store.waiting import Patience

T = TypeVar("T")
_PIECE = 4 << 20
_CREATED = ".created"
"""The file in a folder that was created."""


class HadoopPlace:
    """A folder of an Arrow file system whose move of a folder never replaces one that has files."""

    def __init__(self, url: str, system: Any = None, root: str | None = None) -> None:
        self._url, self._system, self._root = url, system, root

    def _fs(self) -> Any:
        if self._system is None:
            try:
                self._system, self._root = pyarrow.fs.FileSystem.from_uri(self._url)
            except (OSError, pa.ArrowException) as error:
                raise StorageError(
                    f"HDFS cannot be reached: {str(error).partition(chr(10))[0]}", place=Where(self._url), code="TL938",
                    hint="pyarrow needs libhdfs (HADOOP_HOME or ARROW_LIBHDFS_DIR) and CLASSPATH=$(hadoop classpath --glob)",
                ) from None  # fmt: skip
        return self._system

    def _path(self, name: str) -> str:
        self._fs()
        return f"{(self._root or '').rstrip('/')}/{name}".rstrip("/")

    def create(self, name: str, data: bytes) -> None:
        fs, mark = self._fs(), uuid4().hex
        made, target = self._path(f".new/{mark}"), self._path(name)
        held = mark.encode() + data
        if self._kind(target) is not pyarrow.fs.FileType.NotFound:
            raise FileExistsError(name)

        def put() -> None:
            fs.create_dir(made, recursive=True)
            self._write(f"{made}/{_CREATED}", held)
            fs.create_dir(target.rpartition("/")[0], recursive=True)

        self._do(name, put)
        with suppress(OSError, pa.ArrowException):  # what is there says who was first
            fs.move(made, target)
        found = self._do(name, lambda: self._read(f"{target}/{_CREATED}"))
        if found != held:
            self._remove(made)
            self._remove(f"{target}/{mark}")
            raise FileExistsError(name)

    def upload(self, name: str, path: Path) -> None:
        fs, aside, target = self._fs(), self._path(f".new/{uuid4().hex}"), self._path(name)

        def put() -> None:
            fs.create_dir(self._path(".new"), recursive=True)
            with open(path, "rb") as source, fs.open_output_stream(aside) as out:
                while piece := source.read(_PIECE):
                    out.write(piece)
            fs.create_dir(target.rpartition("/")[0], recursive=True)
            fs.move(aside, target)

        self._do(name, put)

    def _write(self, path: str, data: bytes) -> None:
        with self._fs().open_output_stream(path) as out:
            out.write(data)

    def _read(self, path: str) -> bytes:
        with self._fs().open_input_stream(path) as file:
            return bytes(file.read())

    def _kind(self, path: str) -> Any:
        return self._do(path, lambda: self._fs().get_file_info(path)).type

    def read(self, name: str) -> bytes:
        path = self._path(name)
        if self._kind(path) is pyarrow.fs.FileType.Directory:
            return self._do(name, lambda: self._read(f"{path}/{_CREATED}"))[32:]
        return self._do(name, lambda: self._read(path))

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        at, patience = start, Patience(f"{self}/{name}")
        if self._kind(self._path(name)) is pyarrow.fs.FileType.Directory:  # it was created
            yield self.read(name)[start:]
            return
        while True:
            try:
                with self._fs().open_input_file(self._path(name)) as file:
                    file.seek(at)
                    while piece := bytes(file.read(_PIECE)):
                        at += len(piece)
                        patience.answered()
                        yield piece
                return
            except FileNotFoundError:
                raise
            except (OSError, pa.ArrowException) as error:
                patience.wait(str(error).partition("\n")[0])

    def exists(self, name: str) -> bool:
        return self._kind(self._path(name)) is not pyarrow.fs.FileType.NotFound

    def hint(self, name: str, data: bytes) -> None:
        path = self._path(name)

        def put() -> None:
            self._fs().create_dir(path.rpartition("/")[0], recursive=True)
            self._write(path, data)

        self._do(name, put)

    rewrite = hint

    def names(self, folder: str) -> Iterator[str]:
        found = self._infos(folder, recursive=False)
        return iter(sorted(i.base_name for i in found if not i.base_name.startswith(".")))

    def files(self, folder: str = "") -> Iterator[Stored]:
        root = len(self._path("")) + 1
        for info in self._infos(folder, recursive=True):
            name = info.path[root:]
            if info.type is pyarrow.fs.FileType.File and not name.startswith(".new/"):
                yield Stored(name.removesuffix(f"/{_CREATED}"), info.size)

    def _infos(self, folder: str, *, recursive: bool) -> list[Any]:
        wanted = pyarrow.fs.FileSelector(self._path(folder), allow_not_found=True, recursive=recursive)
        return list(self._do(folder, lambda: self._fs().get_file_info(wanted)))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._remove(self._path(name))

    def _remove(self, path: str) -> None:
        kind = self._kind(path)
        if kind is pyarrow.fs.FileType.Directory:
            self._do(path, lambda: self._fs().delete_dir(path))
        elif kind is pyarrow.fs.FileType.File:
            self._do(path, lambda: self._fs().delete_file(path))

    def _do(self, name: str, ask: Callable[[], T]) -> T:
        patience = Patience(f"{self}/{name}")
        while True:
            try:
                return ask()
            except (FileNotFoundError, FileExistsError):
                raise
            except (OSError, pa.ArrowException) as error:
                said = str(error).partition("\n")[0]
                if "Permission denied" in said or "AccessControl" in said:
                    raise StorageError(
                        f"the store does not allow it: {said[:300]}", place=Where(f"{self}/{name}"), code="TL936",
                        hint="check the user (HADOOP_USER_NAME, Kerberos ticket) and the folder's permissions",
                    ) from None  # fmt: skip
                patience.wait(said[:300])

    def __str__(self) -> str:
        return self._url
