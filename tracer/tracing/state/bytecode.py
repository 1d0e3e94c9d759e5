"""What the instructions of a code object do, as far as reading names is concerned, the same for every version of Python.

Knows the names of instructions from 3.11 on. Must not know what the names stand for.
"""

from __future__ import annotations

import dis
import functools
import types
from collections import Counter
from typing import Any

_KINDS = {
    "LOAD_GLOBAL": "name",
    "LOAD_NAME": "name",
    "LOAD_DEREF": "local",
    "LOAD_CLASSDEREF": "local",
    "LOAD_FROM_DICT_OR_DEREF": "local",
    "STORE_FAST": "store",
    "LOAD_ATTR": "attribute",
    "LOAD_METHOD": "attribute",
    "LOAD_SMALL_INT": "constant",
    "BINARY_SUBSCR": "subscript",
    "STORE_SUBSCR": "write",
    "DELETE_SUBSCR": "write",
    "STORE_ATTR": "write",
    "DELETE_ATTR": "write",
    "STORE_DEREF": "cell",
    "STORE_GLOBAL": "global",
}
_BETWEEN = frozenset(
    (
        "RESUME",
        "CACHE",
        "COPY",  # x.n += 1
        "PRECALL",
        "NOP",
        "PUSH_NULL",
        "EXTENDED_ARG",
        "COPY_FREE_VARS",
        "MAKE_CELL",
    )
)


@functools.lru_cache(4096)
def operations(code: types.CodeType) -> tuple[tuple[str, Any], ...]:
    """(kind, argument) of what matters here: "name", "local", "store", "attribute", "constant", "subscript", "write" (of an
    attribute, or, without a name, of an element), "cell" and "global" (written), "" for all else."""
    result: list[tuple[str, Any]] = []
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        if name in _BETWEEN:
            continue
        if isinstance(argument, tuple) and "_FAST_" in name:  # two in one
            second = max(name.find("_LOAD_FAST", 1), name.find("_STORE_FAST", 1)) + 1
            result += zip(map(_kind, (name[: second - 1], name[second:])), argument, strict=True)
            continue
        kind = "subscript" if instruction.argrepr == "[]" else _kind(name)
        if kind or (result and result[-1][0]):
            result.append((kind, argument if kind else None))
    return tuple(result)


def _kind(name: str) -> str:
    if "LOAD_FAST" in name:
        return "local"
    return "constant" if name.startswith("LOAD_CONST") else _KINDS.get(name, "")


@functools.lru_cache(4096)
def assigned_once(code: types.CodeType) -> frozenset[str]:
    """Local variables that one place of the code assigns."""
    counts = Counter(argument for kind, argument in operations(code) if kind == "store")
    given = (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & 4)
        + bool(code.co_flags & 8)
    )
    parameters = code.co_varnames[:given]
    return frozenset(n for n, count in counts.items() if count == 1 and n not in parameters)
