"""The machine: Java, Spark sessions, memory, and `doctor`.

`machine.py` knows cores and memory, `java.py` finds or brings Java, `spark_session.py` starts Spark where
there is none, `jobs.py` runs pieces of work here or on Spark, `doctor.py` examines it all.
"""
