"""What analysis cannot see through."""

from __future__ import annotations

import ast


class Opaque(Exception):
    """Analysis cannot see through the function: code, the node that causes it, message, remedy."""

    def __init__(self, code: str, node: ast.AST, message: str, remedy: str) -> None:
        super().__init__(message)
        self.code, self.node, self.message, self.remedy = code, node, message, remedy
