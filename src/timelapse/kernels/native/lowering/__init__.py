"""From the handlers of a pass to the source of one flat function.

Begin with `lower.py`: it makes the parts, writes the code of each event and puts the function together. No part inherits from
another. Each is given what it uses:

- `context.py`: the pass, its unit, and the event and line at which code is written now. All parts share it.
- `form.py`: what is written, statements as nodes. Every operand is a name that is assigned once; `flow.py` finds the variables in
  which ways meet. `code.py` writes the nodes of one event, `trying.py` takes back what was written.
- `fields.py`, `columns.py`, `stateful.py`: what code reads and writes. `states/` has the operations of each kind of state.
- `rules.py`: the parts that write Python out, which call each other. `statements.py`, `loops.py`, `inlining.py` (functions);
  `evaluation.py`, `calls.py`, `folds.py`, `iteration.py` (expressions); `emits.py`, `sending.py`, `raising.py` (what a handler
  tells). `numbers.py`, `comparisons.py` and `functions.py` hold the rules of each operation, and when it leaves to Python.
- `events.py`, `owners.py`, `slides.py`, `rejecting.py`: what stands around the handlers of an event.
- `passes.py`: the passes over these nodes, in their order. `idle.py`, `rows.py` and `lookahead.py` make code shorter, and look-ups
  fewer and sooner; `grouping.py` finds the states that share a table.
- `source.py` puts the function together, `literals.py` names its literals, `printing.py` prints it.
"""
