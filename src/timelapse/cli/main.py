"""The entry point: finds the command, runs it, and turns what goes wrong into an error and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from pathlib import Path
from typing import Any

import typer

from timelapse.cli.console import (
    ANSWERING,
    INTERRUPTED,
    TROUBLE,
    UNREAD,
    answers,
    answers_alone,
    console,
    show_error,
)  # fmt: skip
from timelapse.cli.interrupt import interrupted, watching_interrupts
from timelapse.cli.quiet import before_output, watch
from timelapse.env.leaving import leave
from timelapse.env.spark_start import ends_with_command
from timelapse.errors import Cancelled, TimelapseError, UsageError
from timelapse.store.failures import no_space
from timelapse.store.scratch import sweep

APP_HELP = """Replay a log of events through a stateful Python program: exactly, and fast.

A first look: [bold]timelapse demo[/bold]

Programs are named FILE:Class (rules.py:Antispam), runs by their directory, @3 or @last.
Exit codes: 0 fine, 1 different (verify, diff), 2 trouble, 3 a condition of diff --fail-if holds, 130 interrupted, 141 the reader of an answer went away (diff | head).
"""


_MODULES = {
    "demo_command": ("demo",),
    "init_command": ("init",),
    "data_commands": ("synth", "ingest", "log"),
    "derive_command": ("derive",),
    "run_commands": ("replay", "verify"),
    "live_command": ("live", "parity"),
    "serve_command": ("serve",),
    "shadow_command": ("shadow",),
    "diff_command": ("diff",),
    "sweep_command": ("sweep",),
    "report_command": ("report",),
    "features_command": ("features",),
    "trace_commands": ("why", "why-not", "state"),
    "state_tools": ("state checkpoint", "state partition", "state restore"),
    "check_command": ("check",),
    "explain_command": ("explain",),
    "cache_command": ("cache",),
    "bench_command": ("bench",),
    "system_commands": ("doctor", "runs", "help"),
}
"""Where the commands are, in the order of a first use. A command loads its own module only."""

COMMANDS = tuple(name for names in _MODULES.values() for name in names)

_SHORT = ("log", "why", "why-not", "state")
"""Commands that look something up, and hand out no data frames."""

CANCELLED = "cancelled; what was being made was removed"


class _Titles:
    """Takes commands as an app does, and hands on what a list of them shows: their names and texts, not their options."""

    def __init__(self, app: typer.Typer) -> None:
        self._app = app

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        def register(function: Any) -> Any:
            def shown() -> None:
                """Never called."""

            shown.__doc__, shown.__name__ = function.__doc__, function.__name__
            return self._app.command(name, **more)(shown)

        return register

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


def make_app(command: str | None = None, *, titles: bool = False) -> typer.Typer:
    """The commands, in the order of a first use; where one is named, it and those of its module alone.

    `titles`: only to be listed.
    """
    app = typer.Typer(
        help=APP_HELP, no_args_is_help=True, add_completion=True, rich_markup_mode="rich",
        pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback()(_options)
    for module, names in _MODULES.items():
        if command not in COMMANDS or command in names:
            importlib.import_module(f"timelapse.cli.{module}").register(_Titles(app) if titles else app)
    for one in app.registered_commands:
        if one.callback is not None:
            one.help = _flowing(one.callback.__doc__ or "")
            one.callback = _with_places(one.callback)
    return app


@cache
def parser(command: str | None = None, *, titles: bool = False) -> Any:
    """What reads a command line, with the commands of `make_app`. It is made once: in one process many may be read."""
    return typer.main.get_command(make_app(command, titles=titles))


_LOGS_AND_RUNS = {
    ("ingest", "out"),
    ("synth", "out"),
    ("derive", "out"),
    ("replay", "out"),
    ("show_log", "path"),
    ("live", "out"),
    ("parity", "out"),
    ("serve", "out"),
    ("shadow", "out"),
}
"""Options, besides `log`, that name the place of a log, run or live run: it may be in an object store."""


def _with_places(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose paths are read as places: `file:///a` is `/a`, `s3://bucket/log` an object store's, and `http://host` is refused."""

    def read(name: str, value: Any) -> Any:
        if not isinstance(value, Path):
            return value
        from timelapse.store.places import local_path
        from timelapse.store.remote import place_path  # not for --help: it takes Arrow with it

        stored = name == "log" or (command.__name__, name) in _LOGS_AND_RUNS
        return place_path(value, "place") if stored else local_path(value)

    @wraps(command)
    def placed(*args: Any, **options: Any) -> Any:
        sweep()  # what killed commands left
        return command(*args, **{name: read(name, value) for name, value in options.items()})

    return placed


def _flowing(text: str) -> str:
    """A docstring whose paragraphs break where the terminal ends, not where the source's lines do."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _version(wanted: bool) -> None:
    if wanted:
        from timelapse import __version__

        typer.echo(f"timelapse {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
    debug: bool = typer.Option(False, "--debug", help="Show Timelapse's own traceback with errors."),
) -> None:
    """Nothing to do: `--debug` is taken out before parsing, so that it may stand anywhere."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit. `args` is for tests."""
    if args is None and len(sys.argv) > 1 and sys.argv[1] in _SHORT:
        from timelapse.cli.lean import with_little_collecting, without_idle_threads, without_pandas

        with_little_collecting()
        without_idle_threads()
        without_pandas()
    if args is None:
        from timelapse.cli.lean import without_markdown, without_pydantic

        without_markdown()
        without_pydantic()
    code = run(sys.argv[1:] if args is None else list(args))
    if args is None and "py4j" not in sys.modules:  # Spark's gateway ends its own processes on the way out
        leave(code)
    sys.exit(code)


def run(args: Sequence[str]) -> int:
    """Run the command line. Returns the exit code."""
    end = args.index("--") if "--" in args else len(args)
    debug = "--debug" in args[:end] or bool(os.environ.get("TIMELAPSE_DEBUG"))
    as_json = "--json" in args[:end]
    at = 1 if list(args[:1]) == ["help"] else 0
    two = " ".join(args[at : at + 2])
    if two in COMMANDS and " " in two:  # `state checkpoint`
        args, end = [*args[:at], two, *args[at + 2 :]], end - 1
    args = [a for a in args[:end] if a != "--debug"] + list(args[end:])
    helps = not {"--help", "-h"}.isdisjoint(args[:end])
    watch()
    with (
        watching_interrupts(),
        _stopping_spark(),
        answers_alone() if as_json and not helps else nullcontext(),
    ):
        return _guarded(args, debug=debug, as_json=as_json)


@contextmanager
def _stopping_spark() -> Iterator[None]:
    """Stop the Spark session that the command starts: left to itself it ends with stack traces of lost executors."""
    spark, master = "timelapse.env.spark_session", "timelapse.env.master"
    others = spark in sys.modules and sys.modules[spark].existing() is not None
    ends_with_command(not others)
    try:
        yield
    finally:
        if master in sys.modules:
            sys.modules[master].want(None)
        if spark in sys.modules and not others:
            before_output("stopping Spark")
            sys.modules[spark].stop()
        ends_with_command(False)
        before_output("ending")


def _guarded(args: Sequence[str], *, debug: bool, as_json: bool) -> int:
    try:
        # A shell that asks for completions gives no arguments either, and wants options.
        listed = list(args) in ([], ["--help"], ["-h"]) and "_TIMELAPSE_COMPLETE" not in os.environ
        named = args[0] if args and args[0] in COMMANDS else None
        code = parser(named, titles=listed)(args, prog_name="timelapse", standalone_mode=False)
        answers().flush()
        if code == INTERRUPTED:  # typer turns Ctrl-C into this exit code
            return _interrupted(CANCELLED)
        return code if isinstance(code, int) else 0
    except Cancelled as error:
        return _interrupted(error.message)
    except KeyboardInterrupt:
        return _interrupted(CANCELLED)
    except BrokenPipeError:
        # Whoever read us has gone (`| head`): not an error. Python would complain at exit otherwise.
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers().fileno())
        return UNREAD if args and args[0] in ANSWERING else 0
    except TimelapseError as error:
        if debug:
            traceback.print_exc()
        if interrupted():
            return _interrupted(CANCELLED)
        show_error(error, as_json=as_json)
        return TROUBLE
    except Exception as error:
        if interrupted():
            return _interrupted(CANCELLED)
        return _other(error, debug=debug, as_json=as_json, command=args[0] if args else "")


def _interrupted(text: str) -> int:
    console(stderr=True).print(text)
    return INTERRUPTED


def _other(error: Exception, *, debug: bool, as_json: bool, command: str) -> int:
    """A wrong command line (the parser's own errors), or a bug."""
    wrapped: TimelapseError
    if type(error).__name__ == "Abort":
        if not isinstance(error.__cause__, EOFError):
            return _interrupted("cancelled")
        error = (
            error.__cause__
        )  # of something that was read: the parser takes it for the end of what a person types
    explain: Any = getattr(error, "format_message", None)
    if explain is not None:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(explain() + "\n")
            return TROUBLE
        known = command if command in COMMANDS else ""
        hint = f"timelapse {known} --help" if known else "timelapse --help"
        show_error(UsageError(explain(), hint=hint), as_json=as_json)
        return TROUBLE
    if "pyspark" in sys.modules and (found := _sparks(error)) is not None:
        wrapped = found
    elif isinstance(error, OSError) and (full := no_space(error)) is not None:
        wrapped = full
    elif isinstance(error, OSError) and error.strerror:
        from timelapse.errors import Place

        wrapped = UsageError(
            error.strerror, place=Place(str(error.filename) if error.filename is not None else None),
            hint="check the path, its permissions and the free space", code="TL809",
        )  # fmt: skip
    else:
        wrapped = TimelapseError(
            f"an error that Timelapse did not expect: {type(error).__name__}: {error}",
            hint="run the command again with --debug for the traceback, and report it",
        )
    if debug:
        traceback.print_exc()
    show_error(wrapped, as_json=as_json)
    return TROUBLE


def _sparks(error: Exception) -> TimelapseError | None:
    from timelapse.env.spark_failures import explained, is_sparks

    return explained(error, "the command") if is_sparks(error) else None


if __name__ == "__main__":
    main()
