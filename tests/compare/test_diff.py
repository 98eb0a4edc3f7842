"""What differs between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.compare import diff
from timelapse.compare.match import match, unequal
from timelapse.errors import RunError, UsageError
from timelapse.run import run_serial

DAY = 86_400_000_000


class E(tl.Event):
    n: int
    who: str


class Hit(tl.Record, key="n"):
    n: int
    who: str
    score: float


class Plain(tl.Record):
    n: int


class Rules(tl.Program):
    """Hits above a limit, with a score; rejects multiples of `odd`; a plain record per hit."""

    limit: int = 2
    gain: float = 1.0
    odd: int = 100
    seen: tl.Counter[str]

    @tl.on(E)
    def go(self, e: E) -> None:
        self.seen[e.who] += 1
        if e.n % self.odd == self.odd - 1:
            self.reject("odd one")
        if self.seen[e.who] > self.limit:
            self.emit(Hit(n=e.n, who=e.who, score=e.n * self.gain))
            self.emit(Plain(n=e.n))


class Renamed(tl.Program):
    """Another record, and one less."""

    @tl.on(E)
    def go(self, e: E) -> None:
        self.emit(Plain(n=-e.n))


EVENTS = [E(n=i, who="ab"[i % 2], ts=i * DAY // 4) for i in range(24)]


def runs(a: tl.Program, b: tl.Program) -> Any:
    return diff(run_serial(a, EVENTS), run_serial(b, EVENTS))


def test_the_same() -> None:
    """Two runs of one program, however they were sliced."""
    found = diff(run_serial(Rules, EVENTS), tl.replay(Rules, EVENTS, slices=5, spark=False))
    assert found.same
    assert found.first is None
    assert all(not any(r.counts[k] for k in ("gone", "new", "changed")) for r in found.records.values())
    assert repr(found) == "<Diff Rules Rules: the same>"


def test_gone_new_and_changed() -> None:
    """A higher limit takes hits away; a lower one adds them; another gain changes them."""
    up, down = runs(Rules(), Rules(limit=4)), runs(Rules(limit=4), Rules())
    hit = up.records["Hit"]
    assert hit.counts == {"a": 20, "b": 16, "gone": 4, "new": 0, "changed": 0}
    assert hit.gone.column("n").to_pylist() == [4, 5, 6, 7]
    assert down.records["Hit"].counts == {"a": 16, "b": 20, "gone": 0, "new": 4, "changed": 0}
    gain = runs(Rules(), Rules(gain=2.0)).records["Hit"]
    assert gain.counts == {"a": 20, "b": 20, "gone": 0, "new": 0, "changed": 20}
    assert gain.fields == {"score": 20}
    assert up.records["Plain"].counts["gone"] == 4
    assert (up.first.kind, up.first.seq, up.first.ts) == ("gone", 4, DAY)
    assert up.first.text == "1970-01-02 00:00:00.000000 seq 4 Hit gone: n=4, who='a', score=4.0"
    assert runs(Rules(), Rules(gain=2.0)).first.text.endswith("Hit changed: score 4.0 -> 8.0")
    assert [c.seq for c in hit.changes()] == [4, 5, 6, 7]
    assert repr(up) == "<Diff Rules Rules: Hit -4 +0 ~0, Plain -4 +0 ~0>"


def test_days_entities_and_top() -> None:
    """Per day, and per distinct value of a field."""
    found = runs(Rules(limit=11), Rules(limit=10)).records["Hit"]
    assert found.new.column("n").to_pylist() == [20, 21]
    assert found.by_day() == [(5, {"gone": 0, "new": 2, "changed": 0})]
    entity = found.by("who")
    assert (entity.a, entity.b, entity.freed.to_pylist(), entity.hit.to_pylist()) == (2, 2, [], [])
    assert found.top("who") == [("a", 0, 1), ("b", 0, 1)]
    none = runs(Rules(limit=2), Rules(limit=99)).records["Hit"].by("who")
    assert (none.a, none.b, sorted(none.freed.to_pylist()), none.hit.to_pylist()) == (2, 0, ["a", "b"], [])
    with pytest.raises(UsageError) as caught:
        found.by("seq")
    assert caught.value.code == "TL816"


def test_rejections_are_compared_by_event() -> None:
    """A rejected event is gone or new; its outputs are too."""
    found = runs(Rules(), Rules(odd=10))
    assert found.rejected.counts == {"a": 0, "b": 2, "gone": 0, "new": 2, "changed": 0}
    assert found.rejected.new.column("seq").to_pylist() == [9, 19]
    assert found.records["Hit"].gone.column("n").to_pylist() == [9, 19]


def test_other_record_types_and_keys() -> None:
    """A type that one side does not have is all gone; keys can be given; without a key the event counts."""
    found = runs(Rules(), Renamed())
    assert found.records["Hit"].counts == {"a": 20, "b": 0, "gone": 20, "new": 0, "changed": 0}
    assert found.records["Plain"].counts == {"a": 20, "b": 24, "gone": 0, "new": 4, "changed": 20}
    a, b = run_serial(Rules, EVENTS), run_serial(Renamed, EVENTS)
    by_n = diff(a, b, key={"Plain": ["n"]}).records["Plain"]
    assert (by_n.counts["gone"], by_n.counts["new"]) == (20, 24)
    moved = diff(a, run_serial(Rules, [e._at(e.ts + 1, e.seq) for e in EVENTS])).records["Hit"]
    assert (moved.counts["changed"], moved.fields) == (20, {"ts": 20})
    assert moved.first is not None
    assert moved.first.text.endswith("ts 1970-01-02 00:00:00.000000 -> 1970-01-02 00:00:00.000001")
    for key in ({"Plain": ["x"]}, {"None": ["n"]}):
        with pytest.raises(UsageError) as caught:
            diff(a, b, key=key)
        assert caught.value.code == "TL816"


def test_different_logs(tmp_path: Path) -> None:
    """TL815."""
    with pytest.raises(UsageError) as caught:
        diff(run_serial(Rules, EVENTS), run_serial(Rules, EVENTS[:5]))
    assert caught.value.code == "TL815"


def test_runs_by_their_folders_and_what_is_none(tmp_path: Path) -> None:
    """A run is a tl.Run or its folder; TL807 for anything else, and an error that names the folder where there is none."""
    a = tl.replay(Rules(), EVENTS, out=tmp_path / "a", spark=False)
    b = tl.replay(Renamed(), EVENTS, out=tmp_path / "b", spark=False)
    assert diff(str(tmp_path / "a"), tmp_path / "b").records["Hit"].counts == diff(a, b).records["Hit"].counts
    with pytest.raises(UsageError, match="a run is needed, not 3") as caught:
        diff(a, 3)  # type: ignore[arg-type]
    assert caught.value.code == "TL807"
    with pytest.raises(RunError, match="nowhere"):
        diff(a, str(tmp_path / "nowhere"))


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["", "a"]), st.sampled_from([0.0, -0.0, float("nan")])),
    max_size=12,
)


@given(ROWS, ROWS)
def test_matching_equals_a_plain_loop(a: list[Any], b: list[Any]) -> None:
    """The first of an identity belongs to the first, and so on."""
    names = ["k", "s", "x"]
    left, right = (
        pa.table(
            [
                pa.array([r[i] for r in rows], t)
                for i, t in enumerate((pa.int64(), pa.large_string(), pa.float64()))
            ],
            names=names,
        )
        for rows in (a, b)
    )
    waiting: dict[Any, list[int]] = {}
    for j, row in enumerate(b):
        waiting.setdefault(row[:2], []).append(j)
    pairs = [(i, waiting[row[:2]].pop(0)) for i, row in enumerate(a) if waiting.get(row[:2])]
    found = match(left, right, ["k", "s"])
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == pairs
    assert found.only_a.tolist() == [i for i in range(len(a)) if i not in {p for p, _ in pairs}]
    assert found.only_b.tolist() == [j for j in range(len(b)) if j not in {q for _, q in pairs}]
    x = unequal(left.take(pa.array(found.left)), right.take(pa.array(found.right)), ["x"])["x"]
    assert x.tolist() == [repr(a[i][2]) != repr(b[j][2]) for i, j in pairs]
