"""The digest of a run: what it put out and what it rejected, to the last bit and in its place.

It does not depend on slicing: each row's hash covers its record type, position and fields, and the
hashes are added up (tables/rowhash.py). The sums, counts and schemas are then hashed together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pyarrow as pa

from timelapse.tables.rowhash import HashSum, hash_sum, one_array, seed_of

DIGEST_VERSION = 1


def hash_outputs(name: str, table: pa.Table) -> HashSum:
    """The sum over one record type's rows (stored columns)."""
    return _sum(f"record:{name}", table)


def hash_rejected(table: pa.Table) -> HashSum:
    """The sum over rejected events."""
    return _sum("rejected", table)


def _sum(seed: str, table: pa.Table) -> HashSum:
    return hash_sum([one_array(c) for c in table.columns], table.num_rows, seed_of(seed))


def schema_text(schema: pa.Schema) -> str:
    """A schema as one line: names, types, nullability."""
    return ", ".join(f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in schema)


def run_digest(outputs: Mapping[str, HashSum], schemas: Mapping[str, pa.Schema], rejected: HashSum) -> str:
    """The digest (32 hex digits) of a run. Record types without rows do not count."""
    h = hashlib.blake2b(digest_size=16)
    h.update(f"timelapse digest {DIGEST_VERSION}\n".encode())
    for name in sorted(outputs):
        total = outputs[name]
        if total.rows:
            h.update(f"{name}\n{schema_text(schemas[name])}\n{total.rows} {total.hex}\n".encode())
    h.update(f"rejected {rejected.rows} {rejected.hex}\n".encode())
    return h.hexdigest()


def state_digest(content: Mapping[str, HashSum]) -> str:
    """The digest of a state: every state's name, number of keys, and contents."""
    h = hashlib.blake2b(digest_size=16)
    for name in sorted(content):
        total = content[name]
        h.update(f"{name} {total.rows} {total.hex}\n".encode())
    return h.hexdigest()
