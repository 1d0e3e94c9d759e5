"""What the public names say of themselves: shapes, element types, errors, and an example that runs.

A method of Tensor may point to the function that says it. What a docstring claims beyond that is for readers to check.
"""

from __future__ import annotations

import ast
import doctest
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import Tensor

MODULES = (
    "tracer",
    "tracer.autograd",
    "tracer.autograd.graph",
    "tracer.interpret",
    "tracer.ir",
    "tracer.nn",
    "tracer.nn.functional",
    "tracer.nn.init",
    "tracer.onnx",
    "tracer.optim",
    "tracer.random",
)
# Names of these types are no functions or classes of ours.
CONSTANTS = (int, float, str, range, np.dtype, type(None), tracer.Generator)
# What the parts of the house tell each other about a Tensor.
INTERNAL = {
    "changes",
    "count_change",
    "of_array",
    "of_block",
    "of_own",
    "of_value",
    "over",
    "without_elements",
}

# These ask about element types, not about Tensors.
ABOUT_TYPES = {f"tracer.{n}" for n in ("can_cast", "finfo", "iinfo", "isdtype", "result_type")}
# A helper that they share with `floor_divide` raises it there only.
NEVER_RAISE = {"IntegerOverflowError": {"fmod", "remainder"}}

SHAPES = re.compile(
    r"\bshapes?\b|\bax[ei]s\b|broadcast|element by element|every element|0-d|1-d|\bsizes?\b|matri|vector|rows",
    re.IGNORECASE,
)
TYPES = re.compile(r"float|integer|\bint\d|bool|\btypes?\b|number", re.IGNORECASE)
POINTS = re.compile(r"`(?:tracer\.)?(Tensor\.\w+|tracer\.\w+)`")


def public_objects() -> dict[str, Any]:
    found = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            if not inspect.ismodule(value) and not isinstance(value, CONSTANTS):
                found[f"{name}.{public}"] = value
    return found


def tensor_methods() -> dict[str, Any]:
    return {
        f"Tensor.{name}": value
        for name in dir(Tensor)
        if not name.startswith("_") and name not in INTERNAL
        if callable(value := inspect.getattr_static(Tensor, name)) or isinstance(value, property)
    }


PUBLIC, METHODS = public_objects(), tensor_methods()


def takes_tensors(name: str, value: Any) -> bool:
    """Whether it is a function on Tensors: what it says of shapes and element types is looked at."""
    module = getattr(inspect.unwrap(value), "__module__", "")
    families = ("tracer.functions.", "tracer.nn.functional", "tracer.nn.losses")
    return name in PUBLIC and module.startswith(families) and name not in ABOUT_TYPES


@functools.cache
def _definitions(file: str) -> dict[str, ast.AST]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def named_errors(value: Any) -> set[str]:
    """The errors of ours that a function raises by name, itself or in helpers of its own file."""
    function = inspect.unwrap(value)
    if not isinstance(function, FunctionType):
        return set()
    known = _definitions(function.__code__.co_filename)
    waiting, seen, found = [function.__name__], set(), set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        for node in ast.walk(known[name]):
            if isinstance(node, ast.Name) and node.id.startswith("_"):
                waiting.append(node.id)
            if isinstance(node, ast.Raise) and node.exc is not None:
                found |= {
                    part.id
                    for part in ast.walk(node.exc)
                    if isinstance(part, ast.Name) and part.id.endswith("Error")
                }
    return {
        name
        for name in found
        if hasattr(tracer, name) and function.__name__ not in NEVER_RAISE.get(name, ())
    }


def documentation(value: Any) -> str:
    return inspect.getdoc(value) or ""


def lacks(name: str, value: Any) -> list[str]:
    """What a docstring does not say."""
    text = documentation(value)
    if not text:
        return ["a summary"]
    missing = []
    if not re.match(r"[^\n]+(\n\n|$)", text):
        missing.append("a summary in one line")
    if isinstance(value, property):
        return missing
    pointed = [word for word in POINTS.findall(text) if word != name and _is_documented(word)]
    if name in METHODS and pointed:
        return missing
    if ">>> " not in text and not _is_error(value):
        missing.append("an example")
    words = text.partition(">>> ")[0]
    if takes_tensors(name, value) and not SHAPES.search(words):
        missing.append("words on shapes")
    if takes_tensors(name, value) and not TYPES.search(words):
        missing.append("words on element types")
    unsaid = {error for error in named_errors(value) if f"`{error}`" not in text}
    if unsaid and not re.search(rf"Raises:(.|\n)*({'|'.join(unsaid)})", text):
        missing += [f"that it raises {error}" for error in sorted(unsaid)]
    return missing


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, tracer.TracerError)


def _is_documented(word: str) -> bool:
    return word in PUBLIC or word in METHODS


@pytest.mark.parametrize("name", [*PUBLIC, *METHODS])
def test_docstrings_are_whole(name: str) -> None:
    assert lacks(name, (PUBLIC | METHODS)[name]) == []


def examples() -> dict[str, str]:
    """The docstrings that have examples, each once."""
    found: dict[str, str] = {}
    for name, value in (PUBLIC | METHODS).items():
        text = documentation(value)
        if ">>> " in text and text not in found.values():
            found[name] = text
    return found


EXAMPLES = examples()


@pytest.mark.kernels("python")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_give_what_they_say(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state = tracer.random.get_state()
    run_examples(EXAMPLES[name], name)
    tracer.random.set_state(state)


def run_examples(text: str, name: str) -> None:
    """Raises `AssertionError` with what doctest says of a wrong one."""
    parsed = doctest.DocTestParser().get_doctest(
        textwrap.dedent(text), {"tracer": tracer, "np": np}, name, name, 0
    )
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    doctest.DocTestRunner(optionflags=flags).run(parsed, out=said.append)
    assert parsed.examples and not said, "".join(said)


def test_what_is_missing_is_found() -> None:
    def told(text: str, body: Callable[..., Any] = tracer.matmul) -> list[str]:
        value = functools.wraps(body)(lambda *args: None)
        value.__doc__ = text
        return lacks("tracer.matmul", value)

    whole = (
        "Product of matrices.\n\nOf numbers. Raises `ShapeError` and `DTypeError`.\n\n>>> 1 + 1\n2"
    )
    assert told(whole) == []
    assert told("") == ["a summary"]
    assert told(whole.replace(">>>", "   ")) == ["an example"]
    assert told(whole.replace("matrices", "things")) == ["words on shapes"]
    assert told(whole.replace("numbers", "things")) == ["words on element types"]
    with pytest.raises(AssertionError, match="Expected"):
        run_examples(">>> 1 + 1\n3\n", "wrong")
