"""Shipping a job to other processes: the user's code travels with it, by value."""

from __future__ import annotations

import hashlib
import pickle
import sys
from pathlib import Path

from timelapse.engine.job import Job
from timelapse.errors import ReplayError
from timelapse.model.load import user_folders, user_modules
from timelapse.model.resource import pickled_resources, ship, shipped_in

_JOBS: dict[str, Job] = {}
_KEEP = 4


def pack(job: Job) -> bytes:
    """The job as bytes for `unpack`. Nothing of it is ever stored.

    Raises ReplayError when the program holds something that cannot travel.
    """
    from pyspark import cloudpickle

    modules = user_modules()
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        with pickled_resources() as resources:
            data = bytes(cloudpickle.dumps((user_folders(), job)))  # type: ignore[no-untyped-call]
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
        while len(_JOBS) >= _KEEP:
            _JOBS.pop(next(iter(_JOBS)))
        folders, job = pickle.loads(data)  # noqa: S301 our own bytes, from our own driver
        sys.path += [folder for folder in folders if folder not in sys.path]
        _JOBS[key] = job
    shipped_in(_resource_folder(job))
    return job
