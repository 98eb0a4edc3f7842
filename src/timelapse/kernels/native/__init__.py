"""Passes compiled to machine code with Numba: a supported subset of Python, exact; the rest is interpreted."""
