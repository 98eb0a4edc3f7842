"""What each error code means: for `timelapse help CODE`, and docs/errors.md is made of it.

`python -m timelapse.cli.catalogue` prints docs/errors.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from timelapse.cli.codes import TEXT
from timelapse.errors import UsageError, meant


@dataclass(frozen=True)
class Entry:
    """One code: a title, and what it means with what to do."""

    code: str
    title: str
    meaning: str


_OPAQUE = "Analysis: where it cannot see through (exact all the same, possibly slower)"
_SECTIONS: tuple[tuple[str, str], ...] = (
    ("TL0", "Timelapse itself"),
    ("TL10", "Definitions: refused when a class is defined"),
    ("TL11", "Purity: what a replay could not reproduce"),
    ("TL12", "Time: refused when a class is defined"),
    ("TL2", "Values, while events are processed"),
    ("TL30", _OPAQUE),
    ("TL31", _OPAQUE),
    ("TL32", "Trusted calls, and warnings"),
    ("TL35", "Plans"),
    ("TL4", "Logs and ingest"),
    ("TL5", "Replays"),
    ("TL6", "Runs"),
    ("TL7", "The machine"),
    ("TL8", "Commands and calls"),
    ("TL91", "Training"),
    ("TL92", "Files of runs"),
    ("TL93", "Files and places"),
    ("TL94", "Live runs"),
    ("TL95", "Snapshots of states"),
)


def _parse() -> dict[str, Entry]:
    found = {}
    for block in TEXT.strip().split("\n\n"):
        head, _, meaning = block.partition("\n")
        code, _, title = head.partition(" ")
        found[code] = Entry(code, title, meaning.strip())
    return found


CODES: dict[str, Entry] = _parse()


def entry(code: str) -> Entry:
    """The entry of a code, however it is written. Raises UsageError (TL814), which names the nearest of codes and commands."""
    wanted = code.strip().upper()
    wanted = wanted if wanted.startswith("TL") else f"TL{wanted}"
    if wanted not in CODES:
        from timelapse.cli.main import COMMANDS

        raise UsageError(
            f"there is no error code {code!r}",
            hint=f"{meant(code, (*COMMANDS, *CODES))}timelapse help lists them",
            code="TL814",
        )
    return CODES[wanted]


def markdown() -> str:
    """docs/errors.md."""
    lines = [
        "# Error codes", "",
        "Every error has a code, a place, a message and a hint. `timelapse help TL114` shows an entry of this list.",
        "Made from `src/timelapse/cli/codes.py` and `src/timelapse/cli/codes_of_programs.py`: `python -m timelapse.cli.catalogue > docs/errors.md`.",
    ]  # fmt: skip
    section = ""
    for code, known in CODES.items():
        found = next(title for prefix, title in _SECTIONS if code.startswith(prefix))
        if found != section:
            section = found
            lines += ["", f"## {section}"]
        lines += ["", f"**{code} {known.title}.** {known.meaning}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
