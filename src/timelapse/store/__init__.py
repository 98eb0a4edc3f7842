"""What is durable: places, files with checksums, versions, folders that appear whole, temporary folders.

Begin with `parts.py` (files with size and checksums, checked when they are read) and `manifests.py` (what lists them, and is created once).
`place.py` has the interface of places and that of a folder as one; `objects.py` and `hadoop.py` implement it for object stores, and
`places.py` and `remote.py` read what users write as one. `disk.py` has the operations by which a driver publishes on a file system.
`moves.py` gives names to what is made already: folders that several make at once, and files and folders that move. Outside of this
room nothing renames or syncs by itself.
`commits.py` makes versions of a place, `drafts.py` of a folder;
`fetched.py` keeps copies of a place's files on this disk. `folders.py` makes a folder that appears whole or not at all, one maker
at a time. `scratch.py` has temporary folders that say whose they are, and removes those of dead processes. `failures.py` names
what could not be written.
"""
