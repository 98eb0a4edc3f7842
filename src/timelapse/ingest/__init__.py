"""Taking data in: sources of events to segments of a log, in this process or on Spark.

Begin with `write.py`, which puts a log or an append in its place. `source.py` has the options,
`definition.py` reads them from a file, `plan.py` says how a source is read. Text goes through `lines.py`
and `parse.py`, columns through `table_files.py` and `nested.py`, tables elsewhere through `tables/`. `batches.py` makes
events of rows; what does not fit is put aside. `in_process.py` and `on_spark.py` make the same log.
`noticed.py`, `drift.py` and `doubts.py` find what the user should know. `late.py` and `unique.py` have the
rules for appends.
"""
