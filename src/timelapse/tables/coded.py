"""Texts as codes of a dictionary: where they repeat, each is looked at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.tables.rowhash import whole_array


def coded_type(values: pa.DataType) -> pa.DataType:
    """The type of a column of such values as codes."""
    return pa.dictionary(pa.int32(), values)


def is_coded(column: pa.Array | pa.ChunkedArray) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def fitted(column: pa.Array | pa.ChunkedArray, values: pa.DataType) -> pa.Array:
    """A column as values of this type, or as codes of a dictionary that has what occurs and nothing else, by first occurrence.

    That is the dictionary which whoever encodes the values makes, so what is written does not tell how they came.
    """
    array = whole_array(column)
    if not is_coded(array):
        return whole_array(array.cast(values))
    own = array.indices.dictionary_encode()
    texts = array.dictionary.take(own.dictionary).cast(values)
    return pa.DictionaryArray.from_arrays(own.indices, texts)


def plain_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """The bytes that a column takes as values, also where it is texts as codes."""
    if not is_coded(column):
        return int(column.nbytes)
    array = whole_array(column)
    codes, valid = codes_of(array)
    lengths = np.asarray(pc.binary_length(array.dictionary))
    taken = lengths[codes] if valid is None else lengths[codes[valid]]
    offset = 8 if pa.types.is_large_string(array.dictionary.type) else 4
    return (
        offset * len(array) + int(taken.sum(dtype=np.int64)) + (0 if valid is None else -(-len(array) // 8))
    )


def codes_of(array: pa.DictionaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """The rows' codes (0 where there is no value), and which have a value: None where all have."""
    if not array.null_count:
        return np.asarray(array.indices), None
    return np.asarray(array.indices.fill_null(0)), np.asarray(array.is_valid())
