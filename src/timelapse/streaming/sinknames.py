"""How sinks are named on the command line. Apart from the sinks, which import what they write with: help is shown without that."""

from __future__ import annotations

SINKS: dict[str, str] = {
    "parquet:": "parquet:FOLDER",
    "delta:": "delta:FOLDER",
    "postgresql://": "postgresql://user@host/database",
    "kafka://": "kafka://broker:9092/prefix",
}
"""With what a sink's name begins, and an example. `sinks/choose.py` makes each of them; a test compares these with the sinks that there are."""


def sink_names() -> str:
    """All of them, for help and hints."""
    *others, last = SINKS.values()
    return f"{', '.join(others)}, or {last}"
