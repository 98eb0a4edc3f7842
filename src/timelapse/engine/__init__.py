"""Passes over all slices: tasks, executors (in process, Spark), exchange of state, validation, commit.

Begin with `driver.py`, and the induction in its docstring. `loop.py` keeps as many tasks going as there are
cores; `tasks.py` is what a task does; `executor.py`, `thread_executor.py` and `spark_executor.py` are
where. `job.py` is all that travels. `results.py` and `publish.py` make the run appear at once. `spill.py`,
`portions.py` and `exchange.py` are for states larger than memory. `resume.py` goes on after a kill.
"""
