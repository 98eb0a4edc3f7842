"""Runs and logs as Spark DataFrames: lazy, and read on the executors."""
