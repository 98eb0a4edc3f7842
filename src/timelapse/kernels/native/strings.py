"""Values as int64 words and back: strings and bytes as dense codes, which are equal when the values are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


class Interned:
    """The codes of a kernel's strings. Codes 0 to n-1 are those of `first`, in this order."""

    def __init__(self, first: Sequence[str | bytes] = ()) -> None:
        self._codes: dict[str | bytes, int] = {}
        self._values: list[str | bytes] = []
        for value in first:
            self.code(value)

    def code(self, value: str | bytes) -> int:
        found = self._codes.get(value)
        if found is None:
            found = self._codes[value] = len(self._values)
            self._values.append(value)
        return found

    def words(self, column: pa.Array) -> Ints:
        """A column without nulls as words: numbers as they are, strings as codes."""
        kind = column.type
        if is_text(kind):
            encoded = column.dictionary_encode()
            code = self.code
            distinct = encoded.dictionary.to_pylist()
            codes = np.fromiter((code(v) for v in distinct), np.int64, len(distinct))
            if not len(codes):
                return np.zeros(0, np.int64)
            found: Ints = codes[encoded.indices.to_numpy()]
            return found
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.int64())
        if pa.types.is_boolean(kind):
            flags: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64)
            return flags
        words: Ints = column.to_numpy()
        return words

    def arrow(self, words: Ints, kind: pa.DataType) -> pa.Array:
        """Words as a column of this type."""
        if is_text(kind):
            distinct, places = np.unique(words, return_inverse=True)
            values = self._values
            texts = pa.array([values[c] for c in distinct.tolist()], kind)
            return texts.take(pa.array(places))
        if pa.types.is_timestamp(kind):
            return pa.array(words).cast(kind)
        if pa.types.is_boolean(kind):
            return pa.array(words != 0)
        return pa.array(words)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are strings or bytes."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )  # fmt: skip
