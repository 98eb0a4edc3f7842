"""Random programs whose handlers raise: at some events at once, at others when something happens that stems from them."""

from __future__ import annotations

import ast
import random

from tests.writers.sending import places


def raising(rng: random.Random, text: str, one_in: int) -> str:
    """A random program's source in which some places raise, about one time in so many that they are reached."""
    lines = text.splitlines()
    found = [at for at in places(ast.parse(text)) if not lines[at[0] - 1][: at[1]].strip()]
    for line, indent in sorted(rng.sample(found, min(len(found), rng.randint(1, 4))), reverse=True):
        value = rng.choice(
            ["self.now + e.b", "e.a * 4 + e.b + n", "n + k + e.b", "self.now * 3 + e.a", "n * 2 + e.a"]
        )
        test = f"if ({value}) % {one_in} == {rng.randrange(one_in)}: raise ValueError(f'bad {{{value}}}')"
        lines.insert(line - 1, " " * indent + test)
    return "\n".join(lines) + "\n"
