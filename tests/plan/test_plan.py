"""The planner: what is a scan, what shares a pass, when the whole program is a chain, what may be forced."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.workloads import Ewma
from tests.plan.fake import Fake, FakePasses, fake
from timelapse.errors import PlanError
from timelapse.plan import Plan, Strategy, make_plan
from timelapse.plan.cost import Law
from timelapse.plan.schedule import Shape, Times, foretell


def plan(analysis: Fake, **options: Any) -> Plan:
    return make_plan(analysis, passes=FakePasses(), **options)


def shape(found: Plan) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(s.level, s.strategy.value, s.states) for s in found.stages]


def test_states_that_depend_on_nothing_share_one_scan() -> None:
    assert shape(plan(fake())) == [(1, "scan", ("a", "b", "c", "d"))]


def test_a_state_comes_one_level_after_what_it_depends_on() -> None:
    found = plan(fake({"b": "a", "c": "b", "d": "a"}))
    assert shape(found) == [(1, "scan", ("a",)), (2, "scan", ("b", "d")), (3, "scan", ("c",))]


def test_states_of_a_stage_are_in_order_of_declaration() -> None:
    assert plan(fake(components=("d", "c", "b", "a"))).stages[0].states == ("a", "b", "c", "d")


def test_a_state_that_depends_on_itself_is_a_chain() -> None:
    found = plan(fake({"b": "b"}))
    assert shape(found) == [(1, "scan", ("a", "c", "d")), (1, "chain", ("b",))]
    assert "depends on b itself" in found.stages[1].choices[0].because


def test_states_that_depend_on_each_other_are_one_chain() -> None:
    found = plan(fake({"a": "b", "b": "a"}, ("ab", "c", "d")))
    assert shape(found)[1] == (1, "chain", ("a", "b"))
    assert found.stages[1].choices[0].because == "a and b depend on each other"


def test_chains_of_one_level_share_a_pass() -> None:
    assert shape(plan(fake({"b": "b", "c": "c"})))[1] == (1, "chain", ("b", "c"))


def test_effects_that_do_not_compose_are_a_chain() -> None:
    found = plan(fake(composes={"d": "adding float does not compose exactly"}))
    assert found.stage_of("d").strategy is Strategy.CHAIN
    choice = found.stage_of("d").choices[0]
    assert choice.because == "adding float does not compose exactly"
    assert choice.rewrite is not None
    assert "integers" in choice.rewrite


def test_an_opaque_write_is_a_chain() -> None:
    found = plan(fake(effects={"a": "opaque"}, composes={"a": "`a[k] *= 2` composes in no known way"}))
    assert found.stage_of("a").strategy is Strategy.CHAIN


@pytest.mark.parametrize("via", ["key", "value", "condition", "reject", "opaque"])
def test_every_way_of_depending_on_itself_has_a_reason_and_a_rewrite(via: str) -> None:
    choice = plan(fake({"a": "a"}, via={("a", "a"): via})).stage_of("a").choices[0]
    assert "a" in choice.because
    assert choice.rewrite
    assert choice.place.line == 10


def test_a_state_after_a_chain_is_a_scan_again() -> None:
    assert shape(plan(fake({"a": "a", "b": "a"}, ("a", "b", "c", "d"))))[-1] == (2, "scan", ("b",))


# --- mode -------------------------------------------------------------------------------------------


def test_one_slice_needs_no_stages() -> None:
    assert plan(fake(), slices=1, cores=8).mode == "chain"


def test_given_slices_and_a_scan_stage_are_staged() -> None:
    assert plan(fake({"b": "b"}), slices=2, cores=1).mode == "staged"


def test_given_slices_without_a_scan_stage_are_a_chain() -> None:
    everything = {n: n for n in "abcd"}
    assert plan(fake(everything), slices=4, cores=64).mode == "chain"


def test_the_cost_law_decides_where_nobody_does() -> None:
    deep = fake({"b": "a", "c": "b", "d": "c"})
    assert plan(deep, cores=2).mode == "chain"
    assert plan(deep, cores=64).mode == "staged"


def test_one_core_is_a_chain() -> None:
    assert plan(fake(), cores=1).mode == "chain"


def test_small_logs_are_a_chain() -> None:
    assert plan(fake(), cores=8, counts={"Tick": 10}).mode == "chain"
    assert plan(fake(), cores=8, counts={"Tick": 10_000_000}).mode == "staged"


def test_a_mode_can_be_forced() -> None:
    assert plan(fake(), slices=4, force="chain").mode == "chain"
    assert plan(fake(), cores=1, force="staged").mode == "staged"
    assert plan(fake(), slices=1, force="staged").mode == "chain"


# --- forced strategies --------------------------------------------------------------------------------


def test_a_scan_can_be_forced_to_be_a_chain() -> None:
    found = plan(fake(), force={"b": "chain"})
    assert shape(found) == [(1, "scan", ("a", "c", "d")), (1, "chain", ("b",))]


def test_forcing_a_scan_on_what_is_none_says_why_and_what_to_rewrite() -> None:
    with pytest.raises(PlanError, match="b cannot be a scan") as caught:
        plan(fake({"b": "b"}), force={"b": "scan"})
    assert caught.value.place.line == 11
    assert caught.value.hint


def test_scan_for_everything_is_refused_where_one_state_is_none() -> None:
    assert plan(fake(), force="scan").mode == "staged"
    with pytest.raises(PlanError):
        plan(fake({"b": "b"}), force="scan")


@pytest.mark.parametrize(
    ("force", "code"),
    [("fast", "TL351"), ({"a": "fast"}, "TL351"), ({"x": "scan"}, "TL351"), ({"a": "by key"}, "TL353")],
)
def test_what_does_not_exist_is_refused(force: Any, code: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan(fake(), force=force)
    assert caught.value.code == code


def test_a_misspelt_strategy_is_told_as_the_command_line_takes_it() -> None:
    for force, names in (("bykey", ", chain, staged"), ({"a": "bykey"}, ", chain")):
        with pytest.raises(PlanError) as caught:
            plan(fake(), force=force)
        hint = str(caught.value.hint)
        assert hint.startswith("did you mean by-key? strategies: scan, ")
        assert hint.endswith(names)


def test_states_of_a_cycle_take_one_strategy() -> None:
    cycle = fake({"a": "b", "b": "a"}, ("ab", "c", "d"))
    with pytest.raises(PlanError, match="need one strategy"):
        plan(cycle, force={"a": "scan", "b": "chain"})
    assert plan(cycle, force={"a": "chain"}).stage_of("b").strategy is Strategy.CHAIN


# --- verification ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        {"targets": ("a",)},
        {"delta": frozenset("a")},
        {"exact": frozenset("d")},
        {"ignored": frozenset("a")},
    ],
)
def test_a_pass_that_does_not_fit_its_stage_is_found(spoil: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        make_plan(fake({"d": "a"}), passes=FakePasses(spoil))
    assert caught.value.code == "TL359"


def test_a_wrong_order_of_components_is_found() -> None:
    with pytest.raises(PlanError, match="comes later"):
        plan(fake({"a": "b"}))


def test_dependencies_that_the_facts_do_not_know_are_found() -> None:
    analysis = fake()
    wrong = fake({"a": "b"}).dependencies
    with pytest.raises(PlanError, match="depends on b, which is not known yet"):
        plan(Fake(analysis.spec, analysis.facts, wrong, analysis.components))


def test_a_missing_component_is_found() -> None:
    with pytest.raises(PlanError, match="exactly the program's states"):
        plan(fake(components=("a", "b", "c")))


# --- the cost law ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "ratio"), [(2, 0.93), (8, 0.31), (64, 0.04)])
def test_the_law_gives_the_numbers_of_the_design(cores: int, ratio: float) -> None:
    """design.md, section 3: R about 1.7."""
    assert round(Law((0.5, 1.2), (), 0.0).ideal(cores), 2) == ratio


def test_a_chain_stage_costs_its_full_work() -> None:
    assert Law((), (0.5,), 0.0).ideal(64) > 0.49
    shapes = (Shape(("a",), frozenset({"a"}), chain=True),)
    assert foretell(shapes, Times((0.5,), 1.0, 0.0, 0.0), (1 / 48,) * 48, 0, 64) > 0.48


def test_more_slices_than_cores_run_in_rounds() -> None:
    shapes = (Shape(("a",), frozenset(), chain=False),)
    times = Times((1.0,), 1.0, 0.0, 0.0)

    def even(slices: int, cores: int) -> float:
        return foretell(shapes, times, (1 / slices,) * slices, 0, cores)

    assert even(2, 2) == 0.5 + 0.5  # the first final pass beside the delta pass, then the second
    assert even(1, 4) == 1.0
    assert even(4, 1) == pytest.approx(1.0 + 0.75)
    assert foretell(shapes, times, (0.25,) * 4, 1, 1) == pytest.approx(1.0 + 0.5)


def test_reading_ahead_hides_the_smaller_part() -> None:
    assert Law((), (), 0.0, beside=0.4).one_by_one(1, 2) == 0.6
    assert Law((), (), 0.0, beside=0.4).one_by_one(1, 1) == 1.0
    assert Law((), (), 0.0).one_by_one(1, 2) == 1.0


def test_threads_share_out_a_pass_by_key() -> None:
    """On two cores a chain that reads ahead is as fast; with more, or handlers that do more, events are shared out."""
    even = Law((), (), 0.0, beside=0.3, compiled=True, written=0.2, listed=0.07)
    assert even.one_by_one(1, 2) == pytest.approx(0.6)
    assert even.by_key(1, 2) == pytest.approx(0.57)
    assert even.by_key(1, 4) == pytest.approx(0.35)
    assert even.by_key(1, 64) == pytest.approx(0.3 + 0.2 / 64)  # who reads is one thread
    heavy = Law((), (), 0.0, beside=0.1, compiled=True, written=0.1, listed=0.02)
    assert heavy.by_key(1, 2) < 0.7 * heavy.one_by_one(1, 2)


def test_the_planner_shares_out_where_it_pays() -> None:
    """Means per sensor: a chain on two cores, where it was measured to be as fast, by key on four."""
    counts = {"Reading": 10_000_000}
    modes = [
        make_plan(Ewma, counts=counts, cores=n, threads=n, compiled=lambda work, final: True).mode
        for n in (2, 4)
    ]
    assert modes == ["chain", "by key"]
