"""`--labels` and what goes with it, for the commands that judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="The labels' column that says right or wrong, by default label; none: every row is right.",
    ),
]
LabelTime = Annotated[
    str | None,
    typer.Option("--label-ts", metavar="COLUMN", help="The labels' column of times, by default ts."),
]
LabelKey = Annotated[
    str | None,
    typer.Option(
        "--label-key",
        metavar="COLUMN,...",
        help="The labels' columns that name the output, in the order of the record's key.",
    ),
]


def judging_of(
    labels: str | None, *, until: str | None = None, label: str | None = None, label_ts: str | None = None,
    label_key: str | None = None, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """The arguments of `judge`: labels, record, until and the other options. Empty without labels.

    Raises UsageError (TL800) for options without labels, or a time that is none.
    """
    from timelapse.cli.options import names_of
    from timelapse.compare import Labels
    from timelapse.errors import UsageError
    from timelapse.ingest.amounts import Unfit
    from timelapse.ingest.times import Times

    columns = {"label": label, "label-ts": label_ts, "label-key": label_key}
    if labels is None:
        for name, value in {**options, "labels-until": until, **columns}.items():
            if value:
                flag = name if name == "labels-until" else name.rstrip("s") if name == "segments" else name
                raise UsageError(f"--{flag} needs --labels", hint="--labels reports.parquet", code="TL800")
        return {}
    record, colon, path = labels.partition(":")
    if not colon or not record.isidentifier() or path.startswith("//") or Path(labels).exists():
        record, path = "", labels
    try:
        moment = None if until is None else Times().of_text(until)
    except Unfit as error:
        raise UsageError(f"--labels-until: {error}", hint="2026-10-24, or 2026-10-24T12:00:00Z") from None
    key = [] if label_key is None else names_of("--label-key", [label_key], "txn_id")
    found = Labels.of(path, label=label, ts=label_ts, key=key)
    return {"labels": found, "record": record or None, "until": moment, **options}
