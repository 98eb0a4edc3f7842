"""Archives of Java's classes (class data sharing): a JVM maps the classes that a session loads rather than reading and checking them.

An archive fits one Java and one folder of jars. It is made by `timelapse doctor --archive`, by a session of its own, and kept in the cache
folder. A session that Timelapse starts uses it where there is one. A JVM itself refuses an archive that does not fit (other options, another
class path) or was altered, and starts without. It dies of one that was cut off: so sizes are kept beside it, and compared before.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timelapse.env.java import Java
from timelapse.env.machine import cache_dir, own_folder
from timelapse.store.parts import put_file, write_part
from timelapse.store.scratch import temporary_folder

DRIVER, EXECUTOR = "spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"
"""Settings of Spark that come before what a user sets: so theirs are added, and count where both say the same."""
_FOLDER = "java-classes"
_SUFFIX, _BASE, _SIZES, _PARTIAL = ".jsa", "-base.jsa", ".sizes", ".partial"
_KEPT = 3
"""Archives that are kept: those used last. One has about 200 MB."""
_ROOM = 1 << 30
"""Bytes that have to be free where one is made."""
_SECONDS = 900
"""After so many, whoever makes one is given up; and what is still partial was left by a process that was killed."""
_STRICT = (19,)
"""From here on, an archive is refused where a jar is named twice, as Spark does. The bundled Java's script names it once (java.py)."""
_SAYS_SO = ("SharedArchiveFile", "ArchiveClassesAtExit", "AutoCreateSharedArchive", "-Xshare")
"""Options of a user who has an archive, or wants none."""
_ENVIRONMENT = (
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""That an archive was refused concerns nobody: the JVM would say so on standard output."""


@dataclass(frozen=True)
class Archive:
    """Where an archive is, or would be: of the JDK's own classes (None where the Java brings one), and of the classes of a session on top of it."""

    classes: Path
    base: Path | None

    def is_there(self) -> bool:
        """Whether it has been made, and its files have the sizes that they had then."""
        try:
            return self.sizes.read_text() == self.found()
        except OSError:
            return False

    def found(self) -> str:
        """The sizes of its files. Raises OSError."""
        return " ".join(str(path.stat().st_size) for path in self.files)

    @property
    def sizes(self) -> Path:
        return self.classes.with_suffix(_SIZES)

    @property
    def files(self) -> list[Path]:
        return [self.classes] if self.base is None else [self.base, self.classes]

    @property
    def options(self) -> str:
        """What a JVM is started with to use it."""
        return (
            f"-XX:SharedArchiveFile={os.pathsep.join(map(str, self.files))} -XX:+VerifySharedSpaces {_QUIET}"
        )


def archive(java: Java) -> Archive | None:
    """The archive for a Java and this PySpark, made or not. None where none can be: there is no place that only this user writes to, or no PySpark."""
    place = own_folder(_FOLDER)
    if place is None or any(sign in str(place) for sign in (" ", os.pathsep)):  # options are split at spaces
        return None
    try:
        name = hashlib.blake2b("\n".join(_fits(java)).encode(), digest_size=12).hexdigest()
    except (ImportError, OSError):
        return None
    brings = any(java.home.glob("lib/*/classes.jsa"))
    return Archive(place / f"{name}{_SUFFIX}", None if brings else place / f"{name}{_BASE}")


def _fits(java: Java) -> Iterator[str]:
    """All that an archive depends on: the Java and the jars, with their sizes and times."""
    from pyspark import __version__
    from pyspark.find_spark_home import _find_spark_home

    yield from ("1", java.text, __version__)
    modules = (java.home / "lib" / "modules").resolve()
    jars = sorted(Path(_find_spark_home(), "jars").glob("*.jar"))
    for path in (modules, *jars):
        found = path.stat()
        yield f"{path} {found.st_size} {found.st_mtime_ns}"


def settings(java: Java, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """What a session is started with for its JVMs to use the archive. Nothing where there is none, or where `conf` or the environment say
    something of archives themselves. Executors on other machines do not have it."""
    said: Iterable[str] = (*conf.values(), *(os.environ.get(name, "") for name in _ENVIRONMENT))
    if any(sign in text for text in said for sign in _SAYS_SO):
        return {}
    found = archive(java)
    if found is None or not found.is_there():
        return {}
    for path in found.files:
        with suppress(OSError):
            os.utime(path)
    names = (DRIVER, EXECUTOR) if master.startswith("local-cluster") else (DRIVER,)
    return dict.fromkeys(names, found.options)


# --- making one ---------------------------------------------------------------------------------------------


def make(java: Java) -> str | None:
    """Make the archive for a Java, where there is none. It takes the processor a minute. Returns why there is none; None where there is."""
    found = archive(java)
    if found is None:
        return f"there is no folder for it that only you can write to ({cache_dir()}), or no PySpark"
    if java.version >= _STRICT and java.origin != "bundled":
        return f"Java {java.text} takes none for Spark's class path, which names a jar twice; 17 and the bundled Java do"
    place = found.classes.parent
    with _alone(place):
        _tidy(place)
        if found.is_there():
            return None
        if shutil.disk_usage(place).free < _ROOM:
            return f"it needs about 200 MB, and less than 1 GiB is free ({place})"
        partial = place / f".{found.classes.name}.{uuid.uuid4().hex}{_PARTIAL}"
        try:
            _make(java, found, partial)
        except (OSError, subprocess.SubprocessError, _NotMade) as error:
            return f"Java {java.text} made none: {error}"
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        _tidy(place)
    return None


def _make(java: Java, wanted: Archive, partial: Path) -> None:
    below = ""
    if wanted.base is not None:
        _run([str(java.home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={partial}"], java)
        _publish(partial, wanted.base)
        below = f"-XX:SharedArchiveFile={wanted.base} "
    options = f"{below}-XX:ArchiveClassesAtExit={partial} {_QUIET}"
    code = f"from timelapse.env import spark_classes; spark_classes.train({options!r})"
    _run([sys.executable, "-c", code], java)
    _publish(partial, wanted.classes)
    write_part(wanted.sizes, wanted.found().encode())


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Of processes that make one, one does and the others wait. Where files cannot be locked, both do."""
    with ExitStack() as held:
        with suppress(OSError):
            file = held.enter_context(open(place / ".lock", "wb"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _NotMade(Exception):
    """What a process that should make a file said last."""


def _run(command: list[str], java: Java) -> None:
    done = subprocess.run(
        command, env={**os.environ, "JAVA_HOME": str(java.home)}, cwd=tempfile.gettempdir(), timeout=_SECONDS,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        raise _NotMade((done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1])


def _publish(partial: Path, path: Path) -> None:
    """Put a file in its place, whole: a JVM does not look for blocks that a loss of power left empty."""
    if not partial.is_file():
        raise _NotMade("the JVM wrote no archive")
    put_file(partial, path, lasting=True)


def _tidy(place: Path) -> None:
    """Keep the archives that were used last; remove others, and what killed processes have left. JVMs that have one mapped keep it."""
    now = time.time()
    used: dict[str, float] = {}
    for path in place.iterdir():
        with suppress(OSError):
            if path.name.endswith(_PARTIAL):
                if path.stat().st_mtime < now - _SECONDS:
                    path.unlink()
            elif path.name.endswith(_SUFFIX):
                name = path.name.removesuffix(_BASE).removesuffix(_SUFFIX)
                used[name] = max(used.get(name, 0.0), path.stat().st_mtime)
    for name in sorted(used, key=lambda name: -used[name])[_KEPT:]:
        for suffix in (_SIZES, _SUFFIX, _BASE):
            with suppress(OSError):
                (place / f"{name}{suffix}").unlink(missing_ok=True)


def train(options: str) -> None:
    """Do with Spark what replays and ingests do with it, in a JVM that is started with `options`, and wait for its end."""
    from pyspark import SparkContext

    from timelapse.env.spark_session import session

    spark: Any = session(master="local[2]", conf={DRIVER: options})
    with temporary_folder("classes") as folder:
        columns = ["id", "id % 7 AS kind", "cast(id AS string) AS name", "id / 2.0 AS half"]
        rows = spark.range(0, 1000, 1, 2).selectExpr(*columns)
        for form in ("parquet", "csv", "json"):
            rows.write.format(form).save(f"{folder}/{form}")
        spark.read.parquet(f"{folder}/parquet").createOrReplaceTempView("a")
        spark.read.schema(rows.schema).csv(f"{folder}/csv").createOrReplaceTempView("b")
        spark.sql(
            "SELECT a.kind, count(*) AS n, sum(a.half), max(b.name) FROM a JOIN b ON a.id = b.id "
            "WHERE a.id > 3 GROUP BY a.kind ORDER BY n DESC"
        ).collect()
        spark.read.json(f"{folder}/json").distinct().count()
        rows.mapInArrow(_same, rows.schema).groupBy("kind").count().toArrow()
        frame = rows.mapInPandas(_same, rows.schema).toPandas()
        spark.createDataFrame(frame).orderBy("name").limit(5).collect()
        shared = spark.sparkContext.broadcast(list(range(8)))
        pairs = spark.sparkContext.parallelize(range(8), 4).map(lambda n: (n % 2, shared.value[n]))
        pairs.groupByKey(2).mapValues(sum).collect()
    spark.stop()
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # at its end the JVM writes the archive
    gateway.proc.wait(_SECONDS)


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
