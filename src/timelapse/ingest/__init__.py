"""Taking data in: sources of events to segments of a log, in this process or on Spark."""
