"""How state is stored and moved between slices: tables, effects, and the hash that checks them.

Begin with `table.py`: a state as a table, sorted by the hash of its keys. `apply.py` applies effects and
says what changed, `merge.py` goes from slice to slice, `rowhash.py` has the sums that are compared.
`effectlog.py` has rows of states that are looked back on.
"""
