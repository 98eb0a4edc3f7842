"""What a compiled function works on: hash tables, strings as codes, logs of operations, and their way from and to Arrow.

Begin with `table.py` and `layout.py`: a hash table of int64 words, and how a state lies in it. `strings.py`
and `pool.py` turn texts into codes. `gathering.py`, `changes.py` and `ordering.py` collect what a slice
did. `members.py` and `linking.py` list what is under a key. `effectlog.py` and `sliding.py` are for
windows.
"""
