"""Every sink is in every list of sinks: on the command line, in its help, in hints, in the documentation."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

from tests.cli.run_cli import cli
from timelapse.errors import UsageError
from timelapse.streaming import sinks
from timelapse.streaming.sinknames import SINKS
from timelapse.streaming.sinks.choose import MADE, sink_of

PAGE = Path(__file__).parents[2] / "docs" / "live.md"
ONLY_IN_PYTHON = {"Callback"}
"""Those that no text can name."""


def there_are() -> set[str]:
    """The classes in the sinks' modules that take epochs."""
    modules = [
        importlib.import_module(f"{sinks.__name__}.{m.name}") for m in pkgutil.iter_modules(sinks.__path__)
    ]
    return {
        name for module in modules if not module.__name__.endswith(".base") for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and {"marker", "put", "close"} <= set(dir(value))
    }  # fmt: skip


def test_each_sink_is_named() -> None:
    made = {type(sink_of(example)).__name__ for example in SINKS.values()}
    assert len(there_are()) > 1
    assert made | ONLY_IN_PYTHON == there_are() == set(sinks.__all__)
    assert len(made) == len(SINKS)
    assert list(MADE) == list(SINKS)


def test_lists_have_each_of_them() -> None:
    with pytest.raises(UsageError) as raised:
        sink_of("nowhere:x")
    help_ = " ".join(cli("live", "--help").out.split())
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for begins, example in SINKS.items():
        assert example in str(raised.value.hint)
        assert begins in help_
        sink = type(sink_of(example)).__name__
        assert any(f"`{begins}" in row and f"`{sink}(" in row for row in rows)
    for sink in ONLY_IN_PYTHON:
        assert any(f"`{sink}(" in row for row in rows)


@pytest.mark.parametrize("text", ["parquet:", "delta:", "kafka:x", "postgresql:x", "parquet", ""])
def test_what_names_no_sink_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no sink"):
        sink_of(text)
