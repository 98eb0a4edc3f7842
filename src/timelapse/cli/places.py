"""Where runs lie: `runs/<Program>-<n>` when nobody says, and `@3`, `@last` for them."""

from __future__ import annotations

import re
from pathlib import Path

from timelapse.errors import Place, UsageError

RUNS = Path("runs")
_NAMED = re.compile(r".+-(\d+)")


def numbered() -> dict[int, Path]:
    """The runs in ./runs by number."""
    if not RUNS.is_dir():
        return {}
    found = {}
    for path in sorted(RUNS.iterdir()):
        match = _NAMED.fullmatch(path.name)
        if match and not path.name.startswith(".") and path.is_dir():
            found[int(match[1])] = path
    return found


def next_run(program: str) -> Path:
    """A free place for a run of a program. Numbers count over all programs, so `@3` names one run."""
    name = re.sub(r"[^\w.-]", "_", program)
    return RUNS / f"{name}-{max(numbered(), default=0) + 1}"


def find_run(reference: str) -> Path:
    """The directory that a path, `@n` or `@last` means. Raises UsageError (TL807)."""
    if not reference.startswith("@"):
        return Path(reference)
    known = numbered()
    wanted = reference[1:]
    if wanted == "last" and known:
        return known[max(known)]
    if wanted.isdecimal() and int(wanted) in known:
        return known[int(wanted)]
    listed = ", ".join(f"@{n} {path.name}" for n, path in sorted(known.items())[-5:])
    raise UsageError(
        f"there is no run {reference} in ./{RUNS}", place=Place(str(RUNS)), code="TL807",
        hint=f"runs: {listed}" if listed else "replay without --out first, or give the run's directory",
    )  # fmt: skip


def label(path: Path) -> str:
    """`@3` for a run in ./runs, else its path."""
    for number, known in numbered().items():
        if known.resolve() == path.resolve():
            return f"@{number}"
    return str(path)
