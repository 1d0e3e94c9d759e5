"""`make mutate`: every operator is spoiled in three ways, one at a time, and the suite must notice each.

The value is spoiled by adding 1 (or negating a bool) to what compiled code computes, the gradient by doubling it, the ONNX
form by adding 1 to its result. The same detour without the spoiling must pass, so that what is caught is the spoiling and not
the detour. What cannot be spoiled is listed with the reason. Exits with 1 if a spoiled operator passes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

from ops import operator as table
from ops.compute import Composite, Control, Host
from ops.operator import (
    Application,
    ArrayData,
    Derived,
    Expanded,
    NoGradient,
    Operator,
    Unsupported,
    ZeroGradient,
)
from tests.onnx import test_onnx_table
from tests.ops import test_compiled_table, test_ops_table

ORIGINAL = "__original"


def spoiled(g: Any, y: Any) -> Any:
    """A value that differs wherever there is an element."""
    if y.type.dtype == "bool":
        return g.op(right_name("Not"), y)
    one = ArrayData.of(np.ones((), y.type.numpy))
    return g.op(right_name("Add"), y, g.op(right_name("Constant"), value=one))


def right_name(name: str) -> str:
    """The name of the operator as it was declared, also while it is the one that is spoiled."""
    return name + ORIGINAL if name + ORIGINAL in table.TABLE else name


Spoil = Callable[[Any, Any], Any]


def spoiled_in_onnx(g: Any, y: Any) -> Any:
    """The same with ONNX's operators."""
    return g.op("Not", y) if y.type.dtype == "bool" else g.op("Add", y, g.like(1, y))


def untouched(g: Any, y: Any) -> Any:
    """The value itself: the control."""
    return y


def doubled(g: Any, y: Any) -> Any:
    """Twice a cotangent."""
    return g.op("Add", y, y)


def spoiled_value(op: Operator, change: Spoil) -> Operator | str:
    """The operator with another compiled result."""
    if isinstance(op.compute, Host | Control):
        return "its reference is what runs"

    def rule(g: Any, n: Application) -> Any:
        result = g.op(op.name + ORIGINAL, *n.inputs, **n.attrs)
        return (
            tuple(change(g, y) for y in result) if isinstance(result, tuple) else change(g, result)
        )

    return dataclasses.replace(op, compute=Composite(rule))


def spoiled_gradient(op: Operator, change: Spoil) -> Operator | str:
    """The operator with twice its gradient."""
    rule = op.vjp
    if isinstance(rule, ZeroGradient):
        return "its gradient is zero"
    if isinstance(rule, NoGradient):
        return f"it has no gradient: {rule.reason}"
    if isinstance(rule, Derived):
        return "its gradient follows from its decomposition"

    def twice(g: Any, n: Application) -> Any:
        return tuple(None if c is None else change(g, c) for c in rule(g, n))

    return dataclasses.replace(op, vjp=twice)


def spoiled_onnx(op: Operator, change: Spoil) -> Operator | str:
    """The operator with another ONNX result."""
    form = op.onnx
    if isinstance(op.compute, Control):
        return "it runs blocks, which samples cannot hold; it has tests of its own"
    if isinstance(form, Unsupported):
        return f"it has no ONNX form: {form.reason}"
    if isinstance(form, Expanded):
        return "its ONNX form follows from its decomposition"

    def rule(g: Any, n: Application) -> Any:
        result = g.op(form, *n.inputs, **n.attrs) if isinstance(form, str) else form(g, n)
        return (
            tuple(change(g, y) for y in result) if isinstance(result, tuple) else change(g, result)
        )

    return dataclasses.replace(op, onnx=rule)


def check_value(op: Operator) -> None:
    sample = op.samples[0]
    test_compiled_table.check(op, sample, test_compiled_table.common_type(op, sample))


Change = Callable[[Operator, Spoil], "Operator | str"]
WAYS: dict[str, tuple[Change, Spoil, Callable[[Operator], None]]] = {
    "value": (spoiled_value, spoiled, check_value),
    "gradient": (
        spoiled_gradient,
        doubled,
        test_ops_table.test_gradient_agrees_with_finite_differences,
    ),
    "onnx": (
        spoiled_onnx,
        spoiled,
        test_onnx_table.test_the_model_computes_what_the_reference_does,
    ),
}


@contextlib.contextmanager
def in_the_table(op: Operator) -> Iterator[None]:
    """The spoiled operator under its name, the right one under another."""
    right = table._TABLE[op.name]
    table._TABLE[op.name + ORIGINAL] = dataclasses.replace(right, name=op.name + ORIGINAL)
    table._TABLE[op.name] = op
    try:
        yield
    finally:
        table._TABLE[op.name] = right
        del table._TABLE[op.name + ORIGINAL]


def is_caught(op: Operator, test: Callable[[Operator], None]) -> bool:
    """Whether the test fails for the spoiled operator."""
    try:
        with in_the_table(op):
            test(op)
    except (Exception, pytest.fail.Exception):
        return True
    return False


def main() -> int:
    """Spoil everything, print the table."""
    width = max(map(len, table.TABLE))

    def report(name: str, way: str, outcome: str) -> None:
        tqdm.write(f"{name:<{width}}  {way:<8}  {outcome}", file=sys.stdout)
        sys.stdout.flush()

    survivors: list[str] = []
    caught = 0
    operators = list(table.TABLE.values())
    for op in tqdm(operators, desc="operators", disable=not sys.stderr.isatty()):
        for way, (change, spoil, test) in WAYS.items():
            wrong, right = change(op, spoil), change(op, untouched)
            if isinstance(wrong, str) or isinstance(right, str):
                report(op.name, way, f"not spoiled: {wrong}")
                continue
            found = is_caught(wrong, test)
            control = not is_caught(right, test)
            caught += found and control
            report(
                op.name, way, "CONTROL FAILS" if not control else "caught" if found else "SURVIVED"
            )
            if not (found and control):
                survivors.append(f"{op.name} ({way})")
    print(
        f"\n{caught} spoiled operators caught, {len(survivors)} survived{': ' if survivors else ''}{', '.join(survivors)}"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
