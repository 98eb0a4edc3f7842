"""Dependence statement by statement: what each write's key, value and conditions come from."""

from __future__ import annotations

import pytest

from tests.analysis.cases import Case, analysis, cases, said


@pytest.mark.parametrize("case", cases("dependence.txt"), ids=str)
def test_fixture(case: Case) -> None:
    """The effects of each write and what they need, as the fixture says."""
    found = analysis(case.body, methods=case.methods, top=case.top)
    for state, expected in case.expected:
        assert said(found, state) == expected, found.text()


def test_a_reject_binds_all_handlers_of_the_event_and_no_others() -> None:
    """Earlier and later handlers of E depend on where E is rejected; those of F do not."""
    found = analysis(
        "self.count[e.a] += 1",
        handlers="""
        @tl.on(E)
        def check(self, e):
            if e.a in self.seen:
                self.reject("no")

        @tl.on(E)
        def after(self, e):
            self.other[e.a] += 1

        @tl.on(F)
        def elsewhere(self, e):
            self.total += 1
        """,
    )
    assert [said(found, s) for s in ("count", "other", "total")] == [
        "add needs seen", "add needs seen", "add needs nothing",
    ]  # fmt: skip


def test_a_handler_of_two_events_carries_rejects_between_them() -> None:
    """The handler of F and E writes; a reject of F concerns what it writes."""
    found = analysis(
        "pass",
        handlers="""
        @tl.on(E, F)
        def write(self, e):
            self.count[e.a] += 1

        @tl.on(F)
        def check(self, e):
            if e.a in self.seen:
                self.reject("no")
        """,
    )
    assert said(found, "count") == "add needs seen"


@pytest.mark.parametrize(
    ("body", "via", "line"),
    [
        ("self.count[self.other[e.a]] += 1", "key", 1),
        ("n = self.other[e.a]\nself.count[n] += 1", "key", 1),
        ("n = self.other[e.a]\nself.count[e.a] += n", "value", 1),
        ("\nif self.other[e.a]:\n    self.count[e.a] += 1", "condition", 1),
        ("self.count[e.a] += 1\nif self.other[e.a]:\n    self.reject('no')", "reject", 2),
    ],
)
def test_a_dependency_names_how_and_the_line(body: str, via: str, line: int) -> None:
    """key, value, condition or reject, at the line of the read."""
    found = analysis(body)
    start = found.spec.handlers[0].place.line
    assert start is not None
    (only,) = found.dependencies
    assert (only.target, only.source, only.via) == ("count", "other", via)
    assert only.place.line == start + 1 + line
    assert only.place.what == "P.handle"
