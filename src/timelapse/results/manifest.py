"""What a run's directory says of itself: `run.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from timelapse.decoding import decoded
from timelapse.engine.job import SumRow
from timelapse.errors import Place, RunError
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.registry import kinds
from timelapse.model.types import ListType, OptionalType, ScalarType, TupleType, ValueType, scalar_named
from timelapse.store import manifests
from timelapse.store.disk import DISK, Disk
from timelapse.store.parts import Part
from timelapse.tables.rowhash import HashSum

FORMAT = 1
NAME = "run.json"
REMEDY = "restore it from a copy, or replay again"
"""What to do about a file of a run that was altered."""


class StateEntry(msgspec.Struct, frozen=True):
    """A state's declaration as stored."""

    name: str
    kind: str
    key: Any = None
    value: Any = None
    outer: Any = None
    inner: Any = None
    options: dict[str, Any] = {}

    @classmethod
    def of(cls, spec: StateSpec) -> StateEntry:
        key = None if spec.key is None else _type_out(spec.key)
        value = None if spec.value is None else _type_out(spec.value)
        outer = None if spec.outer is None else _type_out(spec.outer)
        inner = None if spec.inner is None else _type_out(spec.inner)
        return cls(spec.name, spec.kind.__name__, key, value, outer, inner, dict(spec.options))

    def spec(self) -> StateSpec:
        key = None if self.key is None else _type_in(self.key)
        value = None if self.value is None else _type_in(self.value)
        outer = None if self.outer is None else _type_in(self.outer)
        inner = None if self.inner is None else _type_in(self.inner)
        options = tuple(self.options.items())
        return StateSpec(self.name, kinds()[self.kind], key, value, ABSENT, None, outer, inner, options)


class RecordEntry(msgspec.Struct, frozen=True):
    """A record type of the run: rows, the hash of its rows, its Arrow schema (IPC) and diff key."""

    name: str
    rows: int
    hash: str
    schema: bytes
    key: tuple[str, ...] = ()

    def sum(self) -> HashSum:
        """The hash of its rows, to be added to."""
        return HashSum(int(self.hash[16:], 16), int(self.hash[:16], 16), self.rows)


class RunManifest(msgspec.Struct, frozen=True):
    """Everything about a run but its rows."""

    format: int
    timelapse: str
    program: str
    """The class's qualified name."""
    source: str | None
    """`FILE:Class`, where the program can be loaded from again."""
    fingerprint: str
    params: dict[str, str]
    """Parameter values, as Python literals."""
    log: str | None
    log_id: str | None
    events: int
    cuts: list[int]
    records: list[RecordEntry]
    states: list[StateEntry]
    rejected: int
    digest: str
    state_digest: str
    started: str
    """UTC, ISO 8601."""
    seconds: float
    timings: dict[str, float]
    executor: str
    certificate: dict[str, Any]
    plan: str
    account: dict[str, float] = {}
    """Core-seconds by phase (engine/account.py): together the seconds times the cores that could be used."""
    without: list[int] = []
    """Events of the log that were left out from the beginning, by rising seq."""
    part: list[int] = []
    """Of a run over a part of its log: the seq from which on, and the one before which events were replayed. Empty: all were."""
    types: list[str] = []
    """Of a run over some event types of its log: which. Empty: the log's events of all types were replayed."""
    quarantined: int | None = None
    """Events that were taken out of the log because a handler raised; None: it was not asked for."""
    pending: dict[str, int] = {}
    """What lay ahead at the end: dated writes by state, dated events by type, `after=` calls by handler."""
    until: int | None = None
    """The time to which the clock went on after the last event, where it was asked for."""
    clocks: dict[int, int] = {}
    """How far the clock had gone on at the ends of slices before the last, by how many slices end there: where this run goes on from one
    that had `until`. At all others it had gone on to the last event's time."""
    content: dict[str, SumRow] = {}
    """By state the hash of all it holds at the end, for a run that starts from this one."""
    rejected_sum: SumRow | None = None
    """The hash of all rejections, for the same."""
    logs: list[list[str]] = []
    """Path and id of each log, where the run was over several, one after the other; `log` is then the first one's path."""
    files: dict[str, Part] | None = None
    """All other files by their paths in the run's folder; None: a run of a version that did not keep checksums."""
    seal: str | None = None
    """The checksum of this manifest (store/manifests.py)."""


def write_manifest(manifest: RunManifest, folder: Path, *, lasting: bool = True, disk: Disk = DISK) -> None:
    """Write `run.json`; durably if the run is to outlive the process. Raises FileExistsError where there is one."""
    data = manifests.sealed(msgspec.structs.replace(manifest, seal=manifests.UNSEALED), indent=2)
    manifests.create(folder / NAME, data, lasting=lasting, disk=disk)


def read_manifest(folder: Path) -> RunManifest:
    """Read `run.json`. Raises RunError naming the file, StorageError (TL931) where it was altered."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(
            "this is not a run: it has no run.json", place=Place(str(folder)),
            hint="give the directory that `timelapse replay --out` named", code="TL601",
        ) from None  # fmt: skip
    try:
        version = decoded(data, dict[str, Any]).get("format")
        if version != FORMAT:
            raise RunError(
                f"the run has format {version}; this version of Timelapse reads {FORMAT}",
                place=Place(str(path)), hint="replay again, or use the version that wrote it", code="TL602",
            )  # fmt: skip
        manifests.check_seal(data, path, REMEDY)
        return decoded(data, RunManifest)
    except msgspec.MsgspecError as error:
        raise RunError(
            f"the run's description is damaged: {error}", place=Place(str(path)), hint="replay again",
            code="TL602",
        ) from None  # fmt: skip


def _type_out(kind: ValueType) -> Any:
    if isinstance(kind, ScalarType):
        return kind.name
    if isinstance(kind, OptionalType):
        return {"optional": _type_out(kind.inner)}
    if isinstance(kind, ListType):
        return {"list": _type_out(kind.inner)}
    if isinstance(kind, TupleType):
        return {"tuple": [_type_out(t) for t in kind.items], "names": list(kind.names)}
    raise TypeError(kind.text)


def _type_in(stored: Any) -> ValueType:
    if isinstance(stored, str):
        return scalar_named(stored) or ScalarType(stored)
    if "optional" in stored:
        return OptionalType(_type_in(stored["optional"]))
    if "list" in stored:
        return ListType(_type_in(stored["list"]))
    return TupleType(tuple(_type_in(t) for t in stored["tuple"]), tuple(stored["names"]))
