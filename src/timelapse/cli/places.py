"""Where runs lie: `runs/<Program>-<n>` when nobody says, and `@3`, `@last` for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from timelapse.errors import Place, SetupError, UsageError, meant
from timelapse.store.remote import RemotePath, place_path

RUNS = Path("runs")
_NAMED = re.compile(r".+-(\d+)")


def _paths() -> list[Path]:
    return sorted(p for p in RUNS.iterdir() if p.is_dir()) if RUNS.is_dir() else []


def _number(path: Path) -> int | None:
    match = _NAMED.fullmatch(path.name)
    return int(match[1]) if match and not path.name.startswith(".") else None


def numbered() -> dict[int, Path]:
    """What lies in ./runs, by number: runs, and places of runs that are being made."""
    return {number: path for path in _paths() if (number := _number(path)) is not None}


@contextmanager
def new_run(program: str) -> Iterator[Path]:
    """A place for a run of a program, which no other replay takes in the meantime.

    Numbers count over all programs, so `@3` names one run. Until the run is there the place is an
    empty folder; it goes where nothing comes of the run.
    """
    name = re.sub(r"[^\w.-]", "_", program)
    try:
        RUNS.mkdir(exist_ok=True)
        place = _reserve(name)
    except OSError as error:
        raise SetupError(
            f"the run cannot be written: {error.strerror}", place=Place(str(RUNS)),
            hint="choose another directory with --out", code="TL710",
        ) from None  # fmt: skip
    try:
        yield place
    finally:
        with suppress(OSError):
            place.rmdir()
            RUNS.rmdir()


def _reserve(name: str) -> Path:
    number = max(numbered(), default=0)
    while True:
        number += 1
        place = RUNS / f"{name}-{number}"
        try:
            place.mkdir()
        except FileExistsError:
            continue
        if [p for p in _paths() if _number(p) == number] == [place]:
            return place
        place.rmdir()  # another program's replay took the number at the same moment


def find_run(reference: str) -> Path:
    """The directory that a path, a name in ./runs, `@n` or `@last` means. Raises UsageError (TL807)."""
    if not reference.startswith("@"):
        given = place_path(reference, "run")
        if isinstance(given, RemotePath):
            return given
        named = RUNS / given
        return named if not given.exists() and (named / "run.json").is_file() else given
    known = {number: path for number, path in numbered().items() if any(path.iterdir())}
    wanted = reference[1:]
    if wanted == "last" and known:
        return known[max(known)]
    if wanted.isdecimal() and int(wanted) in known:
        return known[int(wanted)]
    listed = ", ".join(f"@{n} {path.name}" for n, path in sorted(known.items())[-5:])
    raise UsageError(
        f"there is no run {reference} in ./{RUNS}", place=Place(str(RUNS)), code="TL807",
        hint=f"{meant(reference, ['@last', *(f'@{n}' for n in known)])}runs: {listed}" if listed else "replay without --out first, or give the run's directory",
    )  # fmt: skip


def is_live(reference: str) -> bool:
    """Whether a live run is at a path or URL."""
    from timelapse.streaming.format import RUN

    if reference.startswith("@"):
        return False
    given = place_path(reference, "run")
    return given.place.exists(RUN) if isinstance(given, RemotePath) else (given / RUN).is_file()


def label(path: Path) -> str:
    """`@3` for a run in ./runs, else its path."""
    for number, known in numbered().items():
        if known.resolve() == path.resolve():
            return f"@{number}"
    return str(path)
