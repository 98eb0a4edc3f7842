"""Functions and methods that analysis knows: what they leave unchanged, and what they give back."""

from __future__ import annotations

import builtins
import math
from typing import Any

PURE_BUILTINS = frozenset({
    "abs", "all", "any", "ascii", "bin", "bool", "bytes", "chr", "complex", "dict", "divmod", "enumerate",
    "filter", "float", "format", "frozenset", "hash", "hex", "id", "int", "isinstance", "issubclass", "len",
    "list", "map", "max", "min", "oct", "ord", "pow", "range", "repr", "reversed", "round", "set", "slice",
    "sorted", "str", "sum", "tuple", "type", "zip",
})  # fmt: skip
"""Builtins whose result depends on their arguments alone and that leave these as they are (but that
iterators among them are used up)."""

NOT_CONSUMING = frozenset({
    "abs", "bool", "chr", "complex", "divmod", "float", "format", "hash", "hex", "id", "int", "isinstance",
    "issubclass", "len", "oct", "ord", "pow", "range", "repr", "round", "str", "type",
})  # fmt: skip
"""Those of them that do not iterate over an argument."""

EAGER = frozenset({"all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple"})
"""Builtins that use up a generator expression before they return."""

GIVES_IMMUTABLE = frozenset({
    "all", "any", "ascii", "bin", "bool", "bytes", "chr", "complex", "float", "format", "hash", "hex", "id",
    "int", "isinstance", "issubclass", "len", "oct", "ord", "range", "repr", "round", "str", "type",
})  # fmt: skip

DYNAMIC = frozenset({
    "eval", "exec", "locals", "globals", "vars", "getattr", "setattr", "delattr", "compile", "__import__",
})  # fmt: skip
"""Builtins through which code may reach what its text does not show."""

READING_METHODS = frozenset({
    "bit_length", "capitalize", "casefold", "center", "copy", "count", "decode", "encode", "endswith",
    "expandtabs", "find", "format", "format_map", "get", "hex", "index", "is_integer", "isalnum", "isalpha",
    "isascii", "isdecimal", "isdigit", "isdisjoint", "isidentifier", "islower", "isnumeric", "isprintable",
    "isspace", "issubset", "issuperset", "istitle", "isupper", "items", "join", "keys", "ljust", "lower",
    "lstrip", "maketrans", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title",
    "to_bytes", "translate", "union", "intersection", "difference", "symmetric_difference", "upper", "values",
    "zfill", "as_integer_ratio", "conjugate",
})  # fmt: skip
"""Methods of Python's own values that change nothing."""

GIVES_LIST = frozenset({"rsplit", "split", "splitlines"})


def builtin_name(value: Any) -> str | None:
    """The name of a builtin object, if it is one."""
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and getattr(builtins, name, None) is value:
        return name
    return None


def is_math(value: Any) -> bool:
    """Whether it is a function of `math`."""
    name = getattr(value, "__name__", "")
    return getattr(math, name, None) is value if isinstance(name, str) and name else False
