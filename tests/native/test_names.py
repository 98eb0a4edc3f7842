"""Variables of generated code have other names than the function's arguments."""

from __future__ import annotations

import re

from tests.programs.catalogue import CATALOGUE
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.native.lowering.lower import Lowering
from timelapse.kernels.native.lowering.source import arguments
from timelapse.kernels.native.refused import Refused

_ASSIGNED = re.compile(r"^\s*(\w+) = ")
_OWN = {"budget"}
"""Arguments that the code counts down itself."""


def test_no_variable_is_called_like_an_argument() -> None:
    """Numba would refuse such a function, and the pass run as Python."""
    compiled = 0
    for entry in CATALOGUE:
        program = entry.program()
        try:
            lowering = Lowering(program, final_pass(analyse(type(program))), final=True)
            source = lowering.run().source
        except Refused:
            continue
        compiled += 1
        assigned = {found[1] for line in source.splitlines() if (found := _ASSIGNED.match(line))}
        assert assigned & {name for name, _ in arguments(lowering.unit)} <= _OWN, entry.name
    assert compiled > 12
