"""What a report does not say: values of fields that were named, and whatever may hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from timelapse.display import clean, one_line
from timelapse.errors import UsageError, meant
from timelapse.program.program import Program, spec_of
from timelapse.results.records import nameable_records

if TYPE_CHECKING:
    from timelapse.run import Run

HIDDEN = "(redacted)"
PLACE = ("ts", "phase", "seq", "ordinal")
LONGEST = 160
"""Characters of a value that are shown."""


@dataclass(frozen=True)
class Redaction:
    """Names of fields, parameters, or `Record.field`, whose values stay out.

    As soon as anything is redacted, texts and values that may hold it in another form stay out as well: reasons of
    rejections (text that the program wrote) and what handlers read on their way (`any`).
    """

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, names: Iterable[str], runs: Sequence[Run]) -> Redaction:
        """Check the names against what the runs have. Raises UsageError (TL816): a typing error would show everything."""
        fields = {
            (r.name, field)
            for run in runs
            for r in run.manifest.records
            for field in field_names(run, r.name)
        }
        return cls(_checked(names, fields, {p for run in runs for p in run.params}))

    @staticmethod
    def check(names: Iterable[str], programs: Sequence[Program]) -> None:
        """Raise the UsageError (TL816) of `of` before the programs are replayed."""
        fields = {(r.__name__, f.name) for p in programs for r in nameable_records(p) for f in r.__fields__}
        _checked(names, fields, {name for p in programs for name in spec_of(p).params})

    @property
    def any(self) -> bool:
        """Whether anything is redacted."""
        return bool(self.names)

    def hides(self, record: str, field: str) -> bool:
        """Whether a field of a record is redacted."""
        return field in self.names or f"{record}.{field}" in self.names

    def hides_param(self, name: str) -> bool:
        """Whether a parameter is redacted."""
        return name in self.names

    def value(self, record: str, field: str, value: Any) -> str:
        """A field's value as text."""
        return HIDDEN if self.hides(record, field) else shown(value)


def _checked(names: Iterable[str], fields: set[tuple[str, str]], params: set[str]) -> frozenset[str]:
    wanted = frozenset(n.strip() for text in names for n in text.split(","))
    known = {f for _, f in fields} | {f"{r}.{f}" for r, f in fields} | params
    for name in sorted(wanted):
        if name not in known:
            raise UsageError(
                f"--redact {one_line(name) or 'an empty name'}: no record and no parameter is called so",
                hint=f"{meant(name, known)}names: {', '.join(sorted(known)) or 'none'}", code="TL816",
            )  # fmt: skip
    return wanted


def field_names(run: Run, record: str) -> list[str]:
    """The fields of a record type, without its place."""
    return [name for name in run.schema(record).names if name not in PLACE]


def shown(value: Any) -> str:
    """A value as text of bounded length: control characters as escapes, a cut one with its whole length."""
    if isinstance(value, str):
        return _cut(value, len(value), "characters")
    if isinstance(value, bytes):
        return _cut(repr(value[: LONGEST + 1]), len(value), "bytes") if len(value) > LONGEST else repr(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _cut(repr(value), len(repr(value)), "characters")


def _cut(text: str, length: int, unit: str) -> str:
    if len(text) <= LONGEST:
        return clean(text.replace("\n", "\\n").replace("\t", "\\t"))
    return f"{clean(text[:LONGEST].replace(chr(10), chr(92) + 'n').replace(chr(9), chr(92) + 't'))}… ({length:,} {unit})"
