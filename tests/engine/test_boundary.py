"""The state at a cut, as it is written down."""

from __future__ import annotations

import pytest

from timelapse.engine.boundary import Boundary, Rows


def test_it_reads_back_as_it_was_written() -> None:
    """With the files it names: states, rows of each slice, and the state before the first of them."""
    made = Boundary(
        cut=3, seq=70, clock=-5, states=("n", "~pending"), rows=(Rows("n", "net", 2), Rows("v", "present", 1, True))
    )  # fmt: skip
    assert Boundary.from_json(made.to_json()) == made
    assert list(made.names()) == [
        "starts/000003-n.arrow", "starts/000003-~pending.arrow", "rows/000002-net-n.arrow",
        "starts/000001-v.arrow", "rows/000001-present-v.arrow", "rows/000002-present-v.arrow",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{}", '{"format":2,"cut":1,"seq":1,"clock":null,"states":[]}', "[1]"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"format|missing|Expected|truncated|Input"):
        Boundary.from_json(text)
