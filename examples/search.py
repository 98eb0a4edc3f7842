"""Features of a search engine: how popular an item is, overall and given the query, and how well its title fits.

timelapse explain examples/search.py:SearchFeatures
"""

import math

import timelapse as tl


class Title(tl.Event):
    """An item's title, or its new title."""

    item: int
    words: list[str]


class Clicked(tl.Event):
    """An item that was clicked in the results of a query."""

    item: int
    words: list[str]


class Shown(tl.Event):
    """An item that is about to be shown for a query."""

    id: int
    item: int
    words: list[str]


class Row(tl.Record, key="shown"):
    shown: int
    item: int
    popularity: float
    given_query: float
    tf_idf: float


class SearchFeatures(tl.Program):
    """Popularity, popularity given each word of the query, TF-IDF over the latest titles."""

    clicks: tl.Counter
    of_item: tl.Counter[int]
    of_word: tl.Counter[str]
    of_both: tl.Counter[tuple[str, int]]

    titles: tl.MapOf[int, str, int] = tl.state(default=0)
    """How often each word stands in an item's latest title."""
    titled: tl.Set[int]
    documents: tl.Counter
    containing: tl.Counter[str]

    @tl.on(Clicked)
    def click(self, e: Clicked) -> None:
        self.clicks += 1
        self.of_item[e.item] += 1
        for word in sorted(set(e.words)):
            self.of_word[word] += 1
            self.of_both[word, e.item] += 1

    @tl.on(Title)
    def retitle(self, e: Title) -> None:
        if e.item not in self.titled:
            self.titled.add(e.item)
            self.documents += 1
        for word, _ in self.titles.fields(e.item):
            self.containing[word] -= 1
        self.titles.clear(e.item)
        for word in e.words:
            self.titles[e.item, word] += 1
        for word in sorted(set(e.words)):
            self.containing[word] += 1

    @tl.on(Shown)
    def show(self, e: Shown) -> None:
        given, fit = 1.0, 0.0
        for word in e.words:
            given *= (self.of_both[word, e.item] + 1) / (self.of_word[word] + 2)
            often = self.titles[e.item, word]
            if often:
                fit += often * math.log(self.documents / self.containing[word])
        self.emit(Row(
            shown=e.id, item=e.item, popularity=(self.of_item[e.item] + 1) / (self.clicks + 2), given_query=given,
            tf_idf=fit,
        ))  # fmt: skip
