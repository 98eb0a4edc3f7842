"""The first events of a log: of some types, for which a condition holds; and all events without classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import LogError, UsageError
from timelapse.log import Log


class Msg(tl.Event):
    sender: int
    text: str | None
    seen: tl.Time | None
    tags: list[str]
    ok: bool


class Friend(tl.Event):
    a: int
    b: int


BOTH: tuple[type[tl.Event], ...] = (Msg, Friend)
DAY = 86_400_000_000
START = 1_767_225_600_000_000  # 2026-01-01


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Ten days, an event of each type every twelve hours, in blocks of three."""
    events: list[tl.Event] = []
    for n in range(20):
        ts = START + n * DAY // 2
        seen = ts if n % 3 else None
        events.append(
            Msg(
                ts=ts,
                sender=n % 4,
                text=f"m{n}" if n % 2 else None,
                seen=seen,
                tags=["x"] * (n % 3),
                ok=n > 9,
            )
        )
        events.append(Friend(ts=ts + 1, a=n, b=n + 1))
    return Log.from_events(tmp_path_factory.mktemp("looking") / "log", events, block=3)


def test_events_without_classes_are_all(log: Log) -> None:
    """Classes are made for the types: the fields and values are those that were stored."""
    assert [e.ts for e in log.events()] == [e.ts for e in log.events(*BOTH)]
    assert [repr(e) for e in log.events()] == [repr(e) for e in log.events(*BOTH)]
    assert set(log.classes) == {"Msg", "Friend"}
    assert {type(e) for e in log.events()} == set(log.classes.values())


CONDITIONS: list[tuple[str, Callable[[Any], bool]]] = [
        ("sender == 3", lambda e: e.sender == 3), ("sender in (1, 2)", lambda e: e.sender in (1, 2)),
        ("text is None", lambda e: e.text is None), ("text is not None and sender < 2", lambda e: e.text is not None and e.sender < 2),
        ("'m1' in text", lambda e: e.text is not None and "m1" in e.text), ("ok", lambda e: e.ok),
        ("not ok or sender == 1", lambda e: not e.ok or e.sender == 1),
        ('ts >= "2026-01-03" and ts < "2026-01-04"', lambda e: START + 2 * DAY <= e.ts < START + 3 * DAY),
        ('seen > "2026-01-08"', lambda e: e.seen is not None and e.seen > START + 7 * DAY),
        ("2 <= sender <= 3", lambda e: 2 <= e.sender <= 3), ("sender != 0 and seq > 12", lambda e: e.sender != 0 and e.seq > 12),
        (f"ts == {START}", lambda e: e.ts == START),
    ]  # fmt: skip


@pytest.mark.parametrize(("where", "holds"), CONDITIONS)
def test_conditions_hold_as_python_would_say(log: Log, where: str, holds: Callable[[Any], bool]) -> None:
    """A comparison with a missing value does not hold."""
    wanted = [e for e in log.events(Msg) if holds(e)]
    assert wanted
    found = log.head(1000, Msg, where=where)
    assert [repr(e) for e in found] == [repr(e) for e in wanted]
    assert [repr(e) for e in log.head(2, "Msg", where=where)] == [repr(e) for e in wanted[:2]]


def test_types_that_lack_a_field_are_left_out(log: Log) -> None:
    assert {type(e).__name__ for e in log.head(100, where="seq >= 0")} == {"Msg", "Friend"}
    assert {type(e).__name__ for e in log.head(100, where="a > 3")} == {"Friend"}
    assert [e.seq for e in log.head(5)] == [0, 1, 2, 3, 4]
    assert log.head(0) == []


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ("sendr == 1", "no field 'sendr'"), ("sender == a", "no event type has all"), ("sender +", "does not parse"),
        ("__import__('os')", "no field"), ("sender", "not a comparison"), ("sender == 'x'", "what is compared differs in type: in Msg sender is int"),
        ("sender.real == 1", "neither a field nor a constant"), ("ts > 'soon'", "no time"), ("sender is 3", "`is` is for None"),
    ],
)  # fmt: skip
def test_what_is_no_condition_is_an_error(log: Log, where: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        log.head(3, where=where)


def test_a_type_that_is_not_there(log: Log) -> None:
    with pytest.raises(LogError, match="no event type 'Mesg'") as error:
        log.head(3, "Mesg")
    assert "did you mean Msg?" in str(error.value.hint)


def test_on_the_command_line(log: Log) -> None:
    shown = cli("log", str(log.path), "--type", "Msg", "--where", "sender == 3", "--head", "2").out
    assert [line.split()[0] for line in shown.splitlines()] == ["6", "14"]
    assert "sender=3" in shown
    rows = json.loads(cli("log", str(log.path), "--head", "3", "--json").out)
    assert [(r["type"], r["seq"]) for r in rows] == [("Msg", 0), ("Friend", 1), ("Msg", 2)]
    assert "no events" in cli("log", str(log.path), "--where", "a > 300").out
    wrong = cli("log", str(log.path), "--where", "q > 300")
    assert (wrong.code, "no field" in wrong.err) == (2, True)
