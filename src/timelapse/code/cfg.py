"""Graph algorithms over small control-flow graphs. Sets of nodes are bits of an int."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Graph = Sequence[Sequence[int]]
"""Successors of each node."""


def reachable(graph: Graph, start: int) -> set[int]:
    """Nodes that can be reached from `start`, itself included."""
    seen, todo = {start}, [start]
    while todo:
        for target in graph[todo.pop()]:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def on_cycles(graph: Graph) -> set[int]:
    """The nodes that can be reached from themselves."""
    found = {n for n, targets in enumerate(graph) if n in targets}
    named = {str(n): [str(t) for t in targets] for n, targets in enumerate(graph)}
    for part in components(named):
        if len(part) > 1:
            found.update(map(int, part))
    return found


def dominators(graph: Graph, start: int) -> list[int]:
    """For each node the bits of its dominators, itself included (all bits where it is not reachable)."""
    count = len(graph)
    every = (1 << count) - 1
    before: list[list[int]] = [[] for _ in range(count)]
    for node, targets in enumerate(graph):
        for target in targets:
            before[target].append(node)
    found = [every] * count
    found[start] = 1 << start
    order = _reverse_postorder(graph, start)
    changed = True
    while changed:
        changed = False
        for node in order:
            if node == start:
                continue
            bits = every
            for source in before[node]:
                bits &= found[source]
            bits |= 1 << node
            if bits != found[node]:
                found[node] = bits
                changed = True
    return found


def postdominators(graph: Graph, end: int) -> list[int]:
    """For each node the bits of its post-dominators, itself included. Every node must reach `end`."""
    return dominators(reverse(graph), end)


def reverse(graph: Graph) -> list[list[int]]:
    """The graph with its edges turned round."""
    turned: list[list[int]] = [[] for _ in graph]
    for node, targets in enumerate(graph):
        for target in targets:
            turned[target].append(node)
    return turned


def control_dependence(
    edges: Sequence[Sequence[tuple[int, str]]], entry: int, end: int
) -> dict[int, list[tuple[int, str]]]:
    """For each node the (branch, label) pairs that decide whether it runs (Ferrante, Ottenstein, Warren).

    `edges` are (target, label) of each node. Nodes that always run depend on `entry`. Every node must
    reach `end`.
    """
    graph = [[t for t, _ in out] for out in edges]
    graph[entry] = [*graph[entry], end]
    after = postdominators(graph, end)
    found: dict[int, list[tuple[int, str]]] = {n: [] for n in range(len(edges))}
    for branch, out in enumerate(edges):
        labelled = [*out, (end, "")] if branch == entry else list(out)
        if len({t for t, _ in labelled}) < 2:
            continue
        strict = after[branch] & ~(1 << branch)
        for target, label in labelled:
            bits = after[target] & ~strict
            while bits:
                low = bits & -bits
                node = low.bit_length() - 1
                bits ^= low
                if (branch, label) not in found[node] and node != end:
                    found[node].append((branch, label))
    return found


def reaching(
    graph: Graph, strong: Mapping[int, set[str]], weak: Mapping[int, set[str]], nodes: Sequence[int]
) -> dict[int, dict[str, set[int]]]:
    """For each node and local, the nodes whose definition may reach the node's start."""
    before = reverse(graph)
    inside = set(nodes)
    into: dict[int, dict[str, int]] = {n: {} for n in nodes}
    out: dict[int, dict[str, int]] = {n: {} for n in nodes}
    todo = list(nodes)
    queued = set(todo)
    while todo:
        node = todo.pop(0)
        queued.discard(node)
        merged: dict[str, int] = {}
        for source in before[node]:
            if source in inside:
                for name, bits in out[source].items():
                    merged[name] = merged.get(name, 0) | bits
        into[node] = merged
        after = dict(merged)
        for name in strong.get(node, ()):
            after[name] = 1 << node
        for name in weak.get(node, ()):
            after[name] = after.get(name, 0) | 1 << node
        if after != out[node]:
            out[node] = after
            for target in graph[node]:
                if target in inside and target not in queued:
                    queued.add(target)
                    todo.append(target)
    return {n: {name: _bits(b) for name, b in found.items()} for n, found in into.items()}


def components(graph: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Strongly connected components, each after those it leads to (Tarjan).

    The order depends only on the order of the mapping and its values; members keep the mapping's order.
    """
    rank = {name: i for i, name in enumerate(graph)}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[tuple[str, ...]] = []
    for root in graph:
        if root in index:
            continue
        work: list[tuple[str, int]] = [(root, 0)]
        while work:
            name, place = work.pop()
            if place == 0:
                index[name] = low[name] = len(index)
                stack.append(name)
                on_stack.add(name)
            targets = graph[name]
            for i in range(place, len(targets)):
                target = targets[i]
                if target not in index:
                    work += [(name, i + 1), (target, 0)]
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                if low[name] == index[name]:
                    members = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        members.append(member)
                        if member == name:
                            break
                    found.append(tuple(sorted(members, key=rank.__getitem__)))
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[name])
    return found


def _bits(bits: int) -> set[int]:
    found = set()
    while bits:
        low = bits & -bits
        found.add(low.bit_length() - 1)
        bits ^= low
    return found


def _reverse_postorder(graph: Graph, start: int) -> list[int]:
    seen = {start}
    order: list[int] = []
    work: list[tuple[int, int]] = [(start, 0)]
    while work:
        node, place = work.pop()
        targets = graph[node]
        for i in range(place, len(targets)):
            if targets[i] not in seen:
                seen.add(targets[i])
                work += [(node, i + 1), (targets[i], 0)]
                break
        else:
            order.append(node)
    return order[::-1]
