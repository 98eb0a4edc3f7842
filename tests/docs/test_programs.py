"""docs/programs.md says how the programs run now; its figures are as they were measured."""

from benchmarks.programs import PAGE, figures_of, page, without_figures
from tests.programs.catalogue import CATALOGUE


def test_the_page_is_up_to_date_but_for_its_figures() -> None:
    written = PAGE.read_text(encoding="utf-8")
    made = page({}, "Measured")
    assert without_figures(written) == without_figures(made), (
        "python -m benchmarks.programs --keep-figures > /tmp/page && mv /tmp/page docs/programs.md"
    )


def test_every_program_has_its_figures() -> None:
    found = figures_of(PAGE.read_text(encoding="utf-8"))
    assert list(found) == [entry.name for entry in CATALOGUE]
    measured = [cell for row in found.values() for cell in row if cell != "-"]
    assert len(measured) > 30
    assert all(float(cell.replace(",", "")) > 0 for cell in measured)
