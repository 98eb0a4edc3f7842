"""What users write programs with, and what is known of a program before it is analysed.

Begin with `program.py`: what a class statement becomes. `declare.py` reads the class. `times.py` finds what
reaches into other times, `pending.py` and `agenda.py` keep what lies ahead, `lookback.py` what lies behind. `identity.py` says whether a
program is what it was, `versions.py` loads versions of it apart from each other.
"""
