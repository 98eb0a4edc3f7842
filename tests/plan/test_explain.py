"""Explanations say what the planner decided, why, and what would be faster; in text, JSON and for the terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import timelapse as tl
from examples.antispam import Antispam, Friendship, Message
from tests.plan.programs import Ledger, Login
from timelapse.display import foretold
from timelapse.errors import PlanError, UsageError
from timelapse.explanation import Explanation, explain
from timelapse.explanation.summary import summary
from timelapse.plan.cost import AROUND_SECONDS


class Daily(tl.Record):
    n: int


@pytest.fixture(scope="module")
def ledger() -> Explanation:
    return explain(Ledger(limit=7), cores=2, slices=4)


@pytest.fixture(scope="module")
def antispam() -> Explanation:
    return explain(Antispam, {"Message": 9_000_000, "Friendship": 1_000_000}, cores=8)


def row(e: Explanation, state: str) -> Any:
    return next(r for r in e.states if r.state == state)


def test_it_is_exported_from_the_package() -> None:
    """With what the compiler makes of each pass; the plan is the same."""
    found = tl.explain(Antispam, cores=2)
    assert found.states == explain(Antispam, cores=2).states
    assert {p.kernel for p in found.passes} == {"compiled"}


def test_every_state_has_one_row_and_slow_strategies_come_first(ledger: Explanation) -> None:
    assert sorted(r.state for r in ledger.states) == sorted(Ledger.__spec__.states)
    assert [r.strategy for r in ledger.states] == ["chain"] * 2 + ["by key"] + ["scan"] * 9


def test_a_row_says_why_where_and_what_to_rewrite(ledger: Explanation) -> None:
    score = row(ledger, "score")
    assert score.kind == "Value[int, float]"
    assert score.because == (
        "the value written to score depends on score itself; its events are shared out, Transfer by e.src"
    )
    balance = row(ledger, "balance")
    assert balance.because.endswith(
        "not by key: Transfer uses balance under two keys, e.src and e.dst (line 76)"
    )
    assert score.place.startswith("programs.py:")
    assert "integers" in score.rewrite
    assert row(ledger, "failures").rewrite is None


def test_a_row_names_the_events_that_write_the_state(ledger: Explanation) -> None:
    assert row(ledger, "score").written_by == ("Transfer",)
    assert row(ledger, "address_count").written_by == ("Login",)


def test_a_row_lists_dependencies_with_their_lines(ledger: Explanation) -> None:
    (link,) = row(ledger, "addresses").depends_on
    assert (link.source, link.via) == ("failures", "condition")
    assert link.place.startswith("programs.py:")


def test_the_members_of_a_cycle_are_known(ledger: Explanation) -> None:
    assert row(ledger, "balance").component == row(ledger, "credit").component == ("balance", "credit")
    assert row(ledger, "score").component == ()


def test_parameters_and_the_programs_own_text_are_shown(ledger: Explanation) -> None:
    assert ledger.params == {"limit": "int = 7", "weight": "float = 0.25"}
    assert ledger.doc.startswith("Transfers refused")


def test_outputs_name_the_states_that_decide_them(ledger: Explanation) -> None:
    """Not the states that the handler happens to write as well."""
    outputs = {o.record: o.states for o in ledger.outputs}
    assert outputs == {"Refused": ("balance", "credit"), "Suspicious": ("last_login", "score")}


def test_a_log_gives_counts_and_weights(antispam: Explanation) -> None:
    assert antispam.events == {"Friendship": 1_000_000, "Message": 9_000_000}
    few = explain(Antispam, {"Message": 0, "Friendship": 10}, cores=8)
    assert few.passes[0].cost != antispam.passes[0].cost


def test_a_log_is_asked_for_its_counts() -> None:
    log = SimpleNamespace(info=lambda: SimpleNamespace(types=[SimpleNamespace(name="Message", count=5)]))
    assert explain(Antispam, log).events == {"Friendship": 0, "Message": 5}
    assert explain(Antispam, SimpleNamespace(count=3, types=())).events == {
        "Friendship": None,
        "Message": None,
    }


def test_something_that_is_no_log_or_program_is_refused() -> None:
    with pytest.raises(UsageError, match="a log is needed"):
        explain(Antispam, "logs/oct")
    with pytest.raises(UsageError):
        explain(Login)  # type: ignore[arg-type]


def test_passes_list_what_they_read_and_need(antispam: Explanation) -> None:
    first, second, final = antispam.passes
    assert first.reads == {"Friendship": ("a", "b"), "Message": ("ip", "text")}
    assert second.needs == ("friends",)
    assert final.stage is None
    assert final.reads["Message"] == ("id", "sender", "recipient", "ip", "text")
    assert final.cost == 1.0


def test_the_law_falls_with_cores_and_a_chain_bounds_it(antispam: Explanation, ledger: Explanation) -> None:
    assert list(antispam.law.values()) == sorted(antispam.law.values(), reverse=True)
    assert antispam.law[64] < 0.1
    assert ledger.law[64] > ledger.chained * 63 / 64


def test_check_names_state_line_and_rewrite(ledger: Explanation, antispam: Explanation) -> None:
    antispam.check("scan")
    ledger.check("chain")
    with pytest.raises(PlanError, match="balance needs the strategy chain") as caught:
        ledger.check("scan")
    assert (caught.value.code, caught.value.place.line is not None) == ("TL352", True)
    assert caught.value.hint


def test_json_is_plain_and_complete(ledger: Explanation) -> None:
    text = json.dumps(ledger.to_json())
    found = json.loads(text)
    assert {r["state"] for r in found["states"]} == set(Ledger.__spec__.states)
    assert found["mode"] == "staged"
    assert found["law"]["64"] > 0


def test_the_text_shows_everything(ledger: Explanation) -> None:
    text = str(ledger)
    for word in (
        *Ledger.__spec__.states,
        "Refused",
        "Suspicious",
        "rewrite:",
        "of the serial time: ",
        "chain",
        "final",
    ):
        assert word in text
    assert max(len(line) for line in text.splitlines()) < 200


def test_a_summary_comes_first(ledger: Explanation, antispam: Explanation) -> None:
    """How it runs, what it takes, the strategies, and which states would be faster if written otherwise."""
    for e in (ledger, antispam):
        found = dict(summary(e))
        assert {"replay", "time", "states"} <= {*found}
        lines = [line.split()[0] for line in str(e).splitlines() if line]
        assert lines[2 : 2 + len(found)] == [*found]
        for text in (rendered(e, 200), e._repr_html_()):
            assert all(said.split(":")[0] in text for said in found.values())
    assert dict(summary(ledger))["advice"].startswith("balance, credit, score ")
    assert "advice" not in dict(summary(antispam))
    assert "12: 9 scan, 1 by key, 2 chain" in str(ledger)


def test_advice_to_states_that_depend_on_one_another_is_told_once(ledger: Explanation) -> None:
    """Below the last of them, with their names; what holds for both is not said again."""
    advice = row(ledger, "balance").rewrite
    assert advice == row(ledger, "credit").rewrite
    for text in (str(ledger), rendered(ledger, 400), ledger.svg().replace("&#x27;", "'")):
        assert text.count(advice) == 1
        assert f"rewrite (balance, credit): {advice}" in text
    assert str(ledger).count(row(ledger, "balance").because) == 1
    assert "as balance" in str(ledger)


def test_a_small_log_is_told_in_seconds() -> None:
    """Relative to the serial loop over one event a replay takes thousands of times as long, which says nothing."""
    text = str(explain(Antispam, {"Message": 1, "Friendship": 0}, cores=2))
    assert "of the serial time" not in text
    assert " ms " in text
    assert "about 0.5" in text  # what a user waits for, which is not the passes
    large = str(explain(Antispam, {"Message": 10**7, "Friendship": 10**6}, cores=2))
    assert "of the serial time" in large


def test_a_prediction_says_what_it_includes(tmp_path: Path) -> None:
    """What a user waits for: a process that starts, loads and plans, and what is around the passes. The plan is a replay's."""
    events = [
        Friendship(a=1, b=2, ts=0),
        *(Message(id=n, sender=n % 9, recipient=n % 7, ip="a", text="b", ts=n) for n in range(3_000)),
    ]
    log = tl.Log.from_events(tmp_path / "log", events)
    found = tl.explain(Antispam, log)
    assert found.seconds is not None
    assert found.whole_seconds == found.seconds + found.around
    assert found.around >= AROUND_SECONDS
    assert (found.mode, found.plan.mode) == (
        "chain",
        "chain",
    )  # as the replay, which has one slice for so few
    started = replace(found, process=2.0)
    text = str(started)
    assert f"about {foretold(found.seconds + found.around + 2.0)} on" in text
    assert f"around them {foretold(found.around + 2.0)}: start, planning, files" in text
    assert "start," not in str(found)
    assert "waits for the compiler" in str(replace(found, to_compile=2))
    run = tl.replay(Antispam, log, spark=False)
    assert run.manifest.certificate["slices"] == 1


class Ticks(tl.Program):
    n: tl.Counter[int]

    @tl.on(Login)
    def count(self, e: Login) -> None:
        self.n[e.user] += 1

    @tl.every(tl.DAY)
    def day(self) -> None:
        self.emit(Daily(n=len(self.n.items())))


def test_what_ticks_put_out_is_from_ticks() -> None:
    found = explain(Ticks)
    assert "ticks" in next(line for line in str(found).splitlines() if line.startswith("Daily"))
    assert "from ticks at" in rendered(found, 200)


def rendered(e: Explanation, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system="truecolor").print(e.rich())
    return out.getvalue()


def test_the_terminal_version_shows_every_state(ledger: Explanation) -> None:
    for width in (60, 100, 200):
        assert "balance" in rendered(ledger, width)


def test_hostile_text_reaches_neither_markup_nor_the_terminal(antispam: Explanation) -> None:
    """A docstring or parameter cannot colour, hide or escape anything."""
    nasty = replace(
        antispam, doc="[red]x[/red] \x1b[31m <script>alert(1)</script> & \u202e", params={"p": "'[bold]'"}
    )
    text = rendered(nasty, 200)
    assert "[red]x[/red]" in text
    assert "'[bold]'" in text
    assert "\x1b[31m <" not in text
    assert "\u202e" not in text + str(nasty) + nasty.svg()
    assert "\x1b" not in str(nasty) + nasty.svg()
    assert "<script>" not in nasty.svg()
    assert "&lt;script&gt;" in nasty.svg()


class Quiet(tl.Program):
    @tl.on(Login)
    def nothing(self, e: Login) -> None:
        pass


def test_a_program_without_states_or_outputs_can_be_explained() -> None:
    found = explain(Quiet, cores=4)
    assert "no states" in str(found)
    assert found.mode == "staged"
    assert rendered(found)
    assert "<svg" in found.svg()
