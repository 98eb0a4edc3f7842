"""A simulated world for the driver: a clock that needs no time, a disk and executors that fail by seed.

The driver, its commits and what it takes over from killed ones are the real code. What tasks do is the real code too, done once for
each input and then repeated from memory: a task is a function of the files that it reads.
"""
