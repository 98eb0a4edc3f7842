"""Archives of Java's classes: a session maps one that fits, starts as well with one that is broken, and keeps what users say to Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import LONG
from timelapse.env import doctor, java, machine, spark_classes, spark_session
from timelapse.env.spark_classes import DRIVER, EXECUTOR, Archive

SESSION = """
from timelapse.env.spark_session import session
spark = session(master="local[1]", conf={"spark.driver.extraJavaOptions": "-Dtheir.own=kept"})
print("RESULT", spark.range(10).count(), spark._jvm.java.lang.System.getProperty("their.own"))
maps = open(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/maps").read()
print("MAPPED", *sorted({line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")}))
spark.stop()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and an environment that says nothing of archives."""
    monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path))
    for name in spark_classes._ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def placed(cache: Path) -> Archive:
    """Files where the archive belongs, as if it had been made."""
    found = spark_classes.archive(java.find())
    assert found is not None
    assert not found.is_there()
    for path in found.files:
        path.write_bytes(b"no archive")
    found.sizes.write_text(found.found())
    return found


def _session() -> tuple[str, list[str]]:
    """What a session in a process of its own gives, and the archives that its JVM has mapped."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION], capture_output=True, text=True, timeout=LONG, check=False
    )
    lines = {line.partition(" ")[0]: line for line in done.stdout.splitlines()}
    assert "RESULT" in lines, done.stderr[-2000:]
    assert "[cds" not in done.stdout + done.stderr
    return lines["RESULT"], lines["MAPPED"].split()[1:]


def test_a_session_maps_the_archive_and_one_that_is_torn_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive that `make install` has made, where it has: making one takes a minute."""
    own = java.find()
    usual = spark_classes.archive(own)
    monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    found = spark_classes.archive(own)
    assert found is not None
    if usual is not None and usual.is_there():
        for old, new in zip((*usual.files, usual.sizes), (*found.files, found.sizes), strict=True):
            shutil.copyfile(old, new)
    assert spark_classes.make(own) is None
    names = {path.name for path in (*found.files, found.sizes)} | {".lock"}
    assert {path.name for path in (tmp_path / "java-classes").iterdir()} == names
    result, mapped = _session()
    assert result == "RESULT 10 kept"
    assert str(found.classes) in mapped
    check = next(c for c in doctor.run(tmp_path, spark=False) if c.name == "Java's classes")
    assert (check.status, str(found.classes) in check.value) == ("ok", True)

    made = found.classes.stat().st_mtime_ns
    assert spark_classes.make(own) is None  # it is there
    assert found.classes.stat().st_mtime_ns == made

    found.classes.chmod(0o600)
    with found.classes.open("r+b") as file:  # the JVM looks
        file.seek(found.classes.stat().st_size // 2)
        file.write(b"altered" * 1000)
    result, mapped = _session()
    assert result == "RESULT 10 kept"
    assert str(found.classes) not in mapped

    os.truncate(found.classes, found.classes.stat().st_size // 2)  # the JVM does not, and dies
    assert not found.is_there()
    assert spark_classes.settings(own, "local", {}) == {}


def test_no_archive_and_other_machines_leave_settings_as_they_are(cache: Path) -> None:
    own = java.find()
    assert spark_classes.settings(own, "local[2]", {}) == {}
    check = next(c for c in doctor.run(cache, spark=False) if c.name == "Java's classes")
    assert (check.status, "--archive" in (check.hint or "")) == ("warn", True)


def test_who_starts_with_it(placed: Archive) -> None:
    """The driver, and executors where they are on this machine; options of the user's come last, so they count."""
    own = java.find()
    assert spark_classes.settings(own, "local[2]", {}) == {DRIVER: placed.options}
    assert spark_classes.settings(own, "spark://far:7077", {}) == {DRIVER: placed.options}
    both = {DRIVER: placed.options, EXECUTOR: placed.options}
    assert spark_classes.settings(own, "local-cluster[2,1,1024]", {}) == both
    theirs = {DRIVER: "-Dx=1", "spark.executor.extraJavaOptions": "-Dy=2"}
    settings = spark_session._settings(own, "local-cluster[2,1,1024]", theirs)
    assert settings[DRIVER] == f"{placed.options} -Dx=1"
    assert settings[EXECUTOR] == f"{placed.options} {spark_session._SELDOM_OPTIMIZED}"
    assert settings["spark.executor.extraJavaOptions"] == "-Dy=2"
    assert (
        "log4j2" in spark_session._settings(own, "local", {"spark.driver.extraJavaOptions": "-Dx=1"})[DRIVER]
    )


@pytest.mark.parametrize("name", spark_classes._ENVIRONMENT)
def test_who_says_something_of_archives_is_not_contradicted(
    placed: Archive, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own = java.find()
    assert spark_classes.settings(own, "local", {"spark.driver.extraJavaOptions": "-Xshare:off"}) == {}
    monkeypatch.setenv(name, "-XX:SharedArchiveFile=/own.jsa")
    assert spark_classes.settings(own, "local", {}) == {}


def test_another_java_or_other_jars_have_another_archive(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    jar = tmp_path / "spark" / "jars" / "a.jar"
    jar.write_bytes(b"1")
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "modules").write_bytes(b"modules")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    first = spark_classes.archive(java.Java(home, (17, 0, 9), "PATH"))
    assert first is not None
    assert first.base is not None  # this Java brings none
    assert first.options.startswith(f"-XX:SharedArchiveFile={first.base}:{first.classes} ")
    assert spark_classes.archive(java.Java(home, (17, 0, 9), "PATH")) == first
    names = {first.classes}
    jar.write_bytes(b"22")
    names |= {a.classes for a in [spark_classes.archive(java.Java(home, (17, 0, 9), "PATH"))] if a}
    names |= {a.classes for a in [spark_classes.archive(java.Java(home, (17, 0, 10), "PATH"))] if a}
    (home / "lib" / "modules").write_bytes(b"others")
    names |= {a.classes for a in [spark_classes.archive(java.Java(home, (17, 0, 10), "PATH"))] if a}
    assert len(names) == 4
    (home / "lib" / "server" / "classes.jsa").touch()
    brings = spark_classes.archive(java.Java(home, (17, 0, 10), "PATH"))
    assert brings is not None
    assert brings.base is None


def test_a_java_that_makes_none_is_told(cache: Path, tmp_path: Path) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").touch()
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'Unrecognized option: -Xshare:dump'\nexit 1\n")
    program.chmod(0o755)
    why = spark_classes.make(java.Java(home, (17, 0, 9), "PATH"))
    assert why is not None
    assert "Unrecognized option" in why
    assert {path.name for path in (cache / "java-classes").iterdir()} == {".lock"}
    program.write_text("#!/bin/sh\nexit 0\n")  # and writes nothing
    assert "no archive" in (spark_classes.make(java.Java(home, (17, 0, 9), "PATH")) or "")


def test_a_java_that_takes_none_is_told(cache: Path, tmp_path: Path) -> None:
    home = tmp_path / "java"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / "modules").touch()
    assert "names a jar twice" in (spark_classes.make(java.Java(home, (21, 0, 8), "PATH")) or "")


def test_without_a_place_or_room_there_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = java.find()
    monkeypatch.setattr(spark_classes, "_ROOM", 1 << 62)
    assert "free" in (spark_classes.make(own) or "")
    (cache / "java-classes").chmod(0o777)  # others may write there
    assert machine.own_folder("java-classes") is None
    assert spark_classes.archive(own) is None
    assert "only you" in (spark_classes.make(own) or "")
    assert spark_classes.settings(own, "local", {}) == {}


def test_those_used_last_are_kept(placed: Archive) -> None:
    place = placed.classes.parent
    before = time.time() - 1000
    for n in range(5):
        for suffix in ("-base.jsa", ".jsa", ".sizes"):
            path = place / f"{n}{suffix}"
            path.touch()
            os.utime(path, (before + n, before + n))
    killed, running = place / ".x.jsa.1.partial", place / ".x.jsa.2.partial"
    for path in (killed, running):
        path.touch()
    os.utime(killed, (before, before))
    spark_classes.settings(java.find(), "local", {})
    spark_classes._tidy(place)
    kept = {path.name for path in (*placed.files, placed.sizes)} | {running.name}
    kept |= {f"{n}{suffix}" for n in (3, 4) for suffix in ("-base.jsa", ".jsa", ".sizes")}
    assert {path.name for path in place.iterdir()} == kept


def test_javas_second_compiler_waits_longer_and_options_of_the_users_come_last() -> None:
    own = java.find()
    options = spark_session._settings(own, "local[2]", {})[DRIVER].split()
    said = subprocess.run(
        [own.home / "bin" / "java", *(o for o in options if "log4j" not in o), "-XX:+PrintFlagsFinal", "-version"],
        capture_output=True, text=True, check=True, timeout=LONG,
    ).stdout  # fmt: skip
    flags = {words[1]: words[3] for line in said.splitlines() if len(words := line.split()) > 3}
    assert flags["Tier4InvocationThreshold"] == "50000"
    assert flags["Tier4BackEdgeThreshold"] == "400000"
    assert spark_session._settings(own, "spark://far:7077", {})[EXECUTOR] == spark_session._SELDOM_OPTIMIZED
    theirs = {"spark.driver.extraJavaOptions": "-XX:Tier4InvocationThreshold=5000"}
    assert spark_session._settings(own, "local[2]", theirs).items() >= theirs.items()
