"""Every program of `autograd_programs` in every way: eager, traced, traced twice, on 1 and 2 threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree
import pytest

import tracer
from tests.support.autograd_programs import PROGRAMS, Program
from tracer import trace


def observed(program: Program, way: Any) -> list[Any]:
    """What a program shows: results, gradients outside where results have a history, watched Tensors and their gradients, after
    each call."""
    tracer.manual_seed(7)
    built = program()
    function = way(built.function)
    seen: list[Any] = []
    for arguments in built.calls:
        result = function(*arguments)
        leaves = [x for x in optree.tree_leaves(result, none_is_leaf=True)]
        for x in leaves:
            if isinstance(x, tracer.Tensor) and x.requires_grad:
                x.sum().backward()
        seen += [_plain(x) for x in leaves]
        for name, x in built.watched.items():
            seen += [(name, _plain(x)), (f"{name}.grad", _plain(x.grad)), x.requires_grad]
    return seen


def _plain(x: Any) -> Any:
    return np.array(x.data) if isinstance(x, tracer.Tensor) else x


def _same(one: Any, other: Any, exact: bool) -> bool:
    if isinstance(one, tuple):
        return one[0] == other[0] and _same(one[1], other[1], exact)
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return type(one) is type(other) and one == other
    if exact:
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return one.dtype == other.dtype and np.allclose(one, other, rtol=2e-5, atol=1e-6)


def agree(found: list[Any], wanted: list[Any], exact: bool) -> None:
    assert len(found) == len(wanted)
    for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert _same(one, other, exact), f"number {k}: {one!r} and {other!r}"


# What a trace makes of these programs lies above kernels. Compiled are those in which memory is changed, or a row is shared.
COMPILED = {
    "a_function_with_its_own_gradient",
    "a_value_as_a_shape",
    "accumulation",
    "argument_changed",
    "buffer_filled_row_by_row",
    "frozen_base",
    "state_of_the_outside",
    "training_with_dropout_and_statistics",
    "volatile_input",
}


CASES = [
    pytest.param(p, marks=[] if p.__name__ in COMPILED else pytest.mark.kernels("python"))
    for p in PROGRAMS
]


@pytest.mark.parametrize("program", CASES, ids=[p.__name__ for p in PROGRAMS])
def test_program(program: Program) -> None:
    wanted = observed(program, lambda f: f)
    before = tracer.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            tracer.set_num_threads(threads)
            found.append(observed(program, trace))
            found.append(observed(program, lambda f: trace(trace(f))))  # a second time, and nested
    finally:
        tracer.set_num_threads(before)
    agree(found[0], wanted, exact=False)
    for other in found[1:]:
        agree(other, found[0], exact=True)
