"""Keys that hold an item of an event's list: who wrote them is found by the other parts of the key, and by what lists hold."""

from __future__ import annotations

import random

import pytest

import timelapse as tl
from tests.trace.test_why import all_writes
from timelapse.kinds.grouped import Under
from timelapse.log import MemoryLog
from timelapse.run import Run, replay
from timelapse.tables.table import state_table, to_dict
from timelapse.trace import focus as focus_module
from timelapse.trace.knowledge import Ask, Place
from timelapse.trace.likely import candidates
from timelapse.trace.matter import beginning
from timelapse.trace.moments import Past
from timelapse.trace.why import why_not
from timelapse.trace.writers import writers


class Clicked(tl.Event):
    item: int
    words: list[str]


class Often(tl.Record):
    item: int


class Words(tl.Program):
    """Counts under an item of a list, alone and beside a field; what was seen last of a word and an item."""

    of_word: tl.Counter[str]
    of_both: tl.Counter[tuple[str, int]]
    latest: tl.MapOf[int, str, int] = tl.state(default=0)

    @tl.on(Clicked)
    def click(self, c: Clicked) -> None:
        for word in c.words:
            if self.of_both[word, c.item] > 90 + self.of_word[word]:
                self.emit(Often(item=c.item))
            self.of_word[word] += 1
            self.of_both[word, c.item] += 1
            self.latest[c.item, word] = c.seq


def clicks(count: int) -> list[tl.Event]:
    rng, words = random.Random(3), ["red", "blue", "lamp", "chair", "old"]
    return [
        Clicked(ts=n * 1000, item=rng.randrange(12), words=rng.sample(words, rng.randrange(4)))
        for n in range(count)
    ]


def run_of(events: list[tl.Event]) -> Run:
    return replay(Words, MemoryLog(events, [Clicked]), slices=3, spark=False)


def wanted(events: list[tl.Event]) -> dict[Place, list[tuple[object, ...]]]:
    return {
        place: [(w.seq, w.before, w.after) for w in own] for place, own in all_writes(Words, events).items()
    }


@pytest.mark.parametrize("most", [focus_module.MOST, -1])
def test_writers_are_what_the_serial_loop_says(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus_module, "MOST", most)
    events = clicks(150)
    past = Past(run_of(events))
    for place, own in wanted(events).items():
        found = writers(past, [Ask(place, 150)], 1000)[Ask(place, 150)].found
        assert [(w.seq, w.before, w.after) for w in found] == own, place


def test_a_key_of_which_a_part_is_a_field_is_found_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a question that has to go through the log, too."""
    events = clicks(150)
    past = Past(run_of(events))
    key = max((p for p in wanted(events) if p[0] == "of_both"), key=lambda p: len(wanted(events)[p]))
    monkeypatch.setattr(focus_module, "MOST", 40)  # fewer than events that may write a word
    walked: list[object] = []
    walk = Past.walk

    def walks(self: Past, *args: object, **named: object) -> None:
        walked.append(named["states"])
        walk(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Past, "walk", walks)
    asks = [Ask(key, 150), Ask(("of_word", "red"), 150)]
    found = writers(past, asks, 1000)
    for ask in asks:
        assert [(w.seq, w.before, w.after) for w in found[ask].found] == wanted(events)[ask.place]
    assert walked
    assert all(states == {"of_word"} for states in walked)


def test_lists_tell_who_is_likely_to_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    events = clicks(150)
    past = Past(run_of(events))
    for place in (("of_word", "red"), ("of_both", ("red", 5))):
        ask = Ask(place, 150)
        own = [w[0] for w in wanted(events)[place]]
        guessed = candidates(past, 0, 150, [ask])[ask].tolist()
        assert set(own) <= set(guessed)
        assert len(guessed) < 75


def test_explanations_name_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    events = clicks(150)
    run = run_of(events)
    seq = next(n for n in range(149, 0, -1) if len(events[n].words) == 3)  # type: ignore[attr-defined]
    text = why_not(run, seq).text
    monkeypatch.setattr(focus_module, "MOST", -1)
    assert why_not(run, seq).text == text
    for word in events[seq].words:  # type: ignore[attr-defined]
        place = ("of_word", word)
        newest = next(w[0] for w in wanted(events)[place] if w[0] < seq)  # type: ignore[operator]
        assert f"of_word['{word}'] = " in text
        assert f"<- Clicked {newest}" in text


class Kept(tl.Program):
    groups: tl.SetOf[tuple[str, int], int]
    plain: tl.Value[int, int | None]
    pairs: tl.Counter[tuple[str, int]]
    flags: tl.Value[bool, int | None]

    @tl.on(Clicked)
    def click(self, c: Clicked) -> None:
        self.groups.add(("a", 1), c.item)


def test_of_start_states_the_keys_that_matter_are_loaded() -> None:
    """Those that begin as one of them does, of all types that are compared; the others whole."""
    specs = Kept.__spec__.states
    groups = state_table(
        specs["groups"], [((a, b, n), True) for n in range(3) for a, b in (("a", 1), ("b", 1), ("c", 2))]
    )
    found = to_dict(specs["groups"], beginning(specs["groups"], [Under(("a", 7)), ("b", 1, 2)])(groups))
    assert {key[0] for key in found} == {"a", "b"}
    assert len(found) == 6
    plain = state_table(specs["plain"], [(n, n * n) for n in range(-5, 5)])
    assert to_dict(specs["plain"], beginning(specs["plain"], [3, -4, 77])(plain)) == {3: 9, -4: 16}
    pairs = state_table(specs["pairs"], [((a, n), n) for a in ("a", "b") for n in range(1, 9)])
    asked = [("a", 3), ("b", 8), ("c", 1)]
    assert to_dict(specs["pairs"], beginning(specs["pairs"], asked)(pairs)) == {("a", 3): 3, ("b", 8): 8}
    flags = state_table(specs["flags"], [(False, 1), (True, 2)])
    assert beginning(specs["flags"], [True])(flags) is flags
