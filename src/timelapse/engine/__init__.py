"""Passes over all slices: tasks, executors (in process, Spark), exchange of state, validation, commit."""
