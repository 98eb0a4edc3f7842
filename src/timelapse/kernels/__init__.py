"""A pass over a slice: what runs handlers over events and collects what they did.

Begin with `kernel.py`, the contract, and `base.py`, what a pass returns. `choose.py` opens a kernel:
`native/` if the pass compiles and is worth it, else `python/`. `iterate/` runs slices from guessed starts.
`takeout/` finds events to take out where something fails later. `source.py` is what a kernel reads.
`rowlog.py` is what windows stand on, `walk.py` stops between events, for questions. `budget.py` bounds what runs ahead.
"""
