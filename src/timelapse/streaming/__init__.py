"""The same program live: streams come in, epochs are committed, and replaying the journal gives the same outputs.

Begin with `live.py` (`tl.live`) and `head.py`, which makes an epoch of rows without threads or clocks.
`loop.py` is the thread that owns a run. `streams.py` and `arrivals.py` decide what is late, complete and
next; `kernel.py` runs it, or `sliced.py` as time slices; `pack.py` and `chain.py` commit it.
`checkpoints.py`, `stand.py` and `recovery.py` are for going on. `correcting.py` takes late rows in,
`evolution.py` and `reprocessing.py` change the program. `journal.py` makes a log of the journal,
`parity.py` compares. `sources/`, `sinks/` and `serve/` are the ways in and out.
"""
