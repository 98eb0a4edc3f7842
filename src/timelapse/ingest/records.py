"""Records of CSV of which quoted cells go on over several lines (`multiline`): where each begins.

A cell that is opened by a quote goes on to the quote that closes it, as readers of CSV have it. Where no quote closes it within `MOST` bytes, or
what stands behind that quote does not fit, the first line is a record of its own, which is bad, and the next line begins another: a stray
quote costs its row alone.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from timelapse.ingest import lines as text_lines
from timelapse.ingest.lines import Lines, Piece

if TYPE_CHECKING:
    from timelapse.ingest.plan import Plan

MOST = 1 << 20
"""Bytes within which a record of several lines ends."""


def read(piece: Piece, plan: Plan, block: int | None = None) -> Iterator[Lines]:
    """The piece's lines as `read_lines` gives them; with `multiline` in blocks that end where a record does."""
    given = text_lines.read_lines(piece) if block is None else text_lines.read_lines(piece, block)
    if not plan.multiline:
        yield from given
        return
    quote, first = (plan.quote or "").encode(), 1
    rest: list[bytes] = []
    for lines in given:
        first = first if rest else lines.first
        if not rest and quote not in lines.data:
            yield lines
            continue
        every = [*rest, *lines.data.split(b"\n")]
        starts = starts_of(every, plan, more=True)
        whole = starts.pop()
        if whole:
            yield _block(first, every[:whole], starts)
        first, rest = first + whole, every[whole:]
    if rest:
        starts = starts_of(rest, plan, more=False)
        yield _block(first, rest, starts[:-1])


def _block(first: int, lines: Sequence[bytes], starts: list[int]) -> Lines:
    """Lines of whole records; where each of these is one line, as any others."""
    alone = len(starts) == len(lines)
    return Lines(first, b"\n".join(lines), len(lines), None if alone else starts)


def starts_of(lines: Sequence[bytes], plan: Plan, *, more: bool) -> list[int]:
    """The places among lines at which records begin, and that behind the last of them. `more`: whether lines follow, so that the last record
    may not be whole: then it is left out."""
    quote = (plan.quote or "").encode()
    starts: list[int] = []
    at = 0
    while at < len(lines):
        took = _took(lines, at, plan) if quote in lines[at] else 1
        if took is None and more:
            break
        starts.append(at)
        at += took or 1
    return [*starts, at]


def texts_of(lines: Sequence[bytes], plan: Plan) -> list[bytes]:
    """The records at the beginning of a file as texts, a last one that is not whole left out; without `multiline` the lines."""
    if not plan.multiline:
        return list(lines)
    starts = starts_of(lines, plan, more=True)
    return [b"\n".join(lines[lo:hi]) for lo, hi in itertools.pairwise(starts)]


def split(lines: Lines) -> Iterator[tuple[int, bytes]]:
    """The records of a block with the numbers of their first lines."""
    every, starts = lines.data.split(b"\n"), lines.starts or []
    for lo, hi in zip(starts, [*starts[1:], len(every)], strict=True):
        yield lines.first + lo, b"\n".join(every[lo:hi]).removesuffix(b"\r")


def _took(lines: Sequence[bytes], at: int, plan: Plan) -> int | None:
    """How many lines the record takes that begins with line `at`; None: it goes on behind the last."""
    size, end = 0, at

    def own() -> Iterator[str]:
        nonlocal size, end
        while end < len(lines) and size <= MOST:
            line = lines[end]
            size, end = size + len(line) + 1, end + 1
            yield line.decode("utf-8", "surrogateescape") + "\n"

    try:
        next(csv.reader(own(), delimiter=plan.sep, quotechar=plan.quote, strict=True))
    except csv.Error as error:
        return None if str(error) == "unexpected end of data" and size <= MOST else 1
    return end - at
