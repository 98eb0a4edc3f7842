"""What a replay leaves: its rows, its states at cuts, what it says of itself; stored as a directory, or in memory.

Begin with `stored.py`: `StoredRun`, on which questions about runs stand, and `tl.Run`. `manifest.py` is `run.json`, `data.py` reads rows
and states. `travel.py` gives states in the middle of a slice, `snapshot.py` keeps states as files, `reload.py` finds a run's program and
log again.
"""
