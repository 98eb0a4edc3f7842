"""From the handlers of a pass to the source of one flat function.

Begin with `lower.py`. `statements.py`, `evaluation.py`, `calls.py` and `folds.py` write statements and
expressions, in which every operand is a name that is assigned once. `flow.py` finds the variables where
ways meet. `numbers.py`, `comparisons.py` and `functions.py` hold the rules for each operation, and when it
leaves to Python. `states/` writes each kind's operations. `rows.py`, `grouping.py` and `lookahead.py` make
look-ups fewer and sooner. `sending.py` and `rejecting.py` are for events that are sent and undone.
"""
