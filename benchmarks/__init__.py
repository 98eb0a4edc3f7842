"""Benchmarks: Timelapse against plain Python, Numba by hand, and engines for tables and streams."""
