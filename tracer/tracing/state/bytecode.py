"""What the instructions of a code object do, as far as reading names is concerned, the same for every version of Python.

Knows the names of instructions from 3.11 on. Must not know what the names stand for.
"""

from __future__ import annotations

import dis
import functools
import types
from collections import Counter
from typing import Any

_LOADS_NAME = frozenset(("LOAD_GLOBAL", "LOAD_NAME"))
_LOADS_CELL = frozenset(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"))
_LOADS_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
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
_WRITES = frozenset(("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR", "DELETE_ATTR"))


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
            first, second = (
                "store" if part.startswith("STORE") else "local" for part in _halves(name)
            )
            result += [(first, argument[0]), (second, argument[1])]
            continue
        kind = ""
        if name in _LOADS_NAME:
            kind = "name"
        elif name in _LOADS_CELL or "LOAD_FAST" in name:
            kind = "local"
        elif name == "STORE_FAST":
            kind = "store"
        elif name in _LOADS_ATTRIBUTE:
            kind = "attribute"
        elif name.startswith("LOAD_CONST") or name == "LOAD_SMALL_INT":
            kind = "constant"
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and instruction.argrepr == "[]"):
            kind = "subscript"
        elif name in _WRITES:
            kind = "write"
        elif name in ("STORE_DEREF", "STORE_GLOBAL"):
            kind = "cell" if name == "STORE_DEREF" else "global"
        if kind or (result and result[-1][0]):
            result.append((kind, argument if kind else None))
    return tuple(result)


def _halves(name: str) -> tuple[str, str]:
    place = max(name.find("_LOAD_FAST", 1), name.find("_STORE_FAST", 1))
    return name[:place], name[place + 1 :]


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
