"""Which tests pytest-xdist runs in one process, for `--dist loadgroup`.

Tests that take the Spark session run in one process: a second process would start a second JVM. The other tests stay
together by file: a file's tests share what was compiled, and fixtures of the module.

pytest-xdist's own groups are suffixes of names, which pytest drops from 9.2 on: all tests were spread one by one, and
nothing said so. Here the processes that collected the tests write the groups into a file.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.marks import takes_session
from tests.times import file_of

SPARK = "spark"
_ASKED = "timelapse_groups"


def group_of(item: pytest.Item) -> str:
    return SPARK if takes_session(item) else file_of(item)


def ask(node: Any) -> None:
    """Tell a process, before it starts, where to write the groups."""
    config = node.config
    if not hasattr(config, "_timelapse_groups"):
        found = tempfile.TemporaryDirectory(prefix="timelapse-groups-")
        config.add_cleanup(found.cleanup)
        config._timelapse_groups = Path(found.name, "groups.json")
    node.workerinput[_ASKED] = str(config._timelapse_groups)


def tell(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Write the groups, in a process that was asked. All processes collect the same tests."""
    path = getattr(config, "workerinput", {}).get(_ASKED)
    if path is not None:
        aside = Path(f"{path}.{os.getpid()}")
        aside.write_text(json.dumps({item.nodeid: group_of(item) for item in items}))
        aside.replace(path)


def scheduler(config: pytest.Config, log: Any) -> Any:
    """What hands out whole groups, in the order of their first tests; nothing, where other ways are asked for."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Grouped(LoadScopeScheduling):  # type: ignore[misc]
        groups: dict[str, str] | None = None

        def _split_scope(self, nodeid: str) -> str:
            if self.groups is None:
                self.groups = json.loads(config._timelapse_groups.read_text())  # type: ignore[attr-defined]
            return self.groups[nodeid]

        def remove_node(self, node: Any) -> str | None:
            """What a process that is gone had left to others, without the test that it died of.

            pytest-xdist's own gives others all that the process ever had. Who is given a group with nothing left to do never
            says that it is done, and the run waits for ever.
            """
            groups = self.assigned_work.pop(node)
            left = [
                (name, test) for name, tests in groups.items() for test, done in tests.items() if not done
            ]
            if not left:
                return None
            name: str
            died_of: str
            (name, died_of), *_ = left
            groups[name][died_of] = True
            self.workqueue.update({name: tests for name, tests in groups.items() if not all(tests.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return died_of

        def _reschedule(self, node: Any) -> None:
            if node not in self.registered_collections:
                return  # new, and not heard of yet: it is asked again when it has collected the tests
            super()._reschedule(node)
            # A process runs a test when it knows the next one, or that there is none.
            while (
                self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2
            ):
                self._assign_work_unit(node)
            if (
                not self.workqueue
                and not node.shutting_down
                and self._pending_of(self.assigned_work[node]) < 2
            ):
                node.shutdown()

    config.option.loadscopereorder = False
    return Grouped(config, log)


def only_here(config: pytest.Config, folder: Path) -> None:
    """Raise `RuntimeError` if another process of this run, which still lives, has called it."""
    if not hasattr(config, "workerinput"):
        return
    import psutil

    path = folder / "session-of"
    try:
        with path.open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        other = int(path.read_text())
        if other != os.getpid() and psutil.pid_exists(other):
            raise RuntimeError(
                f"process {other} of this run has a Spark session: pytest-xdist does not keep groups together. "
                "Run with --dist loadgroup, as `make test` does."
            ) from None
