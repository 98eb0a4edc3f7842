"""State kinds. One file each: the meaning in Python, the delta, and how deltas compose.

Begin with `base.py`: what every kind has. One file is one kind; `registry.py` lists them. `effects.py` is
what a slice did to a state and how that composes. `past.py` is the meaning of windows. `grouped.py` is
shared by kinds that hold several things under a key.
"""
