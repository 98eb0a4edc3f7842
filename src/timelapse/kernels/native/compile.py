"""`python -m timelapse.kernels.native.compile FILE...`: compile passes whose source `build.write_source` wrote.

They are put into the cache that all processes of this user share; one that is there already is not compiled
again. Ends with 1 if Numba refused one; such a pass is interpreted.
"""

from __future__ import annotations

import sys

from timelapse.kernels.native.build import NotCompiled, compile_file


def main(files: list[str]) -> int:
    """Compile the files, one after the other. The exit status."""
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
