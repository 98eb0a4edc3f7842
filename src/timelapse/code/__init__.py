"""Python source, whoever asks about it: where a function's text is, what its names stand for, functions made anew.

Begin with `source.py`, which finds the syntax tree of a function and makes sure that it is the one that runs.
"""
