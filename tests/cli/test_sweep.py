"""`timelapse sweep`."""

from __future__ import annotations

import decimal
import json
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.cli.test_diff import E, place
from timelapse.cli.main import run as run_cli
from timelapse.cli.sweep_command import grid_of
from timelapse.errors import UsageError
from timelapse.program.load import load_program

__all__ = ["place"]  # the fixture
SWEEP = ["sweep", "rules_to_compare.py:Rules", "log"]


def test_a_sweep(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with outputs, precision and recall; the second time everything is there; points are runs."""
    (place / "known.csv").write_text("key,label\n" + "\n".join(f"{n},{n % 2}" for n in range(30)) + "\n")
    arguments = [*SWEEP, "limit=1..7/4", "--local", "--labels", "known.csv"]
    assert run_cli(arguments) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["limit", "Hit", "precision", "recall", "f1", "seconds", "replayed", "Hit"]
    assert [row[:2] for row in rows[1:5]] == [["1", "27"], ["3", "21"], ["5", "15"], ["7", "9"]]
    assert rows[1][3] == "93.3%"
    assert "best f1: limit=1" in out
    assert run_cli([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [p["resumed"] for p in found["points"]] == [True] * 4
    assert found["points"][0]["labels"]["recall"] == pytest.approx(14 / 15)
    first, last = (found["points"][n]["path"] for n in (0, 3))
    assert run_cli(["diff", first, last, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["records"]["Hit"]["gone"] == 18


@pytest.mark.parametrize(
    ("values", "expected"),
    [("limit=1,5", [1, 5]), ("limit=1..4", [1, 2, 3, 4]), ("limit=4..1/2", [4, 1]), ("limit=1..2/5", [1, 2]),
     ("limit=-1..1", [-1, 0, 1]), ("limit=100..120:5", [100, 105, 110, 115, 120]), ("limit=9..1:4", [9, 5, 1])],
)  # fmt: skip
def test_values(place: Path, values: str, expected: list[int]) -> None:
    """Lists, and ranges of whole numbers."""
    assert grid_of(load_program("rules_to_compare.py:Rules")(), [values]) == {"limit": expected}


def test_values_of_floats(place: Path) -> None:
    """A range of so many values, as a person would write them; texts are taken as they are."""
    (place / "more_to_sweep.py").write_text(
        "import timelapse as tl\nclass E(tl.Event):\n    n: int\nclass P(tl.Program):\n    x: float = 1.0\n"
        "    s: str = ''\n    @tl.on(E)\n    def go(self, e):\n        pass\n"
    )
    base = load_program("more_to_sweep.py:P")()
    found: dict[str, Any] = grid_of(base, ["x=0.1..0.5/5", "s=a..b,c"])
    assert found == {"x": [0.1, 0.2, 0.3, 0.4, 0.5], "s": ["a..b", "c"]}
    assert grid_of(base, ["x=1..2:0.25"]) == {"x": [1.0, 1.25, 1.5, 1.75, 2.0]}
    assert grid_of(base, ["x=0.3..0.1:0.1"]) == {"x": [0.3, 0.2, 0.1]}
    assert grid_of(base, ["x=3..1"]) == {"x": [3.0, 2.0, 1.0]}
    with decimal.localcontext(prec=2):  # as a user's module may set it
        assert grid_of(base, ["x=100..201:100.5"]) == {"x": [100.0, 200.5]}
    with pytest.raises(UsageError, match=r"x=0\.1\.\.0\.5 does not say"):
        grid_of(base, ["x=0.1..0.5"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["x=1"], "TL820"), (["limit"], "TL820"), (["limit=1", "limit=2"], "TL820"), (["limit=a"], "TL806"),
     (["limit=1..1"], "TL820"), (["limit=1..9/x"], "TL820"), (["limit=1..9:0"], "TL820"), (["limit=1..9:2/3"], "TL820"), (["limit=1..9:20"], "TL820"), (["limit=1..999999"], "TL820"),
     (["limit=1", "--plot", "x.txt"], "TL820"), (["limit=1", "--weight", "n"], "TL800")],
)  # fmt: skip
def test_mistakes(place: Path, arguments: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its code, and exit code 2."""
    assert run_cli([*SWEEP, *arguments, "--local"]) == 2
    assert capsys.readouterr().err.lstrip().splitlines()[-1].strip() == f"timelapse help {code}"


def test_plots(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Outputs, or precision against recall."""
    (place / "known.csv").write_text("key,label\n1,1\n4,0\n")
    for more in ([], ["--labels", "known.csv"]):
        assert run_cli([*SWEEP, "limit=1,3", "--local", "--plot", "s.svg", *more]) == 0
        assert b"<svg" in (place / "s.svg").read_bytes()


def test_a_plot_of_an_integer_parameter_has_integer_ticks(place: Path) -> None:
    """On both axes: settings and counts."""
    swept = tl.sweep(load_program("rules_to_compare.py:Rules"), place / "log", {"limit": [1, 2]}, spark=False)
    axes = swept.figure().axes[0]
    ticks = [*axes.get_xticks(), *axes.get_yticks()]
    assert len(ticks) > 3
    assert all(float(t).is_integer() for t in ticks)


def test_why_nothing_is_shared(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every setting is a whole replay, the parameters are named that the states depend on."""
    text = (place / "rules_to_compare.py").read_text()
    (place / "rules_that_skip.py").write_text(
        text.replace("self.seen[e.who] += 1", "self.seen[e.who] += self.limit")
    )
    monkeypatch.setenv("TIMELAPSE_STATES", str(place / "states"))
    log = [E(n=n, who="a", ts=n) for n in range(50_000)]
    tl.Log.from_events(place / "long", log)
    for file, shared in (("rules_that_skip.py", False), ("rules_to_compare.py", True)):
        assert run_cli(["sweep", f"{file}:Rules", "long", "limit=1,2", "--local"]) == 0
        assert ("nothing more is shared: the states depend on limit" in capsys.readouterr().out) is not shared
