"""A PostgreSQL server for tests, in a folder of its own, from the binaries that Debian's `postgresql` installs."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

BINARIES = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)), None) or (
    str(Path(found).resolve().parent) if (found := shutil.which("initdb")) else None
)


def _as_user() -> list[str]:
    """The server refuses to run as root: as root it runs as `postgres` or `nobody`."""
    if os.geteuid() != 0:
        return []
    names = {p.pw_name for p in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    return ["setpriv", f"--reuid={user}", "--regid=" + str(pwd.getpwnam(user).pw_gid), "--clear-groups"]


class Server:
    """One server, on a free port of localhost."""

    def __init__(self) -> None:
        assert BINARIES is not None
        # Not below pytest's folders: another session shuts these against other users, of whom the server is one where root runs tests.
        kept = tempfile.TemporaryDirectory(prefix="timelapse-postgres-")
        self._kept, self._data = kept, Path(kept.name)
        self._run = user = _as_user()
        if user:
            shutil.chown(self._data, user[1].partition("=")[2])
        subprocess.run([*user, f"{BINARIES}/initdb", "-D", str(self._data), "-A", "trust", "-U", "tester", "-N"], check=True, capture_output=True, cwd="/")  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.dsn = f"postgresql://tester@127.0.0.1:{self.port}/postgres"
        self.start()

    def start(self) -> None:
        """Begin to answer."""
        options = f"-p {self.port} -k {self._data} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = self._data / "log"
        subprocess.run(
            [*self._run, f"{BINARIES}/pg_ctl", "-D", str(self._data), "-w", "-l", str(log), "-o", options, "start"], check=True, capture_output=True, cwd="/"
        )  # fmt: skip

    def stop(self, how: str = "immediate") -> None:
        """End as if it were killed."""
        subprocess.run([*self._run, f"{BINARIES}/pg_ctl", "-D", str(self._data), "-m", how, "-w", "stop"], check=False, capture_output=True, cwd="/")  # fmt: skip

    def close(self) -> None:
        """End, and leave nothing."""
        self.stop()
        self._kept.cleanup()
