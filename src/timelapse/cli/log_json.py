"""What a log holds and was made of, as JSON: of `timelapse log`, `ingest` and `synth`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from timelapse.cli.columns_view import columns_json

if TYPE_CHECKING:
    from timelapse.log import LogInfo
    from timelapse.segments.manifest import IngestEntry

_OF_SOURCES = ("columns", "unused", "days_by", "prints")
"""What of a source is told elsewhere (`columns`), or says nothing to people."""


def log_json(info: LogInfo) -> dict[str, Any]:
    """All that `timelapse log` prints, and each ingest with what was read, decided and noticed."""
    return {
        "path": info.path, "id": info.id, "version": info.version, "events": info.count,
        "ts_first": info.ts_first, "ts_last": info.ts_last, "bytes": info.bytes, "segments": info.segments, "segment": info.segment,
        "bad": info.bad, "skipped": info.skipped, "days": info.days, "missing_days": info.missing_days, "gaps": info.gaps,
        "types": [
            {"name": t.name, "events": t.count, "bytes": t.bytes, "fields": dict(t.fields)} for t in info.types
        ],
        "columns": columns_json(info.ingests, [kind.name for kind in info.types]),
        "ingests": [_ingest_json(one) for one in info.ingests],
    }  # fmt: skip


def _ingest_json(ingest: IngestEntry) -> dict[str, Any]:
    sources = [
        {name: value for name, value in msgspec.structs.asdict(one).items() if name not in _OF_SOURCES}
        for one in ingest.sources
    ]
    return {
        "version": ingest.version, "events": ingest.events, "max_bad": ingest.max_bad, "sources": sources,
        "quarantine": ingest.quarantine, "tool": ingest.tool, "late": ingest.late, "as_before_up_to": ingest.rewritten,
        "replaced": ingest.replaced,
    }  # fmt: skip
