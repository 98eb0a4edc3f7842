"""Prints statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from timelapse.kernels.native.lowering.form import (
    Assign,
    Break,
    Continue,
    Do,
    For,
    If,
    Keep,
    Leave,
    Look,
    Node,
    Return,
    Room,
    Save,
    While,
)


def printed(body: Iterable[Node], indent: int, line: Callable[[Node], str] | None = None) -> list[str]:
    """The lines of statements. What `Occupy`, `look` and `own` stand for must have been written out (rows.py), unless `line` prints
    statements that are no branch or loop in another way."""
    return [text for node in body for text in _lines(node, "    " * indent, indent, line or line_of)]


def _lines(node: Node, pad: str, indent: int, line: Callable[[Node], str]) -> Iterator[str]:
    match node:
        case If():
            yield from _branch(node, "if", pad, indent, line)
        case While(test=test, body=body):
            yield f"{pad}while {test}:"
            yield from _inner(body, pad, indent, line)
        case For(counter=counter, over=over, body=body):
            yield f"{pad}for {counter} in range({over}):"
            yield from _inner(body, pad, indent, line)
        case Room(reason=reason):
            yield f"{pad}if {node.test}:"
            yield f"{pad}    return left(j, u, N{reason})"
        case _:
            yield pad + line(node)


def _branch(node: If, word: str, pad: str, indent: int, line: Callable[[Node], str]) -> Iterator[str]:
    yield f"{pad}{word} {node.test}:"
    yield from _inner(node.body, pad, indent, line)
    match node.orelse:
        case [If() as other] if node.chained:
            yield from _branch(other, "elif", pad, indent, line)
        case [*_] as other if other:
            yield f"{pad}else:"
            yield from _inner(other, pad, indent, line)


def _inner(body: list[Node], pad: str, indent: int, line: Callable[[Node], str]) -> Iterator[str]:
    if not body:
        yield f"{pad}    pass"
    yield from printed(body, indent + 1, line)


def line_of(node: Node) -> str:
    """A statement that is no branch or loop, as source."""
    match node:
        case Assign(target=target, code=code, op=op):
            return f"{target} {op} {code}"
        case Do(code=code):
            return code
        case Look(row=row, what="find", table=t, key=key):
            return f"{row} = find{len(key)}(t{t}, m{t}, {', '.join(key)})"
        case Look(row=row, what="claim", table=t, key=key):
            return f"{row} = claim{len(key)}(t{t}, m{t}, counts, N{t}, {', '.join(key)})"
        case Save(row=row, table=t, state=state, place=place, live=live):
            return f"u = save(undo, u, N{state}, t{t}, {row}, N{place}, N{live})"
        case Keep(row=row, table=t, words=words) if words:
            return f"note(kept, noted, j, N{t}, t{t}, {row}, N{words}, each, before, again, back)"
        case Keep(row=row, table=t):
            return f"keep(kept, N{t}, t{t}, {row})"
        case Return(code=code):
            return f"return {code}"
        case Leave(reason=reason):
            return f"return left(j, u, N{reason})"
        case Break():
            return "break"
        case Continue():
            return "continue"
    raise TypeError(node)
