"""Spark masters: whether a URL is one, and whether somebody answers there, before a JVM is started for it."""

from __future__ import annotations

import os
import re
import socket
import struct
from urllib.parse import urlsplit

from timelapse.errors import SetupError, meant

_LOCAL = re.compile(r"local(\[(?P<n>\d+|\*)(,\s*\d+)?\])?")
_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")
_PORTS = {"spark": 7077, "k8s": 443, "sc": 15002}
_SECONDS = 3.0


class WrongMaster(SetupError):
    """--master names no Spark master."""

    code = "TL703"


class Unreachable(SetupError):
    """Nobody answers at the Spark master."""

    code = "TL704"


_wanted: str | None = None


def want(master: str | None) -> None:
    """Which master this process starts a session for, where it needs one and none is named."""
    global _wanted
    _wanted = master


def wanted() -> str | None:
    """The master that was wanted, if one was."""
    return _wanted


def local_cores(master: str) -> int | None:
    """How many tasks a local master runs at a time; None where it is a cluster's."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    from timelapse.env.machine import cores

    return 1 if found["n"] is None else cores() if found["n"] == "*" else int(found["n"])


def check_master(master: str) -> None:
    """Raise WrongMaster for what is no master's URL, Unreachable where nobody answers at it within seconds."""
    found = _LOCAL.fullmatch(master)
    if (found is not None and found["n"] != "0") or _CLUSTER.fullmatch(master):
        return
    if master == "yarn":
        if not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
            raise WrongMaster(
                "--master yarn, and neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set",
                hint="set one of them to the folder of the cluster's configuration",
            )
        return
    scheme, mark, rest = master.partition("://")
    hosts = [] if scheme not in _PORTS or not mark else _hosts(scheme, rest)
    if not hosts:
        raise WrongMaster(
            f"{master!r} is no Spark master",
            hint=f"{meant(master, ['local[2]', 'local[*]', 'local', 'yarn'])}masters: local[4], local[*], spark://host:7077, k8s://https://host:443, yarn",
        )  # fmt: skip
    why = [
        _refusal(host, port) or (_stranger(host, port) if scheme == "spark" else "") for host, port in hosts
    ]
    if all(why):
        raise unreachable(master, "; ".join(why))


def unreachable(master: str, why: str) -> Unreachable:
    """The error for a master that does not answer."""
    return Unreachable(
        f"no Spark master answers at {master}: {why}",
        hint="is the master running, and are host and port right? `--master 'local[2]'` runs on this machine",
    )


def _hosts(scheme: str, rest: str) -> list[tuple[str, int]]:
    """Hosts and ports of a URL, of which spark:// may list several; none where it names none."""
    rest = rest.partition(";")[0]
    found = []
    for one in rest.split(",") if scheme == "spark" else [rest]:
        url = urlsplit(one if "://" in one else f"//{one}")
        try:
            host, port = url.hostname, url.port
        except ValueError:
            return []
        if not host:
            return []
        found.append((host, port or (80 if url.scheme == "http" else _PORTS[scheme])))
    return found


def _refusal(host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return ""


def _stranger(host: str, port: int) -> str:
    """What is wrong with who answers there: something else than a Spark master. Empty where that is not certain.

    Spark itself would try for 80 seconds. A master that is asked for a file that it does not have says so, in a frame of Spark's
    protocol: its length, then its type. One that asks for a secret first may be silent, or end the connection.
    """
    asked = b"/files/timelapse"
    frame = struct.pack(">QBI", 13 + len(asked), _STREAM_REQUEST, len(asked)) + asked
    try:
        with socket.create_connection((host, port), _SECONDS) as link:
            link.settimeout(_SECONDS)
            link.sendall(frame)
            found = link.recv(9)
    except OSError:
        return ""
    if len(found) < 9 or (found[:4] == bytes(4) and found[8] < _TYPES):
        return ""
    what = "a web server" if found.startswith(b"HTTP/") else "something"
    return f"{host}:{port}: {what} that does not speak Spark's protocol"


_STREAM_REQUEST = 6
_TYPES = 32
"""Frames have types below this."""
