"""The graph algorithms against their definitions, on small random graphs."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from timelapse.code import cfg

Graphs = list[list[int]]


@st.composite
def flow_graphs(draw: st.DrawFn) -> Graphs:
    """Up to 8 nodes, entry 0, exit 1; every node is made to reach the exit."""
    count = draw(st.integers(2, 8))
    graph = [draw(st.lists(st.integers(0, count - 1), max_size=3, unique=True)) for _ in range(count)]
    graph[1] = []
    for node in range(count):
        if node != 1 and 1 not in cfg.reachable(graph, node):
            graph[node].append(1)
    return graph


def paths(graph: Graphs, start: int, without: int | None) -> set[int]:
    """Nodes reachable when one node is taken out."""
    if start == without:
        return set()
    seen, todo = {start}, [start]
    while todo:
        for target in graph[todo.pop()]:
            if target != without and target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def bits(value: int) -> set[int]:
    return {i for i in range(value.bit_length()) if value >> i & 1}


@given(flow_graphs())
def test_a_dominator_is_on_every_way_from_the_entry(graph: Graphs) -> None:
    """d dominates n iff without d there is no way from the entry to n."""
    found = cfg.dominators(graph, 0)
    for node in cfg.reachable(graph, 0):
        expected = {d for d in range(len(graph)) if node not in paths(graph, 0, d)}
        assert bits(found[node]) == expected


def postdominates(graph: Graphs, d: int, n: int) -> bool:
    return 1 not in paths(graph, n, d)


@given(flow_graphs())
def test_a_postdominator_is_on_every_way_to_the_exit(graph: Graphs) -> None:
    """p post-dominates n iff without p there is no way from n to the exit."""
    found = cfg.postdominators(graph, 1)
    for node in range(len(graph)):
        assert bits(found[node]) == {p for p in range(len(graph)) if postdominates(graph, p, node)}


@given(flow_graphs())
def test_control_dependence_is_as_ferrante_ottenstein_and_warren_define_it(graph: Graphs) -> None:
    """n depends on a's edge to b iff n post-dominates b, and does not strictly post-dominate a."""
    edges = [[(t, f"to{t}") for t in out] for out in graph]
    found = cfg.control_dependence(edges, 0, 1)
    whole = [list(out) for out in graph]
    whole[0].append(1)
    for n, (a, out) in itertools.product(range(len(graph)), enumerate(edges)):
        if n == 1:
            continue
        ways = [*out, (1, "")] if a == 0 else out
        for b, label in ways:
            strictly = n != a and postdominates(whole, n, a)
            expected = postdominates(whole, n, b) and not strictly and len({t for t, _ in ways}) > 1
            assert ((a, label) in found[n]) == expected, (n, a, b)


@given(flow_graphs(), st.data())
def test_a_definition_reaches_where_some_way_leads_without_another(
    graph: Graphs, data: st.DataObject
) -> None:
    """Strong definitions stop earlier ones; weak ones do not."""
    count = len(graph)
    nodes = sorted(cfg.reachable(graph, 0))
    strong = {n: {"x"} for n in nodes if data.draw(st.booleans())}
    weak = {n: {"x"} for n in nodes if n not in strong and data.draw(st.booleans())}
    found = cfg.reaching(graph, strong, weak, nodes)
    for definition in nodes:
        if definition not in strong and definition not in weak:
            continue
        cut = [[] if n in strong else out for n, out in enumerate(graph)]
        reached: set[int] = set()
        for target in graph[definition]:
            reached |= cfg.reachable(cut, target)
        for node in nodes:
            assert (definition in found[node].get("x", ())) == (node in reached), (definition, node, count)


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef")), min_size=1))
def test_components_are_the_mutually_reachable_names_sources_first(graph: dict[str, list[str]]) -> None:
    """Two names share a component iff each leads to the other; a component comes after what it leads to."""
    graph = {n: [t for t in targets if t in graph] for n, targets in graph.items()}
    found = cfg.components(graph)
    number = {n: i for i, n in enumerate(graph)}
    reach = {n: cfg.reachable([[number[t] for t in graph[m]] for m in graph], number[n]) for n in graph}
    assert sorted(n for c in found for n in c) == sorted(graph)
    place = {n: i for i, c in enumerate(found) for n in c}
    for a, b in itertools.product(graph, graph):
        assert (place[a] == place[b]) == (number[b] in reach[a] and number[a] in reach[b])
        if number[b] in reach[a]:
            assert place[b] <= place[a]
