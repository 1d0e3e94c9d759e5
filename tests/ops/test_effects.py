"""Operators with effects: as often as the program says, in its order, whatever passes and fusion do around them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracer
from ops import operator as operators
from ops.compute import Composite, Host, Scalar
from ops.errors import ArgumentError
from ops.operator import RANDOM, TABLE, Effect, NoGradient, Unsupported, lookup, operator
from ops.samples import UNARY
from ops.types import Type
from tests.support.graphs import chain
from tests.support.program_drawing import Seeded
from tests.support.program_strategy import EXACT, program
from tracer import passes, trace
from tracer.dispatch.apply import apply
from tracer.ir import parse, to_text, verify
from tracer.ir.graph import Graph, GraphBuilder, Node, Value, rebuild
from tracer.ir.interpreter import interpret
from tracer.runtime.executable import Executable


def _same(x: Type, **_: Any) -> Type:
    return x.strong()


Log = list[tuple[int, bytes]]
NOTICED = Effect("writing to a log", ordered=True)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """What has been noted. `Note` gives its operand back, `Tell` has no result."""
    noted: Log = []
    monkeypatch.setattr(operators, "_TABLE", dict(operators._TABLE))
    said: dict[str, Any] = {
        "compute": Host("the log is Python's"),
        "vjp": NoGradient("a test's"),
        "onnx": Unsupported("a test's"),
        "samples": UNARY,
        "effect": NOTICED,
    }

    @operator("Note", type_rule=_same, **said)
    def note(x: Any, *, number: int) -> Any:
        """The operand."""
        noted.append((number, np.asarray(x).tobytes()))
        return np.array(x)

    @operator("Tell", type_rule=lambda x, number: (), **said)
    def tell(x: Any, *, number: int) -> Any:
        """Nothing."""
        noted.append((number, np.asarray(x).tobytes()))
        return ()

    yield noted


def with_notes(graph: Graph, chosen: random.Random) -> Graph:
    """Notes of random values in random places; some results are read instead of the operand, some by nobody."""
    number = 0

    def visit(
        builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]
    ) -> tuple[Value, ...] | None:
        nonlocal number
        outputs = list(builder.append(node, inputs))
        for _ in range(chosen.choice((0, 0, 1, 2))):
            k = chosen.randrange(len(outputs))
            noted = chosen.choice((outputs[k], *inputs))
            if noted.type.weak:
                continue
            if chosen.random() < 0.3:
                builder.op("Tell", noted, number=number // 2)  # equal ones, which no pass may share
            else:
                result = builder.op("Note", noted, number=number // 2)
                if noted is outputs[k] and chosen.random() < 0.6:
                    outputs[k] = result
            number += 1
        return tuple(outputs)

    return rebuild(graph, visit)


EXACT_OPERATORS = tuple(TABLE[name] for name in EXACT)


@pytest.mark.kernels("python")
@pytest.mark.parametrize("part", range(2))
def test_passes_and_kernels_keep_effects_and_their_order(log: Log, part: int) -> None:
    several = 0
    for seed in range(20 * part, 20 * part + 20):
        drawn = program(Seeded(seed), operators=EXACT_OPERATORS, most=25)
        graph, arrays = with_notes(drawn.graph, random.Random(seed)), drawn.arrays
        log.clear()
        wanted = interpret(graph, arrays)
        expected = list(log)
        several += len(expected) > 3
        for number in range(1, len(passes.PIPELINE) + 1):
            simpler = passes.run(graph, passes.PIPELINE[:number])
            verify(simpler)
            log.clear()
            interpret(simpler, arrays)
            assert log == expected, passes.PIPELINE[number - 1]
        executable = Executable(graph, {}, tested=False)
        log.clear()
        found = executable([np.array(a) for a in arrays])
        assert [n for n, _ in log] == [n for n, _ in expected]
        assert log == expected
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(x), y)
    assert several > 3


def test_a_note_that_nobody_reads_stays_and_equal_ones_are_two(log: Log) -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (3,)), "x")
    first = g.op("Note", x, number=1)
    g.op("Note", x, number=1)
    g.op("Tell", g.Neg(g.Neg(x)), number=2)
    graph = passes.run(g.build([g.Add(first, x)]))
    assert [n.op.name for n in graph.nodes] == ["Note", "Note", "Tell", "Add"]
    Executable(graph, {})([np.ones(3, "f4")])
    assert [n for n, _ in log] == [1, 1, 2]
    assert parse(to_text(graph)).nodes[2].outputs == ()


def test_effects_keep_their_order_where_nothing_else_does(log: Log) -> None:
    """The one that is ready first must wait for one whose operand takes long."""
    g = GraphBuilder()
    x = g.input(Type("float64", (4, 4)), "x")
    y = g.MatMul(g.MatMul(x, x), x)
    g.op("Tell", y, number=1)
    g.op("Tell", x, number=2)
    total = g.ReduceSum(g.Add(x, g.op("Note", x, number=3)), axes=(0, 1), keepdims=False)
    g.op("Tell", g.Mul(y, total), number=4)
    Executable(g.build([total]), {})([np.eye(4)])
    assert [n for n, _ in log] == [1, 2, 3, 4]


def test_no_kernel_is_made_that_would_turn_two_effects_around(log: Log) -> None:
    """The two sums would be one kernel, which the first effect waits for and which waits for the second."""
    g = GraphBuilder()
    x = g.input(Type("float32", (8,)), "x")
    early = g.Add(x, x)
    g.op("Tell", early, number=1)
    late = g.Add(early, g.op("Note", x, number=2))
    executable = Executable(g.build([late]), {})
    (found,) = executable([np.ones(8, "f4")])
    assert [n for n, _ in log] == [1, 2] and np.array_equal(found, np.full(8, 3))
    assert executable.plan().kernels == 2


def test_an_effect_of_nothing_happens_too(log: Log) -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (0, 2)), "x")
    y = g.op("Note", x, number=7)
    (found,) = Executable(g.build([y]), {})([np.ones((0, 2), "f4")])
    assert found.shape == (0, 2) and log == [(7, b"")]


def test_effects_in_blocks_keep_their_nodes(log: Log) -> None:
    inner = GraphBuilder()
    a = inner.input(Type("float32", (2,)))
    inner.op("Tell", a, number=1)
    body = inner.build([inner.Neg(a)])
    g = GraphBuilder()
    x = g.input(Type("float32", (2,)), "x")
    for _ in range(2):
        g.emit(lookup("Call"), (x,), {"function": "f"}, (body,))
    graph = g.build([x])
    assert [n.op.name for n in passes.run(graph).nodes] == ["Tell", "Tell"]
    Executable(graph, {}, shared=(0,))([np.ones(2, "f4")])
    assert [n for n, _ in log] == [1, 1]


def test_traced_functions_have_the_effects_of_eager_ones(log: Log) -> None:
    def f(x: Any) -> Any:
        y = apply("Note", x * 2, number=1)
        apply("Tell", x, number=2)
        apply("Note", x * 2, number=1)
        return y + 1

    x = tracer.tensor([1.0, 2.0])
    wanted = f(x)
    eager = list(log)
    traced = trace(f)
    traced(x)
    log.clear()
    assert np.array_equal(traced(x), wanted)
    assert log == eager and [n for n, _ in log] == [1, 2, 1]


def test_an_index_that_follows_from_an_effect_is_refused(log: Log) -> None:
    g = GraphBuilder()
    x, k = g.input(Type("float32", (5,)), "x"), g.input(Type("int64", (2,)), "k")
    y = g.op("Gather", x, g.op("Note", k, number=1), axis=0)
    with pytest.raises(ArgumentError, match=r"Note: an index follows.*writing to a log would"):
        Executable(g.build([y]), {})
    assert not log


def test_what_is_computed_as_a_function_has_no_effect() -> None:
    said: dict[str, Any] = {
        "type_rule": _same,
        "vjp": NoGradient("a test's"),
        "onnx": Unsupported("a test's"),
        "samples": UNARY,
        "effect": NOTICED,
    }
    for compute in (Scalar("{0}"), Composite(lambda g, n: n.x)):
        with pytest.raises(ValueError, match="'Wrong': writing to a log cannot be the effect of a"):

            @operator("Wrong", compute=compute, **said)
            def wrong(x: Any) -> Any:
                """The operand."""
                return x

    assert "Wrong" not in TABLE


def test_random_operators_are_functions_of_their_state() -> None:
    """Their effect is carried by the state: a draw that nobody reads is none, a chain of others is as it was."""
    drawing = [op for op in TABLE.values() if op.effect is not None]
    assert drawing and all(op.effect is RANDOM and op.random for op in drawing)
    assert not any(op.has_ordered_effect for op in TABLE.values())
    assert not any(n.has_effect for n in chain(10).nodes)
