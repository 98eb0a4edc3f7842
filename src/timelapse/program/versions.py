"""A program as it was: `FILE:Class@REV`, from the file's git repository.

The revision's files are unpacked into a temporary folder, so the working tree is not touched. What the file imports
from its repository comes from the same revision, even where this process has loaded today's version already.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import weakref
from functools import lru_cache
from pathlib import Path

from timelapse.errors import Place, UsageError
from timelapse.program.load import load_program, user_modules
from timelapse.program.program import Program
from timelapse.store.places import local_path
from timelapse.store.scratch import process_folder

_VERSIONED = re.compile(r"(.*?\.py(?::[\w.]*)?)@(.+)", re.DOTALL)
_ORIGINS: weakref.WeakKeyDictionary[type[Program], str] = weakref.WeakKeyDictionary()


def split_revision(reference: str) -> tuple[str, str | None]:
    """`rules.py:Antispam@main` -> `rules.py:Antispam`, `main`. An @ in the path stays with the path."""
    found = _VERSIONED.fullmatch(reference)
    return (found[1], found[2]) if found else (reference, None)


def load_named(reference: str) -> type[Program]:
    """The program class that a command's `FILE:Class`, `module:Class` or `FILE:Class@REV` names.

    Raises UsageError as `load_program` and `load_versioned` do.
    """
    return load_program(reference) if split_revision(reference)[1] is None else load_versioned(reference)


def load_versioned(reference: str) -> type[Program]:
    """The program class that `FILE:Class` or `FILE:Class@REV` names, loaded apart from what is loaded already.

    Raises UsageError as `load_program` does, and TL817 when there is no such revision or no such file in it.
    """
    plain, revision = split_revision(reference)
    if revision is None:
        return load_apart(reference, None)
    file, _, name = plain.partition(".py")
    where, name = f"{file}.py", name.removeprefix(":")
    path = local_path(where, "program")
    if not path.parent.is_dir():
        raise UsageError(
            f"{where} does not exist", hint="name a Python file: rules.py:Antispam@main", code="TL803"
        )
    top = Path(_git(path, "rev-parse", "--show-toplevel")).resolve()
    commit = _git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    old = _unpacked(top, commit) / path.resolve().relative_to(top)
    if not old.is_file():
        raise UsageError(
            f"{where} is not in revision {revision}", place=Place(where),
            hint=f"git log -- {where}  shows the revisions that have it", code="TL817",
        )  # fmt: skip
    found = load_apart(f"{old}:{name}" if name else str(old), top)
    _ORIGINS[found] = f"{path.resolve()}:{found.__qualname__}@{commit}"
    return found


def origin_of(program: type[Program]) -> str | None:
    """The reference, with the commit's full name, by which a program of another revision was loaded."""
    return _ORIGINS.get(program)


def _git(file: Path, *arguments: str) -> str:
    command = ["git", "-C", str(file.parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}", hint="install git", code="TL817") from None
    if done.returncode:
        revision = arguments[-1].removesuffix("^{commit}")
        what = (
            f"there is no revision {revision!r}"
            if arguments[-1].endswith("^{commit}")
            else f"{file} is in no git repository"
        )
        raise UsageError(
            what, place=Place(str(file)), hint="FILE:Class@REV takes a branch, tag or commit", code="TL817"
        )
    return done.stdout.strip()


@lru_cache(maxsize=32)
def _unpacked(top: Path, commit: str) -> Path:
    """The files of a commit, in a folder that goes when the process ends."""
    done = subprocess.run(
        ["git", "-C", str(top), "archive", "--format=tar", commit], capture_output=True, check=False
    )
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise UsageError(
            f"git cannot give the files of {commit[:12]}: {reason}", place=Place(str(top)), code="TL817"
        )
    folder = process_folder("revision")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python before 3.11.4
            members = [m for m in archive.getmembers() if _stays_inside(m)]
            archive.extractall(folder, members)  # noqa: S202  these were looked at
    return folder.resolve()


def _stays_inside(member: tarfile.TarInfo) -> bool:
    """Whether it is a folder, a file or a link, and neither it nor what it links to lies elsewhere."""
    if not (member.isdir() or member.isfile() or member.issym()):
        return False
    named = [member.name]
    if member.issym():
        named.append(os.path.join(os.path.dirname(member.name), member.linkname))
    return not any(os.path.isabs(n) or os.path.normpath(n).split(os.sep)[0] == os.pardir for n in named)


def load_apart(reference: str, folder: Path | None, *, beside: Path | None = None) -> type[Program]:
    """Load with no module in sight that another program brought along: each sees the files beside it.

    Nothing is imported from below `folder`, but for what the reference names; imports look into `beside` first.
    Modules that were loaded before stay what they are; where names clash, functions keep the modules that they were
    defined with.
    """
    before = {m.__name__: m for m in user_modules()}
    path = list(sys.path)
    for name in before:
        del sys.modules[name]
    if folder is not None:
        sys.path[:] = [p for p in sys.path if not Path(p or ".").resolve().is_relative_to(folder)]
    if beside is not None:
        sys.path.insert(0, str(beside))
    try:
        return load_program(reference)
    finally:
        sys.modules.update(before)
        sys.path[:] = path
