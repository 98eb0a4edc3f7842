"""A PostgreSQL server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.streaming.postgres_server import BINARIES, Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if BINARIES is None:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    one = Server(tmp_path_factory.mktemp("postgres"))
    yield one
    one.stop("fast")
