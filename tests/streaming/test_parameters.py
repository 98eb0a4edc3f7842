"""Parameters of a live run that are no plain literals: who opens the run later finds the same program."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

import timelapse as tl
from tests.patience import LONG
from tests.streaming.test_live import FAST
from timelapse.program.load import load_program
from timelapse.streaming.reading import Reading

RULES = """
from decimal import Decimal

import timelapse as tl


class Paid(tl.Event):
    user: int


class Seen(tl.Record):
    user: int


class Parametrised(tl.Program):
    least: Decimal = Decimal("10.00")
    users: frozenset[int] = frozenset()
    most: float = 1.0

    @tl.on(Paid)
    def paid(self, e):
        if e.user in self.users and e.user < self.most and e.user > self.least:
            self.emit(Seen(user=e.user))
"""


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"least": Decimal("2.5"), "users": frozenset((3, 4))},
        {"users": frozenset((11,)), "most": float("inf")},
    ],
)
def test_a_run_is_opened_again_whatever_its_parameters(given: dict[str, object], tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(RULES)
    program = load_program(f"{rules}:Parametrised")
    paid = next(iter(program.__spec__.events))
    (tmp_path / "in.jsonl").write_text("".join(f'{{"user": {n}, "ts": {n}}}\n' for n in (3, 11)))
    with tl.live(program(**given), {paid: tmp_path / "in.jsonl"}, tmp_path / "out", once=True, **FAST) as run:
        run.wait(LONG)
    found = Reading.open(tmp_path / "out").parity()
    assert found.same
    assert found.records.get("Seen", (0, 0))[0] == (given.get("most") is not None)
