"""What programs are about: events and records, the types of their fields, exact decimals, resources.

Begin with `events.py`, which has event and record classes. `types.py` has the types of fields with their checks and
Arrow forms. State kinds stand on this, and programs (`program/`) on both.
"""
