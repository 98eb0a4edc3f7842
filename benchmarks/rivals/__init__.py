"""The anti-spam program, one file per opponent. `worker.py` loads them by path; see `candidates.py`."""
