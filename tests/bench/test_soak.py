"""What a soak of a live run is judged by."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.soak import judged


def minutes(p99: list[float], megabytes: list[float]) -> list[dict[str, Any]]:
    return [
        {"p99": a, "memory": int(b * (1 << 20)), "users": 1_000 + 60_000 * n}
        for n, (a, b) in enumerate(zip(p99, megabytes, strict=True))
    ]


def test_the_first_minute_does_not_count_and_growth_by_the_state_is_level() -> None:
    found = judged(minutes([9_000, 100, 110, 105, 100, 120, 110], [50, 200, 210, 220, 230, 240, 250]))
    assert found["level"] is True
    assert found["bytes_for_a_new_user_of_halves"] == pytest.approx([10 * (1 << 20) / 60_000] * 2)


@pytest.mark.parametrize(
    ("p99", "megabytes", "wrong"),
    [
        ([100, 100, 100, 100, 160, 170, 180], [200] * 7, "latency_level"),
        ([100] * 7, [200, 200, 210, 220, 230, 250, 270], "memory_level"),
    ],
)
def test_what_is_not_level(p99: list[float], megabytes: list[float], wrong: str) -> None:
    found = judged(minutes(p99, megabytes))
    assert found["level"] is False
    assert found[wrong] is False


def test_a_short_one_is_not_judged() -> None:
    assert judged(minutes([1, 2, 3], [1, 2, 3]))["level"] is None
