"""Statements of an event's code that nothing can need are taken out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from timelapse.kernels.native.lowering.form import For, Node, Room, Save, While, is_exit, leaves


def without_idle_room(body: Sequence[Node], filled: Collection[str]) -> list[Node]:
    """Without the questions for room that have one answer. `filled`: what is asked for in loops."""
    for node in body:
        for block in node.blocks:
            block[:] = without_idle_room(block, filled)
    return [node for node in body if not isinstance(node, Room) or node.asked in filled]


def without_idle_saves(body: Sequence[Node], *, more: bool = False) -> list[Node]:
    """Without the undo entries that nothing can need: no exit comes after them.

    Code after an exit inside of the same loop may have run before it. `more`: exits may come after all of it.
    """
    return list(body) if more else _until_exit(body, needed=False)[0]


def _until_exit(body: Sequence[Node], *, needed: bool) -> tuple[list[Node], bool]:
    """Statements, from the last to the first, and whether an exit comes after what stands before them."""
    kept: list[Node] = []
    for node in reversed(body):
        if isinstance(node, While | For) and leaves(node.blocks[0]):
            needed = True
        for block in reversed(node.blocks):
            block[:], needed = _until_exit(block, needed=needed)
        needed = needed or is_exit(node)
        if needed or not isinstance(node, Save):
            kept.append(node)
    return kept[::-1], needed
