"""Memory of programs: buffers that live at the same time lie apart, results are written to their place,
what is updated in place is not needed any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.spec.kernel_spec import Load, Store
from ops.types import Type
from tests.support.plain_programs import PlainLowering, PlainProgram, same_bits
from tests.support.products import product_by_rule
from tests.support.program_strategy import Seeded, gradients, program, with_updates
from tracer import passes
from tracer.ir.graph import Graph, GraphBuilder, Value
from tracer.lowering.assemble import Lowering
from tracer.lowering.layout import Buffer
from tracer.lowering.memory_plan import ALIGNMENT, plan_memory
from tracer.lowering.program import Planned
from tracer.runtime.executable import Executable
from tracer.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]
Life = tuple[int, int, int]  # bytes, first row, last row


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- places --------------------------------------------------------------------------------------
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 20), st.integers(0, 8)), max_size=40)
)
def test_buffers_that_live_at_the_same_time_do_not_overlap(drawn: list[Life]) -> None:
    lives = [
        (Buffer(Type("uint8", (size,)), "work"), first, first + more) for size, first, more in drawn
    ]
    total = plan_memory(lives)
    placed = [(b.place, b.place + max(b.nbytes, 1), first, last) for b, first, last in lives]
    for place, end, _, _ in placed:
        assert place % ALIGNMENT == 0 and place >= 0 and end <= total
    for i, (place, end, first, last) in enumerate(placed):
        for other, other_end, other_first, other_last in placed[:i]:
            apart = end <= other or other_end <= place
            assert apart or last < other_first or other_last < first


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 5)), min_size=1, max_size=30))
def test_one_after_the_other_shares_the_place_of_the_largest(drawn: list[tuple[int, int]]) -> None:
    row, lives = 0, []
    for size, more in drawn:
        lives.append((Buffer(Type("uint8", (size,)), "work"), row, row + more))
        row += more + 1
    largest = max(size for size, _ in drawn)
    assert plan_memory(lives) == -(-largest // ALIGNMENT) * ALIGNMENT


def test_the_workspace_of_a_chain_does_not_grow_with_its_length() -> None:
    def workspace(count: int) -> int:
        b = GraphBuilder()
        x = b.input(Type("float32", (50, 40)))
        for _ in range(count):
            x = b.CumSum(b.Sin(x), axis=0)  # host calls: each value goes through memory
        return PlainLowering(passes.run(b.build([x])), {}).workspace

    assert workspace(40) == workspace(4) <= 2 * 8000 + 2 * ALIGNMENT


def lives_of(lowering: Lowering) -> list[tuple[Buffer, int, int]]:
    """Temporaries with the first and the last row that uses them, found anew."""
    lives: dict[int, tuple[Buffer, int, int]] = {}
    for row, planned in enumerate(lowering.planned):
        for buffer in (*planned.reads, *planned.writes):
            if buffer.kind == "work":
                first = lives[id(buffer)][1] if id(buffer) in lives else row
                lives[id(buffer)] = buffer, first, row
    return list(lives.values())


def is_lent(planned: Planned, buffer: Buffer) -> bool:
    """Whether a kernel keeps a value of an earlier pass in the memory of a later result: it writes there before it reads."""
    if planned.bound is None:
        return False
    spec = planned.bound.spec
    bound = zip(spec.operands, planned.bound.operands, strict=True)
    names = {o.name for o, (b, _) in bound if b is buffer}
    used = [s for s in spec.statements if isinstance(s, Load | Store) and s.operand in names]
    return isinstance(used[0], Store) and used[0].mode == "set"


def check_places(graph: Graph, updates: dict[int, int]) -> None:
    lowering = PlainLowering(passes.run(graph), updates)
    written: set[int] = set()
    for planned in lowering.planned:
        for buffer in planned.reads:
            there = buffer.kind != "work" or not buffer.nbytes or id(buffer) in written
            assert there or is_lent(planned, buffer), "read before it is written"
        written |= {id(buffer) for buffer in planned.writes}
        # What a kernel reads and what it writes are one buffer, or apart.
        for w in planned.writes:
            assert w.kind != "constant"
    lives = lives_of(lowering)
    for i, (b, first, last) in enumerate(lives):
        assert b.place % ALIGNMENT == 0 and b.place + b.nbytes <= lowering.workspace
        for other, other_first, other_last in lives[:i]:
            if first <= other_last and other_first <= last:
                assert b.place + b.nbytes <= other.place or other.place + other.nbytes <= b.place


def test_places_in_random_programs() -> None:
    for seed in range(200):
        p, updates = with_updates(Seeded(30_000 + seed))
        check_places(p.graph, updates)
    for seed in range(60):
        graph, _ = gradients(program(Seeded(40_000 + seed), most=10))
        check_places(graph, {})


def test_results_need_no_copy() -> None:
    """A computed value that is returned is written to the result at once."""
    b = GraphBuilder()
    x = b.input(Type("float32", (8, 8)))
    product = b.MatMul(x, x)
    y = b.Tanh(product)
    for outputs in ([y], [y, product], [b.Transpose(product, perm=(1, 0)), y]):
        lowering = PlainLowering(passes.run(b.build(outputs)), {})
        assert [p.kind for p in lowering.planned] == ["library", "kernel"]


# ---- in place ------------------------------------------------------------------------------------
def run(
    build: Callable[..., list[Value]], arrays: list[Array], updates: dict[int, int]
) -> tuple[Graph, list[Array], list[Array]]:
    """(graph, results, inputs afterwards), equal un-jitted and compiled."""
    b = GraphBuilder()
    inputs = [b.input(Type.of(a)) for a in arrays]
    graph = b.build(build(b, *inputs))
    plain_inputs = [a.copy() for a in arrays]
    plain = PlainProgram(graph, updates)(plain_inputs)
    tensors = [Tensor.of_array(a.copy()) for a in arrays]
    compiled = Executable(graph, updates)(tensors)
    for a, t in zip(plain, compiled, strict=True):
        assert same_bits(a, t.array)
    for a, t in zip(plain_inputs, tensors, strict=True):
        assert same_bits(a, t.array)
    return graph, [t.array for t in compiled], [t.array for t in tensors]


def test_an_update_is_written_in_place() -> None:
    x, y = numbers(100), numbers(100, seed=1)
    graph, (result,), (after, _) = run(lambda b, x, y: [b.Add(x, y)], [x, y], {0: 0})
    np.testing.assert_array_equal(after, x + y)
    assert result is after
    lowering = PlainLowering(graph, {0: 0})
    assert len(lowering.planned) == 1 and lowering.workspace == 0


def test_a_later_kernel_still_reads_the_old_value() -> None:
    x, y = numbers(12, 12), numbers(12, 12, seed=1)
    _, (_, product), (after, _) = run(lambda b, x, y: [b.Add(x, y), b.MatMul(x, y)], [x, y], {0: 0})
    np.testing.assert_array_equal(after, x + y)
    assert same_bits(product, product_by_rule(x, y))


def test_a_later_kernel_reads_the_old_value_through_a_view() -> None:
    x = numbers(12, 12)
    _, (_, sums), (after,) = run(
        lambda b, x: [
            b.Neg(x),
            b.ReduceSum(b.CumSum(b.Transpose(x, perm=(1, 0)), axis=0), axes=(0,), keepdims=False),
        ],
        [x],
        {0: 0},
    )
    np.testing.assert_array_equal(after, -x)
    np.testing.assert_allclose(sums, np.cumsum(x.T, axis=0).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "view", "wanted"),
    [
        ("transposed", lambda b, x: b.Transpose(x, perm=(1, 0)), lambda x: x + x.T),
        (
            "reversed",
            lambda b, x: b.Slice(x, starts=(-1,), ends=(-(2**63),), axes=(0,), steps=(-1,)),
            lambda x: x + x[::-1],
        ),
        (
            "rolled",
            lambda b, x: b.Roll(x, shifts=(1,), axes=(1,)),
            lambda x: x + np.roll(x, 1, 1),
        ),
        (
            "row 0 everywhere",
            lambda b, x: b.Slice(x, starts=(0,), ends=(1,), axes=(0,), steps=(1,)),
            lambda x: x + x[:1],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_update_that_reads_elsewhere_in_the_same_memory(
    name: str, view: Any, wanted: Any
) -> None:
    x = numbers(40, 40)
    _, _, (after,) = run(lambda b, x: [b.Add(x, view(b, x))], [x], {0: 0})
    np.testing.assert_array_equal(after, wanted(x))


def test_an_update_with_a_reduction_of_the_same_memory() -> None:
    x = numbers(30, 50)
    _, _, (after,) = run(
        lambda b, x: [b.Sub(x, b.ReduceMax(x, axes=(1,), keepdims=True))], [x], {0: 0}
    )
    np.testing.assert_array_equal(after, x - x.max(1, keepdims=True))
    _, _, (after,) = run(
        lambda b, x: [b.Sub(x, b.ReduceMax(x, axes=(0,), keepdims=True))], [x], {0: 0}
    )
    np.testing.assert_array_equal(after, x - x.max(0, keepdims=True))


def test_a_swap_and_a_rotation() -> None:
    a, b_, c = (numbers(17, seed=k) for k in range(3))
    _, _, after = run(lambda g, a, b: [b, a], [a, b_], {0: 0, 1: 1})
    assert same_bits(after[0], b_) and same_bits(after[1], a)
    _, _, after = run(lambda g, a, b, c: [b, c, a], [a, b_, c], {0: 0, 1: 1, 2: 2})
    assert same_bits(after[0], b_) and same_bits(after[1], c) and same_bits(after[2], a)


def test_a_swap_with_computation() -> None:
    a, b_ = numbers(17), numbers(17, seed=1)
    _, (_, _, total), after = run(
        lambda g, a, b: [g.Neg(b), g.Mul(a, a), g.Add(a, b)], [a, b_], {0: 0, 1: 1}
    )
    assert same_bits(after[0], -b_) and same_bits(after[1], a * a) and same_bits(total, a + b_)


def test_an_input_is_written_transposed_onto_itself() -> None:
    x = numbers(20, 20)
    _, _, (after,) = run(lambda b, x: [b.Transpose(x, perm=(1, 0))], [x], {0: 0})
    np.testing.assert_array_equal(after, x.T)


def test_the_old_value_is_returned_beside_the_new_one() -> None:
    x = numbers(20)
    _, (_, old), (after,) = run(lambda b, x: [b.Neg(x), x], [x], {0: 0})
    assert same_bits(after, -x) and same_bits(old, x)
    assert not np.shares_memory(old, after)
    _, (_, reversed_), (after,) = run(
        lambda b, x: [b.Neg(x), b.Slice(x, starts=(-1,), ends=(-(2**63),), axes=(0,), steps=(-1,))],
        [x],
        {0: 0},
    )
    assert same_bits(after, -x) and same_bits(reversed_, x[::-1])


def test_one_value_for_two_inputs_and_as_a_result() -> None:
    x, y = numbers(20), numbers(20, seed=1)

    def build(b: GraphBuilder, x: Value, y: Value) -> list[Value]:
        s = b.Add(x, y)
        return [s, s, s, s]

    _, results, after = run(build, [x, y], {0: 0, 1: 1})
    assert all(same_bits(r, x + y) for r in (*results, *after))
    assert not np.shares_memory(results[2], results[3])
    assert not any(np.shares_memory(r, a) for r in results[2:] for a in after)


def test_results_are_the_callers_own() -> None:
    """Inputs and views of them that are returned are copies; so are constants and equal results."""
    x = numbers(6, 6)

    def build(b: GraphBuilder, x: Value) -> list[Value]:
        return [
            x,
            x,
            b.Transpose(x, perm=(1, 0)),
            b.Cast(x, to="float32"),
            b.constant(2.0, "float32"),
        ]

    _, results, (after,) = run(build, [x], {})
    assert same_bits(results[2], x.T)
    for k, r in enumerate(results):
        assert not any(np.shares_memory(r, other) for other in (*results[:k], after))


def test_what_is_kept_for_a_gradient_shares_memory_unless_it_is_updated() -> None:
    b = GraphBuilder()
    x, y = b.input(Type("float32", (5,))), b.input(Type("float32", (5,)))
    graph = b.build([b.Add(x, y), x, y])
    tensors = [Tensor.of_array(numbers(5)), Tensor.of_array(numbers(5, seed=1))]
    shared = Executable(graph, {}, shared=(1, 2))(tensors)
    assert shared[1].array is tensors[0].array and shared[2].array is tensors[1].array
    updated = Executable(graph, {0: 0}, shared=(1, 2))(tensors)
    assert same_bits(updated[1].array, numbers(5))  # the value before the update
    assert updated[2].array is tensors[1].array


def test_inputs_that_are_not_row_major_are_updated_too() -> None:
    wide = numbers(10, 20)
    target = Tensor.of_array(wide[:, ::2])
    b = GraphBuilder()
    x = b.input(Type("float32", (10, 10)))
    before = wide.copy()
    Executable(b.build([b.Neg(x)]), {0: 0})([target])
    np.testing.assert_array_equal(wide[:, ::2], -before[:, ::2])
    np.testing.assert_array_equal(wide[:, 1::2], before[:, 1::2])
