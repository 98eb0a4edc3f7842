"""A PostgreSQL server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.streaming.postgres_server import BINARIES, Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if BINARIES is None:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    one = Server()
    yield one
    one.close()
