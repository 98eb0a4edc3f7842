"""What keeps short commands short."""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer.core

from tests.cli.run_cli import with_loaded
from timelapse.cli.lean import with_little_collecting, without_idle_threads, without_pydantic


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.set_threshold(*before)
    (gc.enable if enabled else gc.disable)()


def test_garbage_is_searched_for_rarely() -> None:
    gc.set_threshold(700, 10, 10)
    with_little_collecting()
    assert gc.get_threshold() == (500_000, 10, 10)
    with_little_collecting()
    assert gc.get_threshold() == (500_000, 10, 10)


def test_what_the_user_has_made_rarer_or_switched_off_stays() -> None:
    gc.set_threshold(900_000, 5, 5)
    with_little_collecting()
    assert gc.get_threshold() == (900_000, 5, 5)
    gc.disable()
    gc.set_threshold(700, 10, 10)
    with_little_collecting()
    assert gc.get_threshold() == (700, 10, 10)


def test_linear_algebra_begins_no_threads_unless_the_user_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "9")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    without_idle_threads()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    without_idle_threads()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


_READING = pytest.mark.skipif(
    not hasattr(typer.core, "build_runtime_param"), reason="this version of Typer reads options by itself"
)


@_READING
@pytest.mark.parametrize(
    "given",
    [
        "a", "a 7", "a -7", "a 007", "a ٣", "a 1_0", "a 1.0", "a x", "a ' '", "a " + "9" * 40, "'' 3",
        "a --few 1", "a --few 9", "a --few 0", "a --few 10", "a --few -1", "a --clamped 99", "a --many 1 --many 2",
        "a --yes", "a --no-yes", "a --parsed 5", "a --parsed x", "a --path /nowhere", "a --word one", "a --word three", "",
    ],
)  # fmt: skip
def test_options_are_read_as_pydantic_reads_them(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer.core, "build_runtime_param", typer.core.build_runtime_param)  # type: ignore[attr-defined]
    before = _called(shlex.split(given))
    without_pydantic()
    assert _called(shlex.split(given)) == before


def _called(args: list[str]) -> Any:
    def command(
        text: str,
        number: Annotated[int | None, typer.Argument()] = None,
        few: Annotated[int, typer.Option(min=1, max=9)] = 3,
        clamped: Annotated[int, typer.Option(min=1, max=9, clamp=True)] = 3,
        many: Annotated[list[str] | None, typer.Option()] = None,
        parsed: Annotated[int | None, typer.Option(parser=int)] = None,
        path: Annotated[Path | None, typer.Option()] = None,
        word: Annotated[Literal["one", "two"] | None, typer.Option()] = None,
        yes: bool = False,
    ) -> list[Any]:
        return [text, number, few, clamped, many, parsed, path, word, yes]

    app = typer.Typer()
    app.command()(command)
    try:
        values = app(args, standalone_mode=False)
    except Exception as error:
        return type(error), str(error)
    return [(type(value), value) for value in values]


@_READING
def test_questions_are_asked_without_pydantic() -> None:
    """It takes longer to load than the options of a question take to read."""
    heavy = "pydantic", "pandas", "numba"
    left, loaded = with_loaded(heavy, "state", "nowhere", "sent", "--key", "1", "--last", "5")
    assert (left.code, loaded) == (2, []), left.err
