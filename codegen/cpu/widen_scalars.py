"""Statements' texts as vector expressions: what has no vector in it is made one.

Kernel text mixes values (vectors), typed literals and sizes (scalars). A scalar beside a vector is
widened by the primitive they meet in, but `exp(f32(1))` or a bare `f32(n_r)` has no vector: there
`full(...)` is written around the scalars. Knows Python's syntax tree and the names of
`codegen.vector`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import lru_cache

from codegen.text.source import identifiers
from codegen.vector.elements import DTYPE

_MAKES_VECTORS = {"full", "lane_index", "below"}


def vector_text(
    text: str,
    element: str,
    values: Collection[str],
    functions: Collection[str] = (),
    count: str = "",
) -> str:
    """The text of a statement with lanes of `element`; `values` are the names of vectors that it
    may use, `functions` those of the user's functions, which work on `count` lanes.
    """
    used = identifiers(text)
    called = tuple(sorted(used.intersection(functions)))
    return _vector_text(
        text, element, tuple(sorted(used.intersection(values))), called, count if called else ""
    )


@lru_cache(maxsize=4096)
def _vector_text(
    text: str, element: str, values: tuple[str, ...], functions: tuple[str, ...], count: str
) -> str:
    if values and "(" not in text:
        return text
    tree = ast.parse(text, mode="eval").body
    widener = _Widener(set(values), set(functions), count)
    vector = widener.walk(tree)
    if vector:
        return ast.unparse(tree) if widener.changed else text
    return f"full({text})" if element == "bool" else f"full({element}({text}))"


class _Widener:
    """Walks an expression; `walk` says whether it is a vector, and widens the arguments of calls
    without one.
    """

    def __init__(self, values: set[str], functions: set[str], count: str) -> None:
        self.values, self.functions, self.count = values, functions, count
        self.changed = False

    def walk(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            vectors = [self.walk(a) for a in node.args]
            if name in _MAKES_VECTORS:
                return True
            if name in DTYPE:
                return False
            # The mask of a select fixes no element: one of the others must be a vector.
            decisive = vectors[1:] if name == "select" else vectors
            if not any(decisive):
                for k, vector in enumerate(vectors):
                    if not vector:
                        full = ast.Name("full", ast.Load())
                        node.args[k] = ast.Call(full, [node.args[k]], [])
                        self.changed = True
            if name in self.functions:
                node.args.insert(0, ast.parse(self.count, mode="eval").body)
                self.changed = True
            return True
        if isinstance(node, ast.Name):
            return node.id in self.values
        found = [
            self.walk(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        ]
        return any(found)
