"""The interpreter: references node by node, symbols bound, blocks run, values freed."""

from __future__ import annotations

import itertools
import time
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ops import samples
from ops.compute import Constant
from ops.dims import Dim
from ops.errors import ArgumentError, DTypeError, ShapeError, TracerError
from ops.operator import TABLE, Operator
from ops.types import Type, numpy_dtype
from tests.support.graphs import OPERATORS, chain
from tracer.ir import bind, parse, places
from tracer.ir.graph import Graph, GraphBuilder, Node, Value
from tracer.ir.interpreter import interpret

N, M = Dim.symbol("n"), Dim.symbol("m")
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_a_node_gives_what_the_reference_gives(op: Operator) -> None:
    for sample, _, arrays in samples.cases(op):
        g = GraphBuilder()
        inputs = [g.input(Type.of(a)) for a in arrays]
        results = g.op(op.name, *inputs, **sample.attrs)
        results = results if isinstance(results, tuple) else (results,)
        with np.errstate(all="ignore"):
            expected = op.reference(*arrays, **op.normalize(sample.attrs))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for found, wanted in zip(interpret(g.build(results), arrays), expected, strict=True):
            assert found.dtype == np.asarray(wanted).dtype
            assert found.tobytes() == np.asarray(wanted).tobytes()


def test_values_flow_through_several_nodes(rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x, y = g.input(Type("float64", (3, 1)), "x"), g.input(Type("float64", (4,)), "y")
    s = g.Add(x, y)
    graph = g.build([g.Mul(s, s), s, x])
    a, b = rng.standard_normal((3, 1)), rng.standard_normal(4)
    product, total, same = interpret(graph, [a, b])
    np.testing.assert_array_equal(product, (a + b) ** 2)
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(same, a)


# ---- symbols -------------------------------------------------------------------------------------


def flatten_graph() -> Graph:
    g = GraphBuilder()
    x = g.input(Type("float32", (N, M)), "x")
    y = g.Reshape(x, shape=(N * M,))
    return g.build([y, g.op("Dimension", size=N * M + 1), g.Expand(y, shape=(2, N * M))])


@pytest.mark.parametrize("shape", [(2, 3), (5, 1), (0, 4), (1, 0)])
def test_symbols_in_attributes_get_the_sizes_of_the_inputs(shape: tuple[int, int]) -> None:
    count = shape[0] * shape[1]
    flat, size, wide = interpret(flatten_graph(), [np.ones(shape, np.float32)])
    assert (flat.shape, size, wide.shape) == ((count,), count + 1, (2, count))


def test_symbols_are_found_where_no_axis_is_just_the_symbol() -> None:
    types = [Type("float32", (2 * N + 1, M + N)), Type("int64", (N * M,))]
    assert bind(types, [(9, 7), (12,)]) == {"n": 4, "m": 3}
    assert list(places(types)) == ["n", "m"]
    with pytest.raises(ShapeError, match=r"input 0 must be float32\[2\*n \+ 1, .*some n >= 0"):
        bind(types, [(8, 7), (12,)])
    with pytest.raises(ShapeError, match="some m >= 0"):
        bind(types, [(9, 3), (12,)])
    with pytest.raises(ShapeError, match="axis 0 should have size 12"):
        bind(types, [(9, 7), (13,)])
    with pytest.raises(ArgumentError, match="2 inputs, got 1 shapes"):
        bind(types, [(9, 7)])


def test_symbols_that_no_shape_determines_must_be_given() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (N * M,)), "x")
    graph = g.build([g.Reshape(x, shape=(N, M))])
    one = np.ones(6, np.float32)
    (found,) = interpret(graph, [one], symbols={"n": 2, "m": 3})
    assert found.shape == (2, 3)
    with pytest.raises(ShapeError, match="nothing determines n; pass symbols="):
        interpret(graph, [one], symbols={"m": 3})


# ---- inputs --------------------------------------------------------------------------------------


def test_inputs_are_checked() -> None:
    graph = flatten_graph()
    with pytest.raises(ArgumentError, match="1 inputs, got 2 arrays"):
        interpret(graph, [np.ones((2, 2), np.float32)] * 2)
    with pytest.raises(DTypeError, match=r"x must be float32\[n, m\], got float64\[2, 2\]"):
        interpret(graph, [np.ones((2, 2))])
    with pytest.raises(ShapeError, match="x must have 2 axes"):
        interpret(graph, [np.ones(4, np.float32)])
    g = GraphBuilder()
    both = [g.input(Type("float32", (N,)), "a"), g.input(Type("float32", (N,)), "b")]
    with pytest.raises(ShapeError, match=r"b must be float32\[n\] with n = 3: axis 0"):
        interpret(g.build(both), [np.ones(3, np.float32), np.ones(4, np.float32)])


@pytest.mark.parametrize(
    ("dtype", "given", "fits"),
    [
        ("float32", 0.5, True),
        ("float32", 2, True),
        ("bfloat16", True, True),
        ("int64", 2, True),
        ("uint8", True, True),
        ("bool", True, True),
        ("int64", 0.5, False),
        ("bool", 2, False),
        ("float64", "text", False),
        ("float64", None, False),
    ],
)
def test_python_numbers_stand_for_0d_arrays(dtype: str, given: Any, fits: bool) -> None:
    g = GraphBuilder()
    x = g.input(Type(dtype, (), weak=True), "x")
    graph = g.build([x])
    if not fits:
        with pytest.raises(DTypeError):
            interpret(graph, [given])
        return
    (found,) = interpret(graph, [given])
    assert found.dtype == numpy_dtype(dtype) and found == given


def test_results_share_no_memory() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (2, 3)), "x")
    y = g.Exp(x)
    constant = g.constant([1.0, 2.0], "float32")
    graph = g.build([x, g.Reshape(x, shape=(6,)), y, y, g.Expand(x, shape=(4, 2, 3)), constant])
    given = np.zeros((2, 3), np.float32)
    results = interpret(graph, [given])
    for k, a in enumerate(results):
        assert a.flags.writeable
        assert not np.shares_memory(a, given)
        assert not any(np.shares_memory(a, b) for b in results[k + 1 :])


# ---- blocks --------------------------------------------------------------------------------------


def test_the_condition_chooses_the_block_that_runs() -> None:
    text = """\
        graph(%c : Bool()
              %x : Float(n)
              %y : Float()) {
          %3 : Float(n), %4 : Float() = If(%c, %x, %y)
            graph(%x : Float(n)
                  %y : Float()) {
              %2 : Float(n) = Mul(%x, %y)
              return (%2, %y);
            }
            graph(%x : Float(n)
                  %y : Float()) {
              %2 : Long() = Dimension[size=n]()
              %3 : Float() = Cast[to="float32"](%2)
              return (%x, %3);
            }
          return (%3, %4);
        }
    """
    graph = parse(text)
    x, y = np.array([1.0, 2.0, 3.0], np.float32), np.array(10.0, np.float32)
    first, second = interpret(graph, [True, x, y])
    assert (first.tolist(), second) == ([10.0, 20.0, 30.0], 10.0)
    first, second = interpret(graph, [False, x, y])
    assert (first.tolist(), second) == ([1.0, 2.0, 3.0], 3.0)


# ---- long graphs ---------------------------------------------------------------------------------


def test_a_long_chain_takes_linear_time_and_no_recursion() -> None:
    one = np.ones(4, np.float32)

    def seconds(length: int) -> float:
        graph = chain(length)
        start = time.perf_counter()
        (result,) = interpret(graph, [one])
        np.testing.assert_array_equal(result, one)
        return time.perf_counter() - start

    short = min(seconds(5_000) for _ in range(2))
    assert seconds(100_000) < 60 * short + 2  # 20 if linear, 400 if quadratic


def probe(alive: list[int], references: list[weakref.ref[Array]]) -> Operator:
    """An operator that notes how many of the arrays it gave are alive when it is called."""

    def reference(x: Array) -> Array:
        alive.append(sum(r() is not None for r in references))
        result = x + 1
        references.append(weakref.ref(result))
        return result

    return replace(TABLE["Neg"], compute=Constant(), reference=reference)


def test_values_are_freed_after_their_last_use() -> None:
    alive: list[int] = []
    op = probe(alive, [])
    type_ = Type("float64", (3,))
    values = [Value(type_) for _ in range(21)]
    nodes = tuple(Node(op, (a,), op.normalize({}), (b,)) for a, b in itertools.pairwise(values))
    (result,) = interpret(Graph((values[0],), nodes, (values[-1],)), [np.zeros(3)])
    assert result.tolist() == [20.0] * 3
    assert max(alive) == 1


def test_a_reference_that_breaks_its_type_rule_is_found() -> None:
    for result, message in (
        (np.zeros(3, np.float32), r"gave float32\[3\], its type rule says float64\[3\]"),
        (np.zeros((3, 1)), r"gave float64\[3, 1\]"),
        ((np.zeros(3), np.zeros(3)), "gave 2 results instead of 1"),
    ):
        op = replace(TABLE["Neg"], reference=lambda x, result=result: result)
        x, y = Value(Type("float64", (3,))), Value(Type("float64", (3,)))
        graph = Graph((x,), (Node(op, (x,), op.normalize({}), (y,)),), (y,))
        with pytest.raises(TracerError, match=message):
            interpret(graph, [np.zeros(3)])
