"""What `tracer.tracing.state.bytecode` must say of code, whatever version of Python has compiled it.

Needs nothing but Python itself, so that another interpreter than the one of the tests can run it: `python bytecode_facts.py
PATH_OF_BYTECODE_PY` prints what is wrong.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

X, G, END = ("local", "x"), ("name", "G"), ("", None)


def attribute(name: str) -> tuple[str, Any]:
    return "attribute", name


def constant(value: Any) -> tuple[str, Any]:
    return "constant", value


SUBSCRIPT = ("subscript", None)
WRITE_ITEM = ("write", None)

# code of a function f -> how what it does begins; what comes behind is how the version returns
BEGINNINGS: list[tuple[str, tuple[tuple[str, Any], ...]]] = [
    ("def f(): return G", (G, END)),
    ("def f(): return G.a.b", (G, attribute("a"), attribute("b"), END)),
    ("def f(x): return G.m(x)", (G, attribute("m"), X, END)),
    ("def f(x): return G(x)", (G, X, END)),
    ("def f(x): return x(G, 1)", (X, G, constant(1), END)),
    ("def f(): return G['k']", (G, constant("k"), SUBSCRIPT, END)),
    ("def f(): return G[0][300]", (G, constant(0), SUBSCRIPT, constant(300), SUBSCRIPT, END)),
    ("def f(): return G[-1]", (G, constant(-1), SUBSCRIPT, END)),
    ("def f(x): return G[x]", (G, X, SUBSCRIPT, END)),
    ("def f(x): return x[1:2]", (X, constant(1), constant(2), END)),
    ("def f(x): return -G.a + x", (G, attribute("a"), END, X, END)),
    ("def f(x): return f'{G.a}'", (G, attribute("a"), END)),
    ("def f(x): return G.a if G.b else x", (G, attribute("b"), END, G, attribute("a"), END, X)),
    ("def f(x):\n for y in G.a: pass", (G, attribute("a"), END, ("store", "y"), END)),
    ("def f(x):\n with G.a: return x", (G, attribute("a"), END, X, END)),
    # locals
    (
        "def f():\n y = G.a\n return y.b",
        (G, attribute("a"), ("store", "y"), ("local", "y"), attribute("b")),
    ),
    ("def f(x):\n y = G\n return x(y, x)", (G, ("store", "y"), X, ("local", "y"), X, END)),
    (
        "def f(x, y):\n a, b = x, y\n return a + b",
        (X, ("local", "y"), ("store", "b"), ("store", "a")),
    ),
    # places
    ("def f(x): G.a = x", (X, G, ("write", "a"))),
    ("def f(x): G['k'] = x", (X, G, constant("k"), WRITE_ITEM)),
    ("def f(x): G.a[x] = x", (X, G, attribute("a"), X, WRITE_ITEM)),
    ("def f(): del G.a, G['k']", (G, ("write", "a"), G, constant("k"), WRITE_ITEM)),
    ("def f(x): x.n += 1", (X, attribute("n"), constant(1), END, ("write", "n"))),
    ("def f(x): G['k'] += x", (G, constant("k"), SUBSCRIPT, X, END, WRITE_ITEM)),
    ("def f(x):\n global G\n G = x", (X, ("global", "G"))),
    ("def f(x): G.a.clear()", (G, attribute("a"), attribute("clear"), END)),
    # variables around the function
    (
        "def g(c):\n def f(x): return c.a + x\n return f\nf = g(0)",
        (("local", "c"), attribute("a"), X, END),
    ),
    ("def g(c):\n def f(x):\n  nonlocal c\n  c = x\n return f\nf = g(0)", (X, ("cell", "c"))),
    (
        "def g(c):\n def f(x):\n  nonlocal c\n  c += x\n return f\nf = g(0)",
        (("local", "c"), X, END, ("cell", "c")),
    ),
]

# code of a function f -> what it or the code within it does somewhere: comprehensions are functions up to 3.11
PARTS: list[tuple[str, tuple[tuple[str, Any], ...]]] = [
    ("def f(x): return [y * G.a for y in x]", (("local", "y"), G, attribute("a"), END)),
    ("def f(x): return sum(y * G.a for y in x)", (("local", "y"), G, attribute("a"), END)),
    ("def f(x): return lambda y: y * G['k']", (("local", "y"), G, constant("k"), SUBSCRIPT, END)),
    ("def f(x):\n class A:\n  a = G.a\n return A", (G, attribute("a"))),
]

# code of a function f -> its local variables that are assigned once
ONCE: list[tuple[str, set[str]]] = [
    ("def f(x):\n y = G\n return y", {"y"}),
    ("def f(x):\n y = G\n y = x\n return y", set()),
    ("def f(x):\n x = G\n return x", set()),
    ("def f(*args, k=1, **more):\n args = k = more = G\n y = G", {"y"}),
    ("def f(x):\n a, b = x\n a = 1", {"b"}),
    ("def f(x):\n for y in x: z = y", {"y", "z"}),
]


def wrong(bytecode: Any) -> Iterator[str]:
    """What the module says otherwise than here."""
    for text, beginning in BEGINNINGS:
        found = bytecode.operations(code_of(text))
        if found[: len(beginning)] != beginning:
            yield f"{text!r} begins with {beginning}, got {found}"
    for text, part in PARTS:
        every = [bytecode.operations(code) for code in with_inner(code_of(text))]
        if not any(steps[k : k + len(part)] == part for steps in every for k in range(len(steps))):
            yield f"{text!r} does {part}, got {every}"
    for text, names in ONCE:
        found = bytecode.assigned_once(code_of(text))
        if found != names:
            yield f"{text!r} assigns {names} once, got {set(found)}"


def code_of(text: str) -> types.CodeType:
    names: dict[str, Any] = {}
    exec(text, names)
    code: types.CodeType = names["f"].__code__
    return code


def with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant_ in code.co_consts:
        if isinstance(constant_, types.CodeType):
            yield from with_inner(constant_)


def load(path: str) -> Any:
    """The module from its file, without the packages around it."""
    spec = importlib.util.spec_from_file_location("bytecode", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    print("\n".join(wrong(load(sys.argv[1]))), end="")
