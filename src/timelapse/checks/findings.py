"""What checks find."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """What one check found. `details` are its figures, `hint` what to do."""

    name: str
    level: Level
    text: str
    hint: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "check": self.name, "level": self.level, "text": self.text, "hint": self.hint, "details": self.details,
        }  # fmt: skip


@dataclass(frozen=True)
class Check:
    """All findings, in the order of the checks."""

    program: str
    log: str
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Level:
        """The gravest level of all."""
        levels: tuple[Level, ...] = ("error", "warning", "note")
        return next((level for level in levels if any(f.level == level for f in self.findings)), "ok")

    @property
    def text(self) -> str:
        """A line or two per finding."""
        lines = []
        for f in self.findings:
            lines.append(f"{f.level:<8}{f.name:<14}{f.text}")
            if f.hint:
                lines.append(f"{'':<22}{f.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.text)}</pre>"

    def to_json(self) -> dict[str, Any]:
        """The findings as JSON holds them."""
        return {
            "program": self.program, "log": self.log, "worst": self.worst,
            "findings": [f.to_json() for f in self.findings],
        }  # fmt: skip
