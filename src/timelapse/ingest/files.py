"""Files to read: listing them, their format, and files that are not what they are taken for."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs

from timelapse.decoding import decoded
from timelapse.errors import IngestError, Place
from timelapse.store.places import local_path, not_understood

Format = Literal["parquet", "csv", "json", "text", "orc", "avro", "delta", "iceberg", "postgres"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".orc": "orc", ".avro": "avro",
}  # fmt: skip
_PACKED = {".gz", ".bz2", ".zst", ".lz4"}


class Part(Protocol):
    """Some rows of a table, in an order of their own. Travels to the tasks that read it."""

    def read(self, most: int, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """The rows, in tables of at most `most`, with these columns (None: all). Raises IngestError."""
        ...


@dataclass(frozen=True)
class SourceFile:
    """A file to read: its path as shown and sorted by, and its size in bytes."""

    path: str
    size: int
    columns: tuple[str, ...] | None = None
    """CSV: the columns that its header names; those of a part of a table."""
    inner: tuple[str, ...] = ()
    """What stands inside a part's columns, by path."""
    modified: int | None = None
    """When it was changed last, in nanoseconds since 1970, where this is known."""
    part: Part | None = None
    """What reads it, where it is a part of a table that is kept elsewhere."""
    mark: str = ""
    """What tells such a part from what it was before, besides its size."""

    @property
    def packed(self) -> bool:
        return Path(self.path).suffix in _PACKED

    @property
    def partition(self) -> dict[str, str]:
        """Columns that folders of its path name, `dt=2026-10-01`, with their values."""
        parts = [part.partition("=") for part in self.path.split("/")[:-1]]
        return {name: unquote(value) for name, equals, value in parts if equals and name.isidentifier()}

    def locate(self) -> tuple[pafs.FileSystem, str]:
        return _locate(self.path)


def _locate(path: str) -> tuple[pafs.FileSystem, str]:
    if path.lower().startswith("file:"):
        path = str(local_path(path, "source"))
    if "://" in path:
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(path)
        return found
    return pafs.LocalFileSystem(), path


def list_files(paths: Sequence[str]) -> list[SourceFile]:
    """The files under paths, globs and folders, sorted by path, each once. Raises IngestError for none.

    Inside folders, names that start with `_` or `.` are left out, as Spark does.
    """
    found: dict[str, SourceFile] = {}
    for path in paths:
        matched = _expand(path)
        if not matched:
            raise IngestError(
                "no files here", place=Place(path), code="TL412", hint="give a file, a folder or a glob"
            )
        for file in matched:
            found[file.path] = file
    return sorted(found.values(), key=lambda f: f.path.encode("utf-8", "surrogateescape"))


def changed_since(paths: Sequence[str], files: Sequence[SourceFile]) -> list[tuple[SourceFile, SourceFile]]:
    """Those of the files under `paths` that are not what they were when they were listed: as they were, and as they are. One that is gone is left out."""
    try:
        there = {file.path: file for file in list_files(paths)}
    except IngestError:
        return []
    pairs = [(file, there[file.path]) for file in files if file.path in there]
    return [(was, now) for was, now in pairs if (was.size, was.modified) != (now.size, now.modified)]


def _expand(path: str) -> list[SourceFile]:
    if path.lower().startswith("file:"):
        path = str(local_path(path, "source"))
    if "://" in path:
        address, end = _options(path)
        base, globbed = _base(address)
        try:
            system, inner = _locate(base + end)
        except pa.ArrowInvalid:
            raise not_understood(path, "source") from None
        except OSError as error:
            raise IngestError(
                f"cannot be opened: {error}",
                place=Place(path),
                code="TL412",
                hint="local paths need no scheme",
            ) from error
        prefix = base[: len(base) - len(inner)] if base.endswith(inner) else ""
        try:
            found = _walk(system, inner) if globbed is None else _matching(system, inner, globbed)
        except OSError as error:
            raise IngestError(
                f"cannot be listed: {error}", place=Place(path), code="TL412",
                hint="check the address, and the credentials in the environment",
            ) from error  # fmt: skip
        return [replace(file, path=prefix + file.path + end) for file in found]
    local = Path(path).expanduser()
    import glob

    try:
        there = local.exists()
        names = [str(local.absolute())] if there else sorted(glob.glob(str(local.absolute()), recursive=True))
        return [file for name in names for file in _walk_here(name)]
    except OSError as error:
        raise IngestError(
            f"cannot be listed: {error.strerror or error}", place=_place(error.filename or path), code="TL412",
            hint="check who may read it, or leave it out",
        ) from error  # fmt: skip


def _place(path: str | bytes) -> Place:
    """The place of a file whose name may be any bytes."""
    return Place(os.fsencode(path).decode("utf-8", "backslashreplace"))


def _walk_here(path: str) -> list[SourceFile]:
    """The same as `_walk` on this machine, where a folder may hold a link to one that it lies in: such a link is not followed. Raises OSError
    for a folder that cannot be read, IngestError for names that are no UTF-8."""
    whole = os.path.isdir(path)
    paths = [] if whole else [path]
    for folder, folders, names in os.walk(path, onerror=_raised, followlinks=True) if whole else ():
        within = os.path.join(os.path.realpath(folder), "")
        folders[:] = [
            name for name in folders
            if not name.startswith(_HIDDEN)
            and not within.startswith(os.path.join(os.path.realpath(os.path.join(folder, name)), ""))
        ]  # fmt: skip
        paths += [os.path.join(folder, name) for name in names if not name.startswith(_HIDDEN)]
    for one in paths:
        if one.encode("utf-8", "replace").decode() != one:
            raise IngestError(
                "its name is not UTF-8", place=_place(one), code="TL412", hint="give it another name"
            )
    infos = pafs.LocalFileSystem().get_file_info(paths)
    return [SourceFile(i.path, i.size, modified=i.mtime_ns) for i in infos if i.type == pafs.FileType.File]


def _raised(error: OSError) -> None:
    raise error


def _options(path: str) -> tuple[str, str]:
    """An address without the options behind it, and these: `s3://bucket/a.csv?region=eu-west-1`."""
    address, question, options = path.rpartition("?")
    return (
        (address, question + options)
        if question and "=" in options and "/" not in options.split("=")[0]
        else (path, "")
    )


def _base(address: str) -> tuple[str, list[str] | None]:
    """The folder in which a glob is looked for, and its parts; None: the address is no glob."""
    parts = address.split("/")
    first = next((n for n, part in enumerate(parts) if n > 2 and _GLOB.search(part)), None)
    return (address, None) if first is None else ("/".join(parts[:first]), parts[first:])


def _matching(system: pafs.FileSystem, base: str, parts: Sequence[str]) -> list[SourceFile]:
    """The files that a glob of another file system names, and those in folders that it names. `**` is any number of folders."""
    if system.get_file_info(base).type != pafs.FileType.Directory:
        return []
    told = "".join(
        "(?:[^/]+/)*" if part == "**" else _pattern(part) + ("/" if n < len(parts) - 1 else "")
        for n, part in enumerate(parts)
    )
    wanted = re.compile(told)
    below = system.get_file_info(pafs.FileSelector(base, recursive=True))
    matched = [i.path for i in below if wanted.fullmatch(i.path[len(base) :].lstrip("/"))]
    return [file for one in sorted(matched) for file in _walk(system, one)]


def _pattern(part: str) -> str:
    """A glob of one name, which does not reach over slashes, as a regular expression."""
    found: list[str] = []
    for piece in re.split(r"(\*|\?|\[[^\]]+\])", part):
        plain = {"*": "[^/]*", "?": "[^/]"}.get(piece)
        is_class = piece.startswith("[") and piece.endswith("]") and len(piece) > 2
        found.append(plain or (piece.replace("[!", "[^", 1) if is_class else re.escape(piece)))
    return "".join(found)


_GLOB = re.compile(r"[*?\[]")
_HIDDEN = ("_", ".")
"""What names of files and folders begin with that are not looked at."""


def _walk(system: pafs.FileSystem, path: str) -> list[SourceFile]:
    info = system.get_file_info(path)
    if info.type == pafs.FileType.File:
        return [SourceFile(info.path, info.size, modified=info.mtime_ns)]
    if info.type != pafs.FileType.Directory:
        return []
    below = system.get_file_info(pafs.FileSelector(path, recursive=True))
    return [
        SourceFile(i.path, i.size, modified=i.mtime_ns)
        for i in below
        if i.type == pafs.FileType.File
        and not any(part.startswith(_HIDDEN) for part in Path(i.path[len(path) :].lstrip("/")).parts)
    ]


def format_of(files: Sequence[SourceFile]) -> Format:
    """The format of files for which none is given: by the suffix that all share. Raises IngestError."""
    seen: dict[Format | None, SourceFile] = {}
    for file in files:
        seen.setdefault(_by_suffix(file), file)
    if len(seen) == 1 and (only := next(iter(seen))) is not None:
        return only
    for file in files:
        if (how := _UNREAD.get(_suffix(file))) is not None:
            raise _not_unpacked(file, *how)
    known = next((kind for kind in seen if kind is not None), None)
    if known is None:
        text, odd, glob = "the format is not clear from the files' suffixes", files[0], ""
    else:
        odd = next(file for kind, file in seen.items() if kind != known)
        one, other = Path(seen[known].path), _by_suffix(odd)
        text = f"the files are not of one format: by its suffix {one.name} is {known}, and this one {other or 'none'}"
        ending = "".join(one.suffixes[-2:] if one.suffix in _PACKED else one.suffixes[-1:])
        glob = f"a pattern takes in some of them only: '{one.parent}/*{ending}'; or "
    raise IngestError(
        text, place=Place(odd.path), code="TL411",
        hint=f"{glob}say format= (--format): csv, json, parquet, orc, avro or text",
    )  # fmt: skip


def _not_unpacked(file: SourceFile, what: str, command: str) -> IngestError:
    name = shlex.quote(Path(file.path).name)
    return IngestError(
        f"the file is {what}, which is not read", place=Place(file.path), code="TL412",
        hint=f"unpack it: {command.format(name)}; texts may be in .gz, .zst, .bz2 or .lz4",
    )  # fmt: skip


def told_by_suffix(files: Sequence[SourceFile], format_: Format | None = None) -> bool:
    """Whether the suffix of some file tells a format, or this one."""
    found = {_by_suffix(file) for file in files}
    return format_ in found if format_ is not None else bool(found - {None})


def _by_suffix(file: SourceFile) -> Format | None:
    return _SUFFIXES.get(_suffix(file))


def _suffix(file: SourceFile) -> str:
    """A file's suffix, in small letters: where it is packed that of what is in it."""
    path = Path(file.path)
    return (Path(path.stem).suffix if path.suffix in _PACKED else path.suffix).lower()


_XZ = "compressed by xz", "xz -d {}"
_7Z, _TAR = ("a 7z archive", "7z x {}"), ("a tar archive", "tar -xf {}")
_Z = "compressed by compress", "gzip -d {}"
_UNREAD = {
    ".xz": _XZ, ".lzma": _XZ, ".zip": ("a zip archive", "unzip {}"), ".7z": _7Z, ".rar": ("a RAR archive", "unrar x {}"),
    ".tar": _TAR, ".tgz": _TAR, ".z": _Z, ".br": ("compressed by brotli", "brotli -d {}"),
    ".sz": ("compressed by snappy", "snzip -d {}"), ".snappy": ("compressed by snappy", "snzip -d {}"),
    ".lzo": ("compressed by lzop", "lzop -d {}"),
}  # fmt: skip
"""Ways in which files are packed that are not read, by suffix, with the command that unpacks them."""
_MAGIC_UNREAD = ((b"\xfd7zXZ\0", _XZ), (b"7z\xbc\xaf\x27\x1c", _7Z), (b"\x1f\x9d", _Z))
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PAR1", "a Parquet file: format= (--format) parquet"), (b"ORC", "an ORC file: format= (--format) orc"),
    (b"Obj\x01", "an Avro file: format= (--format) avro"), (b"\x1f\x8b", "compressed by gzip: its name must end in .gz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: its name must end in .zst"),
    (b"BZh", "compressed by bzip2: its name must end in .bz2"),
    (b"\x04\x22\x4d\x18", "compressed by lz4: its name must end in .lz4"),
    (b"PK\x03\x04", "a zip archive, or a spreadsheet: unpack it, or save it as CSV"),
    (b"\xff\xfe", "text in UTF-16: convert it to UTF-8"), (b"\xfe\xff", "text in UTF-16: convert it to UTF-8"),
    (b"SQLite format 3", "an SQLite database: export its tables"), (b"%PDF", "a PDF document: it has no rows"),
)  # fmt: skip
_LOOK = 64 << 10


def check_is_text(file: SourceFile, format_: Format) -> None:
    """Raise IngestError (TL412) for a file that is not the lines of text that it is taken for: known by its first bytes."""
    system, path = file.locate()
    if file.packed and not file.size:
        raise IngestError(
            "the file has no bytes, and a compressed one has some even where its text is empty", place=Place(file.path), code="TL412",
            hint="was it written to its end? Leave it out if it has no rows",
        )  # fmt: skip
    try:
        if file.packed:
            with system.open_input_stream(path, compression="detect") as stream:
                head = stream.read(_LOOK)
        else:
            with system.open_input_file(path) as stream:
                head = stream.read(_LOOK)
    except (OSError, pa.ArrowInvalid):
        return  # whoever reads it says what is wrong with it
    packed = next((how for magic, how in _MAGIC_UNREAD if head.startswith(magic)), None)
    if packed is not None or head[257:262] == b"ustar":
        raise _not_unpacked(file, *(packed or _TAR))
    known = next((what for magic, what in _MAGIC if head.startswith(magic)), None)
    if known is None and (binary := _is_binary(head)):
        known = f"binary: {binary}"
    if known is not None:
        raise IngestError(
            f"the file is no text but {known.partition(':')[0]}" if ":" in known else known, place=Place(file.path), code="TL412",
            hint="it was compressed twice: unpack it once" if file.packed and "must end in" in known else known.partition(": ")[2] or "leave it out",
        )  # fmt: skip
    if b"\n" not in head and b"\r" in head.removesuffix(b"\r"):
        raise IngestError(
            "its lines end with CR alone, as on old Macs: lines end with LF, or CR LF", place=Place(file.path), code="TL412",
            hint=_converted(file, "tr '\\r' '\\n'"),
        )  # fmt: skip
    if format_ == "json" and (what := _is_not_lines(head)) is not None:
        raise IngestError(what[0], place=Place(file.path), code="TL412", hint=_converted(file, what[1]))


_CONTROLS = bytes(n for n in range(1, 32) if n not in b"\t\n\v\f\r\x1b")
"""Bytes that texts do not have, beside 0. Of random ones they are a tenth."""
_MOST_CONTROLS = 20


def _is_binary(head: bytes) -> str:
    """What shows that these bytes are no text: most lines have one that is 0, or one in twenty is of those that texts do not have. Empty: nothing
    does. A line with one of these is a row like others; what is in it decides whether it is a bad one."""
    if b"\0" not in head:
        return ""
    lines = head.split(b"\n")
    first = f"byte {head.index(0) + 1} is 0"
    if sum(b"\0" in line for line in lines) * 2 > len([line for line in lines if line]):
        return f"{first}, and so are bytes in most of its lines"
    others = len(head) - len(head.translate(None, _CONTROLS))
    return (
        f"{first}, and {others / len(head):.0%} of its bytes are of no text"
        if others * _MOST_CONTROLS > len(head)
        else ""
    )


def _converted(file: SourceFile, command: str) -> str:
    """The command that makes of a file one that can be read."""
    name = Path(file.path).name
    plain = Path(name).stem if file.packed else name
    stem, suffix = Path(plain).stem, Path(plain).suffix
    how = {".gz": "zcat", ".bz2": "bzcat", ".zst": "zstdcat", ".lz4": "lz4cat"}.get(Path(name).suffix, "cat")
    return f"convert it: {how} {shlex.quote(name)} | {command} > {shlex.quote(f'{stem}-lines{suffix}')}"


def _is_not_lines(head: bytes) -> tuple[str, str] | None:
    """Of the first bytes of JSON that is not one object per line, what it is, and the command that makes lines of it."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if re.match(rb"\[\s*(\{|\]|\Z)", text):
        return "the file is one JSON array, not one object per line", "jq -c '.[]'"
    first, end, _ = text.partition(b"\n")
    if not text.startswith(b"{") or not end or any(map(_is_object, text.split(b"\n")[:_LINES])):
        return None
    try:
        _, length = json.JSONDecoder().raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        length = 0
    if length > len(first) or first.strip() == b"{":
        return (
            "its JSON objects stand over several lines each, not one object per line",
            "jq -c .",
        )
    return None


_LINES = 100


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(decoded(line, Any), dict)
    except (msgspec.DecodeError, RecursionError):
        return False
