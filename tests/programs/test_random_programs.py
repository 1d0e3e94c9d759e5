"""Random programs over the whole table of operators.

What is compared: each value of a program, computed node by node from the operators' kernel text, is
within the operator's declared error of the independent reference on the same operands; and lowered
programs, un-jitted and compiled, have the very bits of that computation. So no tolerance adds up over
a program, and fusion, memory and passes may change nothing at all.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.operator import TABLE, Unsupported, run_reference
from ops.types import DTYPES, is_floating
from tests.onnx.test_onnx_table import LIMITS
from tests.support.plain_programs import PlainProgram, exact_values, same_bits
from tests.support.program_strategy import (
    ENTANGLED,
    EXACT,
    OPERATORS,
    SMOOTH,
    Drawn,
    Program,
    Seeded,
    gradients,
    program,
    seeded,
    with_updates,
)
from tracer import ir, passes
from tracer.ir.graph import Graph
from tracer.ir.interpreter import interpret
from tracer.lowering import steps
from tracer.onnx import export_graph
from tracer.passes.common_subexpressions import share_subexpressions
from tracer.passes.dead_code import remove_dead_code
from tracer.passes.decompose import decompose
from tracer.runtime.executable import Executable
from tracer.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]
onnxruntime.set_default_logger_severity(4)

PROGRAMS = 390  # un-jitted, in the ordinary run: each operator is the first of three
BLOCKS = 6
COMPILED = 60


def examples(count: int) -> settings:
    """`count` examples in the ordinary run, as many times more as the profile in use asks for."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 50))


def copies(arrays: tuple[Any, ...]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]


def exact_outputs(graph: Graph, arrays: tuple[Any, ...]) -> list[Array]:
    with np.errstate(all="ignore"):
        known = exact_values(graph, arrays)
    return [known[v] for v in graph.outputs]


def check_unjitted(graph: Graph, arrays: tuple[Any, ...], seed: int = 0) -> None:
    """The lowered program, run un-jitted on exact buffers, has the bits of the graph, node by node."""
    expected = exact_outputs(passes.run(graph), arrays)
    given_arrays = copies(arrays)
    found = PlainProgram(graph, seed=seed)(given_arrays)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert same_bits(a, b), (number, a, b, str(graph))
    for a, b in zip(given_arrays, arrays, strict=True):
        assert same_bits(np.asarray(a), np.asarray(b)), "an input was written"


def check_compiled(graph: Graph, arrays: tuple[Any, ...]) -> None:
    expected = exact_outputs(passes.run(graph), arrays)
    tensors = [Tensor.of_array(a) if isinstance(a, np.ndarray) else a for a in copies(arrays)]
    found = Executable(graph, {})(tensors)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert same_bits(a.array, b), (number, a.array, b, str(graph))
    for a, b in zip(tensors, arrays, strict=True):
        assert same_bits(np.asarray(a), np.asarray(b)), "an input was written"


# ---- what is drawn -------------------------------------------------------------------------------
def test_every_operator_and_element_type_is_drawn(note: Callable[[str], None]) -> None:
    operators: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    for p in seeded(PROGRAMS):
        operators += p.operators
        dtypes += p.dtypes
    rows = [f"{name} {count}" for name, count in sorted(operators.items())]
    note(f"random programs: {PROGRAMS} programs, {sum(operators.values())} operators:")
    for k in range(0, len(rows), 8):
        note("  " + ", ".join(rows[k : k + 8]))
    note("  " + ", ".join(f"{name} {dtypes[name]}" for name in DTYPES))
    assert all(operators[op.name] > 0 for op in OPERATORS)
    assert all(dtypes[name] > 0 for name in DTYPES)


def test_programs_hold_empty_values_scalars_and_broadcasts() -> None:
    seen: Counter[str] = Counter()
    for p in seeded(200):
        for node in p.graph.nodes:
            shapes = [v.type.shape for v in node.inputs]
            seen["empty"] += any(0 in s for s in shapes)
            seen["0-d"] += () in shapes
            seen["broadcast"] += node.op.name in ("Add", "Less", "Pow") and len(set(shapes)) > 1
        seen["twice"] += any(
            sum(v in node.inputs for node in p.graph.nodes) > 1 for v in p.graph.values()
        )
        seen["several outputs"] += len(p.graph.outputs) > 1
    assert min(seen[k] for k in ("empty", "0-d", "broadcast", "twice", "several outputs")) > 10, (
        seen
    )


# ---- lowering, un-jitted -------------------------------------------------------------------------
@pytest.mark.parametrize("block", range(BLOCKS))
def test_lowered_programs_have_the_bits_of_their_graphs(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block % 2:  # small folds are split over tasks, as large ones are
        monkeypatch.setattr(steps, "SPLIT_ELEMENTS", 32)
    for seed in range(block, PROGRAMS, BLOCKS):
        p = program(Seeded(seed), first=OPERATORS[seed % len(OPERATORS)])
        check_unjitted(p.graph, p.arrays, seed)


@pytest.mark.parametrize("block", range(3))
def test_lowered_programs_whose_values_are_alike(block: int) -> None:
    """Few operators, types and sizes: much fuses, and in many ways."""
    operators = tuple(TABLE[name] for name in ENTANGLED)
    for seed in range(block, 300, 3):
        p = program(
            Seeded(1_200_000 + seed),
            operators=operators,
            narrow=True,
            dtypes=("float32", "bool"),
            most=14,
        )
        check_unjitted(p.graph, p.arrays, seed)


# Programs that once went wrong, as small as they could be made.
ONCE_WRONG = {
    "the diagonal of a value, read whole and reshaped": """
        graph(%x : Float(3, 1)
              %y : Float(1)) {
          %2 : Bool(3, 1) = NotEqual(%x, %y)
          %3 : Bool(4, 2) = PadBorder[pads=[0, 0, 1, 1], mode="edge"](%2)
          %4 : Bool(2, 4, 1) = Reshape[shape=[2, 4, 1]](%3)
          %5 : Bool(2, 4, 2) = And(%3, %4)
          return (%5);
        }""",
    "the diagonal of an input, folded over one of two equal axes": """
        graph(%x : Double(33, 2, 2)) {
          %1 : Double(2) = StandardDeviation[axes=[-3, -1], keepdims=False, correction=1.0](%x)
          %2 : Double(2) = Erf(%1)
          %3 : Double(33, 2, 2) = Div(%2, %x)
          return (%3);
        }""",
    "memory lent to a value that the first pass does not compute": """
        graph(%x : Double(2)) {
          %1 : Double(2) = Mul(%x, %x)
          %2 : Double(2) = Rsqrt(%1)
          %3 : Double(2) = RMSNormalization[axis=-1, epsilon=0.001](%1, %2)
          %4 : Double(2) = Sin(%2)
          %5 : Double(2) = Atan2(%3, %4)
          return (%5);
        }""",
    "partial results finished in another order than they lie": """
        graph(%x : Float(17, 3, 9)) {
          %1 : Float(17, 9) = StandardDeviation[axes=[1], keepdims=False, correction=1.0](%x)
          %2 : Float(17, 9) = LogSoftmax[axis=-2](%1)
          return (%2);
        }""",
    "partial results finished beside a fold over their columns": """
        graph(%x : Long(2, 17, 3)) {
          %1 : UInt32(2, 17, 3) = Cast[to="uint32"](%x)
          %2 : UInt32(1, 17, 3) = ReduceMin[axes=[0], keepdims=True](%1)
          %3 : Half(1, 17, 3) = Cast[to="float16"](%2)
          %4 : Half(1, 1, 3) = StandardDeviation[axes=[0, 1], keepdims=True, correction=1.0](%3)
          return (%2, %4);
        }""",
    "an expanded value that is reshaped": """
        graph(%x : Long(17)) {
          %1 : Long(17) = Neg(%x)
          %2 : Long(3, 17) = Expand[shape=[3, 17]](%1)
          %3 : Long(17, 3) = Reshape[shape=[17, 3]](%2)
          return (%3);
        }""",
    "a sliced value that is reshaped": """
        graph(%x : Long(6, 10)) {
          %1 : Long(6, 10) = Neg(%x)
          %2 : Long(6, 5) = Slice[starts=[0], ends=[10], axes=[1], steps=[2]](%1)
          %3 : Long(10, 3) = Reshape[shape=[10, 3]](%2)
          %4 : Long(3, 10) = Transpose[perm=[1, 0]](%3)
          return (%4, %3);
        }""",
    "a product that is returned expanded": """
        graph(%x : Double(1, 1, 4)
              %y : Double(4, 17)) {
          %2 : Double(1, 1, 17) = MatMul(%x, %y)
          %3 : Double(1, 17, 17) = Expand[shape=[1, 17, 17]](%2)
          return (%3);
        }""",
    "a product that is returned with its batch axis innermost": """
        graph(%x : Float(3, 4, 5)
              %y : Float(5, 2)) {
          %2 : Float(3, 4, 2) = MatMul(%x, %y)
          %3 : Float(4, 2, 3) = Transpose[perm=[1, 2, 0]](%2)
          return (%3);
        }""",
    "text on literals alone": """
        graph(%x : Float(3)) {
          %1 : Bool() = Constant[value=Bool()[True]]()
          %2 : Bool() = Not(%1)
          %3 : Float() = Constant[value=Float()[18.0]]()
          %4 : Float(3) = Atan2(%3, %x)
          return (%2, %4);
        }""",
}


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_programs_that_once_went_wrong(name: str) -> None:
    graph = ir.parse(ONCE_WRONG[name])
    rng = np.random.default_rng(0)
    arrays = [
        np.asarray(rng.uniform(-9, 9, v.type.shape).astype(v.type.numpy)) for v in graph.inputs
    ]
    check_unjitted(graph, tuple(arrays))  # the lowering was wrong, which is the same un-jitted


@pytest.mark.fuzz
@examples(50)
@given(st.data())
def test_lowered_programs_of_any_kind(data: st.DataObject) -> None:
    p = program(Drawn(data.draw))
    check_unjitted(p.graph, p.arrays)


@pytest.mark.fuzz
@examples(25)
@given(st.data())
def test_lowered_gradients(data: st.DataObject) -> None:
    floats = ("float32", "float64", "float16", "bfloat16")
    p = program(Drawn(data.draw), most=12, dtypes=floats)
    graph, arrays = gradients(p)
    check_unjitted(graph, arrays)


# ---- compiled ------------------------------------------------------------------------------------
@pytest.mark.parametrize("block", range(4))
def test_compiled_programs_have_the_bits_of_their_graphs(block: int) -> None:
    for seed in range(block, COMPILED, 4):
        first = OPERATORS[3 * seed % len(OPERATORS)]
        p = program(Seeded(100_000 + seed), first=first, most=30)
        check_compiled(p.graph, p.arrays)


def test_compiled_gradients_have_the_bits_of_their_graphs() -> None:
    for seed in range(6):
        p = program(Seeded(200_000 + seed), most=8, dtypes=("float32", "float64"))
        check_compiled(*gradients(p))


@pytest.mark.fuzz
@examples(2)
@given(st.data())
def test_compiled_programs_of_any_kind(data: st.DataObject) -> None:
    p = program(Drawn(data.draw))
    check_compiled(p.graph, p.arrays)


def test_exact_programs_equal_the_references_to_the_bit() -> None:
    """Integers, bools, data movement, single + - * / sqrt: end to end, nothing in between."""
    operators = tuple(TABLE[name] for name in EXACT)
    for seed in range(80):
        p = program(Seeded(300_000 + seed), operators=operators)
        products = {v for n in p.graph.nodes if n.op.name == "MatMul" for v in n.outputs}
        assert not products  # an operator with a declared error
        with np.errstate(all="ignore"):
            expected = interpret(p.graph, p.arrays)
        for a, b in zip(PlainProgram(p.graph)(copies(p.arrays)), expected, strict=True):
            assert same_bits(a, b), str(p.graph)


# ---- memory that is written in place -------------------------------------------------------------
def check_updates(p: Program, updates: dict[int, int], compiled: bool) -> None:
    simple = passes.run(p.graph)
    expected = exact_outputs(simple, p.arrays)
    arrays = copies(p.arrays)
    if compiled:
        tensors = [Tensor.of_array(a) for a in arrays]
        found = [t.array for t in Executable(p.graph, updates)(tensors)]
    else:
        found = PlainProgram(p.graph, updates)(arrays)
    written = {source: number for number, source in updates.items()}
    for k, array in enumerate(arrays):
        wanted = expected[written[k]] if k in written else p.arrays[k]
        assert same_bits(array, wanted), (k, updates, str(p.graph))
    for number, wanted in enumerate(expected):
        assert same_bits(found[number], wanted), (number, updates, str(p.graph))


def test_updates_leave_what_a_model_of_numpy_leaves() -> None:
    drawn = 0
    for seed in range(150):
        p, updates = with_updates(Seeded(400_000 + seed), most=12)
        drawn += len(updates)
        check_updates(p, updates, compiled=False)
    assert drawn > 200


def test_compiled_updates() -> None:
    for seed in range(6):
        p, updates = with_updates(Seeded(500_000 + seed), most=8)
        check_updates(p, updates, compiled=True)


@pytest.mark.fuzz
@examples(30)
@given(st.data())
def test_updates_of_any_kind(data: st.DataObject) -> None:
    check_updates(*with_updates(Drawn(data.draw)), compiled=False)


# ---- passes, text, files -------------------------------------------------------------------------
def any_programs(count: int, start: int) -> Iterator[Program]:
    for seed in range(start, start + count):
        yield program(Seeded(seed), first=OPERATORS[seed % len(OPERATORS)])


def test_passes_change_no_bit() -> None:
    for p in any_programs(300, 600_000):
        plain = decompose(remove_dead_code(p.graph))
        simple = passes.run(p.graph)
        ir.verify(simple)
        with np.errstate(all="ignore"):
            expected, found = interpret(plain, p.arrays), interpret(simple, p.arrays)
        for a, b in zip(found, expected, strict=True):
            assert same_bits(a, b), str(p.graph)
        for tidy in (remove_dead_code, share_subexpressions):
            once = tidy(simple)
            assert len(once.nodes) <= len(simple.nodes)
            assert ir.equal(tidy(once), once)


def test_programs_are_printed_parsed_and_pickled() -> None:
    for p in any_programs(200, 700_000):
        again = ir.parse(ir.to_text(p.graph), ir.constants(p.graph))
        assert ir.equal(again, p.graph), ir.to_text(p.graph)
        assert ir.fingerprint(again) == ir.fingerprint(p.graph)
        assert ir.equal(pickle.loads(pickle.dumps(p.graph)), p.graph)
        simple = passes.run(p.graph)
        assert ir.equal(ir.parse(ir.to_text(simple), ir.constants(simple)), simple)


@pytest.mark.fuzz
@examples(40)
@given(st.data())
def test_passes_and_text_of_any_kind(data: st.DataObject) -> None:
    p = program(Drawn(data.draw))
    assert ir.equal(ir.parse(ir.to_text(p.graph), ir.constants(p.graph)), p.graph)
    with np.errstate(all="ignore"):
        expected = interpret(decompose(p.graph), p.arrays)
        found = interpret(passes.run(p.graph), p.arrays)
    assert all(map(same_bits, found, expected)), str(p.graph)


# ---- gradients -----------------------------------------------------------------------------------
@pytest.mark.parametrize("block", range(4))
def test_lowered_gradients_have_the_bits_of_their_graphs(block: int) -> None:
    for seed in range(block, 120, 4):
        p = program(Seeded(800_000 + seed), first=OPERATORS[seed % len(OPERATORS)], most=12)
        graph, arrays = gradients(p)
        ir.verify(graph)
        check_unjitted(graph, arrays, seed)


def directional(
    p: Program, graph: Graph, arrays: tuple[Any, ...], seed: int
) -> tuple[float, float, float]:
    """(the gradient along a random direction, its finite difference, the error of the latter)."""
    rng = np.random.default_rng(seed)
    inputs = [k for k, v in enumerate(p.graph.inputs) if is_floating(v.type.dtype)]
    along = {k: rng.standard_normal(p.arrays[k].shape) for k in inputs}
    cotangents = arrays[len(p.arrays) :]
    results = interpret(graph, arrays)
    slopes = results[len(p.graph.outputs) :]
    total = sum(float((along[k] * g).sum()) for k, g in zip(inputs, slopes, strict=True))

    def value(step: float) -> float:
        moved = [a + step * along[k] if k in along else a for k, a in enumerate(p.arrays)]
        outputs = interpret(p.graph, moved)
        return sum(float((y * c).sum()) for y, c in zip(outputs, cotangents, strict=True))

    def difference(h: float) -> float:
        return (value(h) - value(-h)) / (2 * h)

    coarse, fine = difference(2e-5), difference(1e-5)
    better = (4 * fine - coarse) / 3
    size = 1 + sum(float(np.abs(along[k] * g).sum()) for k, g in zip(inputs, slopes, strict=True))
    return total / size, better / size, abs(better - fine) / size


def test_gradients_equal_finite_differences() -> None:
    operators = tuple(TABLE[name] for name in SMOOTH if name in TABLE)
    judged = 0
    drawn: Counter[str] = Counter()
    for seed in range(300):
        p = program(
            Seeded(900_000 + seed),
            first=operators[seed % len(operators)],
            operators=operators,
            dtypes=("float64",),
            most=10,
            moderate=True,
        )
        values = interpret(p.graph, p.arrays)
        keep = [
            k
            for k, y in enumerate(values)
            if is_floating(y.dtype.name) and np.abs(y).max(initial=0) < 100
        ]
        if not keep:
            continue
        p = p.with_outputs([p.graph.outputs[k] for k in keep])
        graph, arrays = gradients(p)
        gradient, difference, error = directional(p, graph, arrays, seed)
        if error > 1e-6:
            continue  # too curved to judge
        judged += 1
        drawn += p.operators
        assert abs(gradient - difference) < 1e-6 + 10 * error, (gradient, difference, str(p.graph))
    assert judged > 200, judged
    assert all(drawn[op.name] for op in operators)


def test_eager_gradients_equal_recorded_ones_to_the_bit() -> None:
    # Random floats have one body, the kernel, eager too; the reference agrees within its error.
    operators = tuple(op for op in OPERATORS if not (op.random and op.ulp))
    for seed in range(100):
        first = operators[seed % len(operators)]
        p = program(Seeded(1_000_000 + seed), first=first, most=12, operators=operators)
        graph, arrays = gradients(p)
        with np.errstate(all="ignore"):
            recorded = interpret(graph, arrays)
            eager = gradients(p, eager=True)
        for a, b in zip(eager, recorded, strict=True):
            assert same_bits(a, b), str(p.graph)


# ---- ONNX ----------------------------------------------------------------------------------------
def close(found: Array, expected: Array) -> bool:
    if not is_floating(expected.dtype.name):
        return bool(np.array_equal(found, expected))
    rtol = {"float16": 2e-2, "float32": 2e-4, "float64": 2e-6}[expected.dtype.name]
    size = float(np.abs(expected[np.isfinite(expected)]).max(initial=1))
    return bool(np.allclose(found, expected, rtol=rtol, atol=rtol * size, equal_nan=True))


def test_exported_programs_equal_onnx_runtime() -> None:
    """Every value is an output, and is compared with its operator's reference on what the runtime fed it."""
    dtypes = ("float32", "int64", "bool", "float64", "int32")
    operators = tuple(
        op
        for op in OPERATORS
        if not isinstance(op.onnx, Unsupported) and op.name not in LIMITS and not op.random
    )
    compared = 0
    for seed in range(40):
        p = program(
            Seeded(1_100_000 + seed),
            first=operators[3 * seed % len(operators)],
            operators=operators,
            dtypes=dtypes,
            most=15,
            moderate=True,
        )
        made = [
            v
            for n in p.graph.nodes
            for v in n.outputs
            if v.type.dtype in dtypes and 0 not in v.type.shape
        ]
        g = p.with_outputs(made).graph
        model = export_graph(g)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        feeds = {name: a for name, a in zip(g.input_names, p.arrays, strict=True)}
        wanted = {i.name for i in session.get_inputs()}
        found = session.run(None, {k: v for k, v in feeds.items() if k in wanted})
        known = dict(zip(g.inputs, map(np.asarray, p.arrays), strict=True)) | dict(
            zip(made, found, strict=True)
        )
        for node in g.nodes:
            if not all(v in known for v in (*node.inputs, *node.outputs)):
                continue
            expected = run_reference(node.op, [known[v] for v in node.inputs], node.attrs)
            for v, e in zip(node.outputs, expected, strict=True):
                compared += 1
                assert close(known[v], e), (
                    node,
                    node.attrs,
                    [known[x] for x in node.inputs],
                    known[v],
                    e,
                )
    assert compared > 300
