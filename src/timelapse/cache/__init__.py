"""Edit and rerun: what of a replay is kept so that the next one need not find it again.

A program is split in two. Its *core* is everything that a state write, or a failure on the way to one,
depends on; the *output part* is the rest: emits, and what only they need. Two things are kept, each
under a hash of exactly what it depends on (`key.py`):

- *states*: the start state of every slice, and the hash of what each slice changed. With an equal core
  only the final pass runs, all slices at once. It proves itself as any run does: it compares what each
  slice really changed with what the entry predicted.
- *reads*: what the output part reads of the states, as one column per place that reads. With these a
  program whose output part was edited needs no states at all: one small pass over the event's fields
  and these columns (`analysis/outputs.py` says which reads can be kept, and why).

A cache must never change a result. Hence: what cannot be hashed for certain is not kept (the reason is
shown); an entry is checked against SHA-256 sums of all its files before anything is taken from it;
whatever is missing, damaged or in the way means that the run does the work itself (`store.py`).

Begin with `rerun.py`, what a replay asks, and `key.py`, which names what start states depend on. `store.py`
keeps checked entries, `older.py` finds what holds of entries over another version of the log, `reads.py`
keeps what output parts read, `runs.py` remembers which run the last replay of a program made.
"""
