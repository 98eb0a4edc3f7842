"""`--labels` and what goes with it, for the commands that judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def judging_of(labels: str | None, *, until: str | None = None, **options: Any) -> dict[str, Any]:
    """The arguments of `judge`: labels, record, until and the other options. Empty without labels.

    Raises UsageError (TL800) for options without labels, or a time that is none.
    """
    from timelapse.compare import Labels
    from timelapse.errors import UsageError
    from timelapse.log.convert import Times, Unfit

    if labels is None:
        for name, value in {**options, "labels-until": until}.items():
            if value:
                raise UsageError(
                    f"--{name.rstrip('s')} needs --labels", hint="--labels reports.parquet", code="TL800"
                )
        return {}
    record, colon, path = labels.partition(":")
    if not colon or not record.isidentifier() or Path(labels).exists():
        record, path = "", labels
    try:
        moment = None if until is None else Times().of_text(until)
    except Unfit as error:
        raise UsageError(f"--labels-until: {error}", hint="2026-10-24, or 2026-10-24T12:00:00Z") from None
    return {"labels": Labels.of(path), "record": record or None, "until": moment, **options}
