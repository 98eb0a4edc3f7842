"""Runs with the cache equal runs without it: after every edit, in every order, whatever happened to the entries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import timelapse as tl
from tests.cache.programs import PROGRAM, events, written
from tests.cli.run_cli import cli
from tests.depth import deep, some
from tests.tuned import tune_cache
from timelapse.errors import DefinitionError, HandlerError
from timelapse.run import Run


@pytest.fixture(autouse=True)
def _cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, also for small logs."""
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")


def log_of(module: ModuleType, path: Path, seed: int = 0, count: int = 400) -> tl.Log:
    if path.exists():
        shutil.rmtree(path)
    return tl.Log.from_events(path, events(module, count, seed), [module.Join, module.Say], block=64)


def run(
    module: ModuleType, log: Any, slices: int = 4, *, cache: bool = True, spark: Any = False, **params: Any
) -> Run:
    return tl.replay(module.Talk(**params), log, slices=slices, spark=spark, cache=cache)


def same(a: Run, b: Run) -> None:
    """Outputs, rejections, final states, and the states at all cuts."""
    assert (a.digest, a.state_digest, a.counts) == (b.digest, b.state_digest, b.counts)
    for entry in a.manifest.states:
        for cut in range(a.slices + 1):
            left, right = (sorted(map(repr, r.state_at_cut(entry.name, cut).items())) for r in (a, b))
            assert left == right


def test_an_edited_rule_starts_from_what_is_kept(tmp_path: Path) -> None:
    """The second run takes the states, says so, proves itself, and gives what a run without cache gives."""
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log")
        first = run(module, log)
        assert first.certificate["cache"] is None
        second = run(module, log, limit=1)
        kept = second.certificate["cache"]
        assert kept["what"]
        assert second.certificate["validated_slices"] == 3
        same(second, run(module, log, cache=False, limit=1))
        assert first.digest != second.digest
        assert second.verify().ok
        assert run(module, log, least=3).certificate["cache"] is None


def test_an_edit_that_changes_the_plan(tmp_path: Path) -> None:
    """Where nobody says how many slices, the run cuts the log where kept states know it; else as asked."""
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log")
        first = run(module, log, slices=4)
        again = tl.replay(module.Talk(limit=1), log, spark=False)
        assert again.manifest.cuts == first.manifest.cuts
        assert again.certificate["cache"] is not None
        same(again, run(module, log, slices=4, cache=False, limit=1))
        assert run(module, log, slices=3, limit=1).certificate["cache"] is None


def test_explain_says_what_is_kept(tmp_path: Path) -> None:
    """Nothing yet, states, reads; or why not."""
    text = PROGRAM.replace("self.bonus(e.id) + 1", "hash(e.text)")
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log")
        said = []
        for _ in range(3):
            program = f"{tmp_path / 'p' / 'cachetest_program.py'}:Talk"
            said.append(cli("explain", program, log.path).out)
            assert said[-1].split("cache ")[1].split()[:3] == _cache_line(program, log.path)[:3]
            run(module, log)
        assert ["no states are kept yet" in said[0], "starts from them" in said[1]] == [True, True]
        assert "output part alone" in said[2]
    with written(tmp_path / "q", program=text):
        out = cli("explain", f"{tmp_path / 'q' / 'cachetest_program.py'}:Talk", log.path, "--json").json
        assert out["cache"]["reason"]


def _cache_line(program: str, log: object) -> list[str]:
    """What `explain --plan` says of the cache."""
    (line,) = (t for t in cli("explain", program, log, "--plan").out.splitlines() if t.startswith("cache "))
    return line.split()[1:]


def test_cache_false_neither_uses_nor_keeps(tmp_path: Path) -> None:
    """Nothing is written; what is there is not used."""
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log")
        run(module, log, cache=False)
        assert [p.name for p in (tmp_path / "cache").iterdir()] == ["tuning.json"]
        run(module, log)
        assert run(module, log, cache=False).certificate["cache"] is None
        forced = tl.replay(module.Talk(), log, slices=4, spark=False, strategy="staged")
        assert forced.certificate["cache"] is None


def test_a_log_that_was_written_anew_or_appended(tmp_path: Path) -> None:
    """The same path, other events: nothing fits any more."""
    with written(tmp_path / "p") as module:
        run(module, log_of(module, tmp_path / "log"))
        other = log_of(module, tmp_path / "log", seed=1)
        again = run(module, other)
        assert again.certificate["cache"] is None
        same(again, run(module, other, cache=False))
        longer = log_of(module, tmp_path / "log", count=401)
        assert run(module, longer).certificate["cache"] is None


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_damaged_entries_are_done_again(damage: str, tmp_path: Path) -> None:
    """A file of each sort in turn: the run gives the same, and the next one finds a sound entry."""
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log", count=60)
        wanted = run(module, log, slices=3)
        files = [p.relative_to(tmp_path) for p in (tmp_path / "cache" / "entries").rglob("*") if p.is_file()]
        whole = {p.parts[2] for p in files if p.suffix == ".arrow"}  # the other entry says where to cut
        sorts = {p.parts[3]: p for p in files if p.name != "used" and p.parts[2] in whole}
        assert len(sorts) >= 3
        for file in sorts.values():
            path = tmp_path / file
            data = path.read_bytes()
            path.unlink()  # the run's own file is the same one
            if damage == "cut":
                path.write_bytes(data[:-3])
            elif damage == "flip":
                path.write_bytes(bytes([*data[:-9], data[-9] ^ 1, *data[-8:]]))
            again = run(module, log, slices=3)
            assert again.certificate["cache"] is None, file
            same(again, wanted)
            assert run(module, log, slices=3).certificate["cache"] is not None


def test_a_disk_that_cannot_be_written_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a limit of nothing."""
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log")
        wanted = run(module, log, cache=False)
        (tmp_path / "cache" / "entries").write_text("in the way")
        same(run(module, log), wanted)
        monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "other"))
        tune_cache(tmp_path / "other")
        monkeypatch.setenv("TIMELAPSE_STATES_LIMIT", "0")
        same(run(module, log), wanted)
        same(run(module, log), wanted)


def test_a_handler_that_fails_only_after_the_edit(tmp_path: Path) -> None:
    """The error names the same event as without the cache, and the entry stays good."""
    text = PROGRAM.replace(
        "def flag(self, e):\n", "def flag(self, e):\n        assert e.id < self.limit * 100\n"
    )
    with written(tmp_path / "p", program=text) as module:
        log = log_of(module, tmp_path / "log")
        run(module, log, limit=99)
        found = []
        for cache in (True, False):
            with pytest.raises(HandlerError) as caught:
                run(module, log, limit=2, cache=cache)
            found.append((caught.value.seq, caught.value.handler, caught.value.message, caught.value.event))
        assert found[0] == found[1]
        assert run(module, log, limit=98).certificate["cache"] is not None


def tokens(text: str) -> Iterator[str]:
    """The text with one token changed, wherever that is easily done."""
    import io
    import tokenize

    swap = {"==": "!=", "!=": "==", ">": "<=", "<": ">=", ">=": "<", "<=": ">", "+": "-", "-": "+", "*": "+",
            "%": "//", "and": "or", "or": "and", "in": "not in", "+=": "-=", "elif": "else:\n        if"}  # fmt: skip
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, start = token.start
        end = token.end[1]
        if token.type == tokenize.NUMBER and token.string.isdigit():
            new = str(int(token.string) + 1)
        elif token.string == "who":
            new = "to"
        elif token.string == "id":
            new = "who"
        else:
            new = swap.get(token.string, "")
        if new:
            line = lines[row - 1]
            yield "".join([*lines[: row - 1], line[:start] + new + line[end:], *lines[row:]])


def test_every_single_token_edit(tmp_path: Path) -> None:
    """After each edit the run over a warm cache equals the serial loop: result, or error."""
    hits = reads = edits = 0
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log", count=150)
        for _ in range(2):  # the second one records what the last rule reads
            run(module, log, slices=3)
    for number, text in enumerate(some(tokens(PROGRAM), 2)):
        try:
            with written(tmp_path / f"p{number}", program=text) as module:
                log = tl.Log.open(tmp_path / "log")
                outcomes = []
                for cache in (False, True):
                    try:
                        made = run(module, log, slices=3) if cache else tl.run_serial(module.Talk, log)
                        outcomes.append((made.digest, made.state_digest))
                        if cache:
                            kept = made.certificate["cache"] or {"what": ""}
                            hits += kept["what"] == "states"
                            reads += "read" in kept["what"]
                    except HandlerError as error:
                        outcomes.append((error.message, str(error.seq)))
                assert outcomes[0] == outcomes[1], text
                edits += 1
        except (DefinitionError, SyntaxError, ImportError, TypeError, NameError):
            continue  # not a program any more
    assert edits > deep(25, 12)
    assert hits > 0
    assert reads > deep(5, 2)


@pytest.mark.spark
def test_on_spark(tmp_path: Path, spark: Any) -> None:
    """Workers find the leased states in the job's folder."""
    with written(tmp_path / "p") as module:
        log = log_of(module, tmp_path / "log")
        run(module, log, spark=spark)
        again = run(module, log, spark=spark, limit=1)
        assert again.certificate["cache"] is not None
        same(again, run(module, log, cache=False, limit=1))
