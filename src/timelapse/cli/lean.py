"""What keeps short commands short."""

from __future__ import annotations

import sys


def without_pandas() -> None:
    """Keep pyarrow from importing pandas, for the rest of the process.

    Whenever it makes an array of Python values it asks whether they are pandas', and imports pandas to find out: longer
    than many a command takes. It asks once; so it is asked while there is none to be found. Only for commands that hand out
    no data frames.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _Hiding)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_Hiding)


class _Hiding:
    """An importer that says that there is no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


__all__ = ["without_pandas"]
