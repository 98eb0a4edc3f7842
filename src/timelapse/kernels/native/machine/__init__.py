"""Machine code: made by Numba, kept on disk, loaded without it."""
