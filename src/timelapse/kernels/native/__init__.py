"""Passes compiled to machine code with Numba: a supported subset of Python, exact; the rest is interpreted.

Begin with `kernel.py`, which runs a compiled pass, and `lowering/unit.py`, what is compiled. `lowering/` writes a
pass as one flat function, `machine/` compiles and keeps it, `memory/` is what it works on: hash tables of
words, pools of texts, lists, logs of windows. `decode.py` makes arrays of columns. `fallback.py` runs as
Python the events that machine code leaves; where they are many, `leaving.py` ends the compiled part.
`shared.py` shares events out among threads by key. `build.py` is asked for machine code, `parallel.py` has
it made in other processes.
"""
