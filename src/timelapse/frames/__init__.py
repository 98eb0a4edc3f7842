"""Runs and logs as Spark DataFrames: lazy, and read on the executors.

`spark_source.py` is the data source `timelapse` of Spark, `tables.py` makes its DataFrames, `portions.py`
cuts outputs to portions that fit.
"""
