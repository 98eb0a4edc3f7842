"""Shipping a job to other processes: the user's code travels with it, by value.

Program and passes are bytes of their own where the rest of the job has no part in them: a worker that has met the same bytes
keeps what it made of them, classes and what the compiler found for each pass, for the next replay.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from timelapse.engine.job import Job
from timelapse.errors import ReplayError
from timelapse.model.resource import pickled_resources, ship, shipped_in
from timelapse.program.load import user_folders, user_modules
from timelapse.segments.reader import LogReader

_JOBS: dict[str, Job] = {}
_PROGRAMS: dict[str, Any] = {}
"""Programs with their passes, by the hash of the bytes that they came in."""
_KEEP = 4


def pack(job: Job) -> bytes:
    """The job as bytes for `unpack`. Nothing of it is ever stored.

    Raises ReplayError when the program holds something that cannot travel.
    """
    from pyspark import cloudpickle

    job = replace(job, tuning=replace(job.tuning, times=1))  # workers load what is there
    modules = user_modules()
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        with pickled_resources() as resources:
            # Other readers may hold events, whose classes are the program's.
            alone = type(job.reader) is LogReader
            beside = job.aside.companions if job.aside else ()
            bare = job.aside and replace(job.aside, companions=())
            rest = replace(job, program=None, passes=(), aside=bare) if alone else None  # type: ignore[arg-type]
            first = (job.program, job.passes, beside) if alone else job
            code = bytes(cloudpickle.dumps((user_folders(), first)))  # type: ignore[no-untyped-call]
            data = pickle.dumps((code, bytes(cloudpickle.dumps(rest))))  # type: ignore[no-untyped-call]
        ship(resources, _resource_folder(job))
        return data
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ReplayError(
            f"the program cannot be shipped to Spark's workers: {error}",
            hint="keep open files, locks, clients and models out of module globals that handlers use; "
            "tl.resource(path, load) opens a file in each worker",
            code="TL506",
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _resource_folder(job: Job) -> Path:
    return job.scratch / "resources"


def job_id(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def unpack(key: str, data: bytes) -> Job:
    """The job, unpacked once per worker process."""
    job = _JOBS.get(key)
    if job is None:
        code, rest = pickle.loads(data)  # noqa: S301 our own bytes, from our own driver
        own, rest = _program(code), pickle.loads(rest)  # noqa: S301
        if rest is None:
            job = own
        else:
            program, passes, beside = own
            aside = rest.aside and replace(rest.aside, companions=beside)
            job = replace(rest, program=program, passes=passes, aside=aside)
        _JOBS[key] = job
        _forget(_JOBS)
    shipped_in(_resource_folder(job))
    return job


def _program(code: bytes) -> Any:
    """What was made of these bytes when they came first."""
    name = hashlib.sha256(code).hexdigest()
    if name not in _PROGRAMS:
        folders, found = pickle.loads(code)  # noqa: S301
        sys.path += [folder for folder in folders if folder not in sys.path]
        _PROGRAMS[name] = found
        _forget(_PROGRAMS)
    return _PROGRAMS[name]


def _forget(kept: dict[str, Any]) -> None:
    """Keep the newest few."""
    while len(kept) > _KEEP:
        kept.pop(next(iter(kept)))
