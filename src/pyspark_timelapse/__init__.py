"""Spark looks for Python data sources in modules whose name begins with `pyspark_`: it finds the format "timelapse" here."""

from timelapse.frames.spark_source import TimelapseSource as DefaultSource

__all__ = ["DefaultSource"]
