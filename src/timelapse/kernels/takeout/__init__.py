"""Which events are taken out of a log because one that stems from them fails, perhaps long after.

Begin with `taking.py`. `steplog.py` keeps what recent steps read and wrote (`cells.py`, `indexes.py`, `looking.py`), so
that `undoing.py` can take an event out of them with all that stems from it.
"""
