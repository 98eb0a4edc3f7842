"""What is durable: places, files with checksums, folders that appear whole, temporary folders.

`places.py` reads what users write as a place. `parts.py` writes files once, with size and checksums, and checks them
when they are read. `folders.py` makes a folder that appears whole or not at all, one maker at a time. `scratch.py` has
temporary folders that say whose they are, and removes those of dead processes. `failures.py` names what could not be
written.
"""
