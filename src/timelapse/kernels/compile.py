"""`python -m timelapse.kernels.compile [--usual] [--remove FOLDER] FILE...`: compile passes whose source
`build.write_source` wrote; with --usual before them what nearly all passes call (`usual.py`). With --remove nobody waits
for them: their folder is removed at the end, other processes go first, and all that passes call besides is compiled before
them (`kernels/rehearsal.py`).

They are put into the cache that all processes of this user share; one that is there already is not compiled
again. Ends with 1 if Numba refused one; such a pass is interpreted.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from timelapse.kernels.native.build import NotCompiled, compile_file
from timelapse.store.scratch import hand_over


def main(files: list[str]) -> int:
    """Compile the files, one after the other. The exit status."""
    if files[:1] == ["--usual"]:
        from timelapse.kernels.native.usual import compile_usual

        compile_usual()
        return main(files[1:])
    if files[:1] == ["--remove"]:
        os.nice(10)
        folder = hand_over(Path(files[1]), os.getpid())
        try:
            from timelapse.kernels.rehearsal import rehearse

            rehearse()
            return main([str(folder / Path(file).name) for file in files[2:]])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    status = 0
    for file in files:
        try:
            compile_file(file)
        except NotCompiled as error:
            print(f"{file}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
