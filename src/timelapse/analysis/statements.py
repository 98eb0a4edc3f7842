"""What a simple statement does: assignments, deletions, expressions."""

from __future__ import annotations

import ast

from timelapse.analysis.ir import Found, StateRead, StateWrite
from timelapse.analysis.opaque import Opaque
from timelapse.analysis.operations import need, plain_state
from timelapse.analysis.scan import Scanner
from timelapse.code.source import all_nodes


def what_it_does(scan: Scanner, node: ast.stmt) -> Found:
    """The effect of a statement that is no branch, loop or jump. Raises Opaque for one that is not understood."""
    found = Found()
    match node:
        case ast.Expr(value=value):
            return scan.expression(value, used=False)
        case ast.Assign(targets=targets, value=value):
            found = scan.expression(value)
            for target in targets:
                _assign(scan, node, target, value, found, single=len(targets) == 1)
            found.weak |= scan.mutability.group(scan.mutability.changes(node))
        case ast.AnnAssign(target=target, value=value):
            if value is not None:
                found = scan.expression(value)
                _assign(scan, node, target, value, found, single=True)
        case ast.AugAssign():
            return _augmented(scan, node)
        case ast.Delete(targets=targets):
            for target in targets:
                _delete(scan, node, target, found)
            found.weak |= scan.mutability.group(scan.mutability.changes(node))
        case ast.FunctionDef(name=name):
            _nested(scan, node, found)
            found.strong.add(name)
        case ast.ClassDef():
            raise Opaque("TL304", node, "a class inside a handler", "define it at the module's top")
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            found.strong |= {(a.asname or a.name).split(".")[0] for a in names}
        case ast.Assert(test=test, msg=msg):
            found = scan.expression(test)
            found.merge(scan.expression(msg))
            found.subs = []
        case ast.Pass() | ast.Global() | ast.Nonlocal():
            pass
        case _:
            raise Opaque("TL311", node, f"{type(node).__name__} is not analysed", "use plain statements")
    return found


def _assign(
    scan: Scanner, node: ast.stmt, target: ast.expr, value: ast.expr, found: Found, *, single: bool
) -> None:
    state = scan.states.subscripted(target)
    if state is not None and single:
        assert isinstance(target, ast.Subscript)
        need(state, "setitem", target)
        found.merge(scan.expression(target.slice))
        key = None if state.key is None else target.slice
        found.writes.append(
            StateWrite(state.name, state.kind.ops["setitem"].effect or "set", key, value, node)
        )
        return
    state = scan.states.named(target)
    if state is not None and plain_state(state) and single:
        found.writes.append(StateWrite(state.name, "set", None, value, node))
        return
    scan.target(target, found)


def _augmented(scan: Scanner, node: ast.AugAssign) -> Found:
    target = node.target
    found = Found()
    state = scan.states.subscripted(target)
    key: ast.expr | None = None
    if state is not None:
        assert isinstance(target, ast.Subscript)
        found = scan.expression(target.slice)
        key = None if state.key is None else target.slice
    else:
        named = scan.states.named(target)
        state = named if named is not None and plain_state(named) else None
    found.merge(scan.expression(node.value))
    if state is None:
        if isinstance(target, ast.Name):
            found.uses.add(target.id)
        else:
            found.merge(scan.expression(_as_load(target)))
        scan.target(target, found)
        found.weak |= scan.mutability.group(scan.mutability.changes(node))
        return found
    op = {ast.Add: "iadd", ast.Sub: "isub"}.get(type(node.op))
    known = state.kind.ops.get(op) if op is not None else None
    if known is not None and known.effect is not None:
        negate = op == "isub"
        found.writes.append(StateWrite(state.name, known.effect, key, node.value, node, negate))
    else:
        found.reads.append(StateRead(state.name, key, node))
        reason = f"`{ast.unparse(node)}` is not an update that composes"
        found.writes.append(StateWrite(state.name, "opaque", key, node.value, node, reason=reason))
    return found


def _delete(scan: Scanner, node: ast.Delete, target: ast.expr, found: Found) -> None:
    state = scan.states.subscripted(target)
    if state is not None:
        assert isinstance(target, ast.Subscript)
        need(state, "delitem", target)
        found.merge(scan.expression(target.slice))
        op = state.kind.ops["delitem"]
        key = None if state.key is None else target.slice
    else:
        state = scan.states.named(target)
        if state is None:
            scan.target(target, found)
            return
        need(state, "delitem", target)
        op, key = state.kind.ops["delitem"], None
    value = ast.copy_location(ast.Constant(0), node) if op.effect == "set" else None
    found.writes.append(StateWrite(state.name, op.effect or "del", key, value, node))


def _nested(scan: Scanner, node: ast.FunctionDef, found: Found) -> None:
    """A function defined inside: it may read locals at any later time, but not touch the program."""
    names = {n.id for n in all_nodes(node) if isinstance(n, ast.Name)}
    if scan.receiver in names:
        raise Opaque("TL304", node, f"the nested function {node.name} uses `self`", "make it a method")
    found.late |= names & scan.scope.locals
    found.weak |= scan.mutability.group(scan.mutability.names(node))


def _as_load(target: ast.expr) -> ast.expr:
    copied: ast.expr
    if isinstance(target, ast.Attribute):
        copied = ast.Attribute(target.value, target.attr, ast.Load())
    else:
        assert isinstance(target, ast.Subscript)
        copied = ast.Subscript(target.value, target.slice, ast.Load())
    return ast.copy_location(copied, target)
