"""What tests of traced functions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracer
from tracer import trace
from tracer.tensors.tensor import Tensor

Program = Callable[[Callable[[Any], Any]], Any]


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(*shape: int, seed: int = 0, requires_grad: bool = False) -> Tensor:
    return tracer.tensor(array(*shape, seed=seed), requires_grad=requires_grad)


def observed(x: Any) -> Any:
    """What a program gave, in a form that compares; Tensors with their flags."""
    if isinstance(x, Tensor):
        flags = x.requires_grad, x.volatile, x.is_inference(), x.is_leaf
        return ("Tensor", x.shape, str(x.dtype), flags, np.array(x.detach()))
    if isinstance(x, np.ndarray):
        return ("array", x.shape, str(x.dtype), (), x.copy())
    if isinstance(x, dict):
        return {key: observed(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [type(x).__name__, *map(observed, x)]
    return x


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other), (one, other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple) and not (isinstance(one, tuple) and len(one) == 0):
        assert len(one) == len(other), (one, other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, np.ndarray):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    else:
        assert one == other


def agree(program: Program) -> Any:
    """Run a program eagerly and traced, and compare. Returns what it observes."""
    expected = observed(program(lambda function: function))
    before = tracer.get_num_threads()
    try:
        for threads in (1, 2):
            tracer.set_num_threads(threads)
            assert_same(observed(program(trace)), expected)
    finally:
        tracer.set_num_threads(before)
    return expected
