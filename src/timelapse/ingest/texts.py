"""Texts: the cells of a line of CSV, and all texts of a column looked at at once."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa

csv.field_size_limit(min(sys.maxsize, 2**31 - 1))


def cells_of(line: str, sep: str, quote: str | None) -> list[str]:
    """The cells of a line of CSV. Raises csv.Error where its quotes do not fit."""
    if quote and quote in line:
        return next(csv.reader([line], delimiter=sep, quotechar=quote, strict=True))
    return line.split(sep)


def rows_of(lines: Iterable[str], sep: str) -> Iterator[list[str]]:
    """The rows of lines of CSV that nobody has described, as an ingest reads them: lines that are bad rows are left out."""
    for line in lines:
        with suppress(csv.Error):
            yield cells_of(line, sep, '"')


def holds_only(column: pa.Array, allowed: bytes, most: int) -> bool:
    """Whether no text of a column has other bytes than these, or more of them than `most`. False where nulls hide any."""
    if not len(column):
        return True
    if not pa.types.is_string(column.type):
        return False
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    if int(np.diff(offsets).max()) > most:
        return False
    if data is None or offsets[0] == offsets[-1]:
        return True
    known = np.zeros(256, np.bool_)
    known[list(allowed)] = True
    return bool(known[np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]].all())


def may_have_seven_digits(column: pa.Array) -> bool:
    """Whether some text may have seven digits in a row behind its first byte. True where that cannot be seen at once."""
    if not pa.types.is_string(column.type):
        return True
    _, offsets_buffer, data = column.buffers()
    if data is None or not len(column):
        return False
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    bytes_ = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    if len(bytes_) < 7:
        return False
    digits = (bytes_ - np.uint8(48)) < 10
    firsts = offsets[:-1] - offsets[0]
    digits[firsts[firsts < len(bytes_)]] = False  # so that no row of digits goes on in the next text
    two = digits[:-1] & digits[1:]
    four = two[:-2] & two[2:]
    return bool((four[:-3] & four[3:]).any())
