"""A PostgreSQL server for tests, in a folder of its own, from the binaries that Debian's `postgresql` installs."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
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

    def __init__(self, folder: Path) -> None:
        assert BINARIES is not None
        self._data = folder / "data"
        self._data.mkdir(mode=0o700)
        user = _as_user()
        if user:
            owner = user[1].partition("=")[2]
            shutil.chown(self._data, owner)
            for parent in self._data.parents:
                if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                    parent.chmod(parent.stat().st_mode | 0o011)
        self._run = user
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
