"""What users write with: events, records, programs, their types and their declarations.

Begin with `program.py`: what a class statement becomes. `declare.py` reads the class, `events.py` event and
record classes, `types.py` has the types of fields with their checks and Arrow forms. `times.py` finds what
reaches into other times, `pending.py` and `agenda.py` keep what lies ahead, `lookback.py` what lies behind. `identity.py` says whether a
program is what it was, `versions.py` loads versions of it apart from each other.
"""
