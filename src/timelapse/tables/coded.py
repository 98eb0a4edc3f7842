"""Texts as codes of a dictionary: where they repeat, each is looked at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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


def codes_of(array: pa.DictionaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """The rows' codes (0 where there is no value), and which have a value: None where all have."""
    if not array.null_count:
        return np.asarray(array.indices), None
    return np.asarray(array.indices.fill_null(0)), np.asarray(array.is_valid())
