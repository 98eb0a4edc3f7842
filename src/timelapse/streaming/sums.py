"""What a live run has put out, in hashes that add up: its digest is that of a replay of its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from timelapse.engine.digest import hash_outputs, hash_rejected, run_digest
from timelapse.engine.job import SumRow, record_name, same_name, schema_bytes, schema_of
from timelapse.kernels.base import PassResult
from timelapse.program.failure import Quarantined
from timelapse.streaming.format import Epoch
from timelapse.tables.rowhash import ZERO

_NONE = SumRow(0, 0, 0)


@dataclass(frozen=True)
class Emitted:
    """What rows of the journal put out: tables by the names of records, none of them empty."""

    outputs: Mapping[str, pa.Table]
    rejected: pa.Table
    quarantined: Sequence[Quarantined]

    @classmethod
    def of(cls, result: PassResult) -> Emitted:
        """What a pass put out. Raises ReplayError (TL509) for two records of one name."""
        found: dict[str, pa.Table] = {}
        for record, table in result.outputs.items():
            if table.num_rows:
                name = record_name(record)
                if name in found:
                    raise same_name(name)
                found[name] = table
        assert result.rejected is not None
        return cls(found, result.rejected, result.quarantined)


@dataclass
class Sums:
    """What was put out, in hashes that add up."""

    outputs: dict[str, SumRow] = field(default_factory=dict)
    schemas: dict[str, bytes] = field(default_factory=dict)
    rejected: SumRow = _NONE
    quarantined: int = 0

    @classmethod
    def of(cls, epoch: Epoch) -> Sums:
        return cls(dict(epoch.outputs), dict(epoch.schemas), epoch.rejected, epoch.quarantined)

    @property
    def digest(self) -> str:
        """That of a run that has put out the same."""
        schemas = {name: schema_of(data) for name, data in self.schemas.items()}
        return run_digest({n: s.sum() for n, s in self.outputs.items()}, schemas, self.rejected.sum())

    def then(self, found: Emitted) -> Sums:
        """With what further rows of the journal put out."""
        outputs, schemas = dict(self.outputs), dict(self.schemas)
        for name, table in found.outputs.items():
            before = outputs.get(name)
            outputs[name] = SumRow.of((ZERO if before is None else before.sum()) + hash_outputs(name, table))
            schemas.setdefault(name, schema_bytes(table.schema))
        rejected = SumRow.of(self.rejected.sum() + hash_rejected(found.rejected))
        return Sums(outputs, schemas, rejected, self.quarantined + len(found.quarantined))


def digest_of(epoch: Epoch) -> str:
    """The digest of all that a live run has put out up to an epoch's end: that of a replay of its journal."""
    return Sums.of(epoch).digest
