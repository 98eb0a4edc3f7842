"""Functions of the user's on their way to Spark's workers: by value, with the module that they are in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from timelapse.program.load import is_user_module


def by_value(function: Callable[[Any], Any]) -> bytes:
    """A function as bytes that any worker can load, whether it has the function's file or not."""
    from pyspark import cloudpickle

    module = sys.modules.get(function.__module__)
    own = module is not None and is_user_module(module.__name__)
    if own:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        return bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    finally:
        if own:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]
