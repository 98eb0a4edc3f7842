"""`timelapse explain --native`: the compiler's form of each pass, and the source that Numba compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run_cli import cli
from tests.programs.catalogue import CATALOGUE, Entry
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.native.lowered import lowered_pass, refused, shown_pass

ANTISPAM = Path(__file__).parents[2] / "examples" / "antispam.py"


def test_each_pass_is_shown() -> None:
    shown = cli("explain", f"{ANTISPAM}:Antispam", "--native")
    assert shown.code == 0
    assert "# form: Message" in shown.out
    assert "in sent + with_email, which has one from here on" in shown.out
    assert "contains of Message.text" in shown.out
    assert "def run(kind, lo, hi" in shown.out
    body = cli("explain", f"{ANTISPAM}:Antispam", "--native", "--json").json["native"]
    assert [one["pass"] for one in body][-1] == "final pass"
    assert all(one["source"].count("def run(") == 1 for one in body)


def test_what_does_not_compile_says_why(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\nimport re\n\nclass Said(tl.Event):\n    text: str\n\nclass Odd(tl.Record):\n    n: int\n\n"
        "class Words(tl.Program):\n    n: tl.Counter[str]\n\n    @tl.on(Said)\n    def said(self, e):\n"
        "        self.n[re.sub('a', 'b', e.text) + str(self.n['x'])] += 1\n        self.emit(Odd(n=self.n['x']))\n"
    )
    shown = cli("explain", f"{rules}:Words", "--native")
    assert shown.code == 0
    assert "# not compiled: " in shown.out


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_the_source_is_what_is_compiled(entry: Entry) -> None:
    """Of every program of the catalogue, and every type of event has its form."""
    program = entry.program()
    work = final_pass(analyse(program))
    try:
        unit = lowered_pass(program, work, final=True)
    except refused():
        with pytest.raises(refused()):
            shown_pass(program, work, final=True)
        return
    shown = shown_pass(program, work, final=True)
    assert shown.source == unit.source
    assert set(shown.form) >= {unit.table_of(n) for n in range(len(unit.events))}
