"""Passes that run as Python: handlers as they are, handlers written anew (flat/), and the serial loop.

Begin with `interpreted.py`: handlers as they are, over `stores.py`. `flat/` writes them anew, with the
checks that can fail and no others. `steps.py` merges ticks and `after=` handlers with the log, `pending.py`
keeps what lies ahead. `rowlog.py`, `windows.py`, `latest.py`, `versions.py` and `extremes.py` are windows. `timed.py` is
the serial loop as a kernel, for what analysis cannot follow.
"""
