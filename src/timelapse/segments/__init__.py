"""The stored log: a total order, columnar segments, readers for any process.

Begin with `reader.py`: the small description of a log that travels to workers, and reads ranges and
columns. `manifest.py` has what is known without reading events, `segment.py` the files. `versions.py` lists
versions and makes one without a person's events. `joined.py` and `memory.py` are what is read like a log.
"""
