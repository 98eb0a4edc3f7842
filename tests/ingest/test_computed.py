"""Fields that are computed: missing values, and expressions that cannot be evaluated."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.errors import IngestError
from timelapse.ingest.expressions import expression
from timelapse.log import Log, Source


class Paid(tl.Event):
    id: int
    cents: int | None
    day: str | None


@pytest.mark.parametrize("kind", ["csv", "text", "apply", "json"])
def test_a_missing_value_is_null_in_expressions(kind: str, tmp_path: Path) -> None:
    """The text of a missing value in CSV and text files, and the folder that Hive has for rows without one."""
    rows = [("5", "", "1.25"), ("", "6", ""), ("", "", "2"), ("7", "8", "x")]
    compute = {"ts": "coalesce(a, b)", "cents": "round(price * 100)", "day": "coalesce(day, 'none')"}
    folder = tmp_path / "day=__HIVE_DEFAULT_PARTITION__"
    folder.mkdir()
    options: dict[str, object] = {}
    if kind == "json":
        lines = [f'{{"id": {n}, "a": {a or "null"}, "b": {b or "null"}, "price": "{p}"}}' for n, (a, b, p) in enumerate(rows)]  # fmt: skip
        text = "\n".join(lines).replace('"price": ""', '"price": null')
    else:
        text = "".join(f"{n},{a},{b},{p}\n" for n, (a, b, p) in enumerate(rows))
        text = text if kind == "text" else "id,a,b,price\n" + text
    if kind == "text":
        options["regex"] = r"(?P<id>\d+),(?P<a>\d*),(?P<b>\d*),(?P<price>.*)"
    if kind == "apply":
        options["apply"] = lambda row: row
    (folder / f"x.{'txt' if kind == 'text' else 'csv' if kind == 'apply' else kind}").write_text(text)
    log = Log.write(tmp_path / "log", {Paid: Source(tmp_path, compute=compute, **options)}, max_bad=1.0)  # type: ignore[arg-type]
    assert [(e.ts, e.id, e.cents, e.day) for e in log.events(Paid)] == [(5, 0, 125, "none"), (6, 1, None, "none")]  # fmt: skip
    reasons = log.quarantine()["reason"].to_pylist()
    assert len(reasons) == 2
    assert "ts" in reasons[0]
    assert "cents" in reasons[1]


def test_another_text_of_a_missing_value(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,id,price\n1,1,\\N\n2,2,3\n")
    source = Source(tmp_path / "a.csv", null="\\N", compute={"cents": "coalesce(price, 0) + 1"})
    assert [e.cents for e in Log.write(tmp_path / "log", {Paid: source}).events(Paid)] == [1, 4]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("regexp_extract(s, '([a-z', 1)", "is no pattern"),
        ("regexp_extract(s, '([a-z]+)', 2)", "has no group 2: it has 1"),
        ("regexp_extract(s, p, 1)", "p is to be a constant text"),
        ("round(x, digits)", "digits is to be a constant whole number"),
        ("round(x, 1.5)", "1.5 is to be a constant whole number"),
        ("substring(s, n)", "n is to be a constant whole number"),
        ("substring(s, 1, n)", "n is to be a constant whole number"),
        ("replace(s, t, 'x')", "t is to be a constant text"),
        ("trim(both t from s)", "t is to be a constant text"),
        ("(" * 400 + "1" + ")" * 400, "nested too deeply"),
        ("+".join(["1"] * 4000), "nested too deeply"),
    ],
)
def test_what_cannot_be_evaluated_is_an_error_before_rows_are_read(text: str, said: str) -> None:
    with pytest.raises(IngestError, match="TL411") as raised:
        expression(text, "compute: cents of Paid")
    assert said in str(raised.value)


def test_constants_of_functions() -> None:
    columns = {"s": pa.array(["xab12x", None, "zz"]), "x": pa.array([1234.5, None, 0.25])}
    wanted = {
        "regexp_extract(s, '([a-z]+)([0-9]+)', 2)": ["12", None, ""],
        "round(x, -2)": [1200.0, None, 0.0],
        "substring(s, -3, 2)": ["12", None, "z"],
        "trim(both 'x' from s)": ["ab12", None, "zz"],
        "replace(s, 'x')": ["ab12", None, "zz"],
    }
    found = {text: expression(text, "").of(columns, 3)[0].to_pylist() for text in wanted}
    assert found == wanted
