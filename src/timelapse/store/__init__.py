"""What is durable: places, files with checksums, versions, folders that appear whole, temporary folders.

`places.py` and `remote.py` read what users write as a place. `place.py` is the interface of places, which `objects.py` and `hadoop.py` have for object
stores; `commits.py` makes versions of them, `fetched.py` keeps copies of their files. `parts.py` writes files once, with size and checksums, and checks them
when they are read. `folders.py` makes a folder that appears whole or not at all, one maker at a time. `scratch.py` has
temporary folders that say whose they are, and removes those of dead processes. `failures.py` names what could not be
written.

Begin with `parts.py` (files with checksums) and `manifests.py` (what lists them, and is created once).
`place.py` is the interface of places: `disk.py`, `objects.py` and `hadoop.py` are implementations, and
`places.py` reads what users write as one. `commits.py` makes versions of a place, `drafts.py` of a folder.
`remote.py` gives paths in object stores, which `fetched.py` brings to this disk.
"""
