"""docs/kinds.md is what the kinds say of themselves."""

from pathlib import Path

import timelapse as tl
from timelapse.cli.kinds_page import page
from timelapse.kinds.base import State
from timelapse.kinds.registry import kinds

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date() -> None:
    written = (DOCS / "kinds.md").read_text(encoding="utf-8")
    assert written == page(), "python -m timelapse.cli.kinds_page > docs/kinds.md"


def test_every_kind_is_on_the_page() -> None:
    offered = {v for n in tl.__all__ if isinstance(v := getattr(tl, n), type) and issubclass(v, State)}
    assert offered == set(kinds().values())
