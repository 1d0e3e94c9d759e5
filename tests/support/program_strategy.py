"""Random programs over the whole table of operators, with arrays to run them on.

A program grows one operator at a time from values at hand (`program_drawing`), each in a way of its
own (`program_recipes`). Here is what is asked for: kinds of programs, and what is made of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ops.compute import Composite, Control
from ops.operator import TABLE, Operator
from ops.types import DTYPES, is_floating
from tests.support.program_drawing import Choices, Drawer, Drawn, Program, Seeded
from tests.support.program_recipes import recipes_of
from tracer.autograd.compiled_backward import replay
from tracer.autograd.engine import grad
from tracer.dispatch.apply import BUILDER
from tracer.ir.graph import Graph, Value
from tracer.tensors.tensor import Tensor
from tracer.tracing.recording.recorder import Recorder, recording

OPERATORS = tuple(op for op in TABLE.values() if not isinstance(op.compute, Control))

# Smooth everywhere that the operands of a smooth program lie: what finite differences are taken of.
SMOOTH = (
    "Add", "Sub", "Mul", "Neg", "Sin", "Cos", "Tanh", "Atan", "Sigmoid", "Softplus", "Erf", "Silu",
    "Gelu", "Softsign", "LogAddExp", "Asinh", "Mish", "Exp", "ReduceSum", "ReduceMean",
    "Variance", "ReduceLogSumExp", "Softmax", "LogSoftmax", "MatMul", "Reshape", "Expand",
    "Transpose", "Slice", "Concat", "Split", "Pad", "Gather", "GatherElements", "IndexAdd",
    "ScatterAdd", "Unsqueeze", "Flatten", "Diagonal", "Tile", "Repeat", "Roll", "PadBorder",
    "Trilu", "Where", "CumSum", "SliceScatter", "IndexCopy",
    "ScatterElements", "LayerNormalization", "RMSNormalization", "SoftmaxCrossEntropy",
)  # fmt: skip
COMMON = (
    "Add", "Mul", "Sub", "Neg", "Abs", "Maximum", "Where", "ReduceSum", "ReduceMax", "Transpose",
    "Slice", "Roll", "Concat", "Gather", "IndexAdd", "MatMul", "CumSum", "Reshape", "SliceScatter",
)  # fmt: skip
ENTANGLED = (
    *COMMON, "StandardDeviation", "LogSoftmax", "Softmax", "RMSNormalization", "Expand", "Sin",
    "Rsqrt", "ReduceMin", "Unsqueeze", "Squeeze", "Not", "Or", "Less", "Atan2", "Concat",
)  # fmt: skip
# What IEEE 754 rounds in one way only, and what moves or compares: equal bits everywhere.
EXACT = tuple(op.name for op in OPERATORS if not op.ulp and not isinstance(op.compute, Composite))


def program(
    choices: Choices,
    *,
    most: int = 40,
    least: int = 5,
    operators: Sequence[Operator] = OPERATORS,
    dtypes: Sequence[str] = DTYPES,
    first: Operator | None = None,
    moderate: bool = False,
    narrow: bool = False,
) -> Program:
    """A random program of `least` to `most` operators, `first` among them.

    `moderate`: values stay small, special ones are left out (for finite differences). `narrow`: few
    types and sizes, so that many values are alike.
    """
    if narrow:
        dtypes = [dtypes[choices.between(0, len(dtypes) - 1)] for _ in range(2)]
    drawer = Drawer(choices, operators, dtypes, moderate)
    if narrow:
        drawer.sizes = drawer.sizes[:1] * 2 + [1]
        drawer.narrow = True
    if first is not None:
        drawer.add(first, recipes_of(first))
    count = choices.between(least, most)
    for _ in range(4 * count):
        if len(drawer.builder.nodes) >= count:
            break
        op = drawer.pick(operators)
        drawer.add(op, recipes_of(op))
    return drawer.finish()


def seeded(count: int, **options: Any) -> Iterator[Program]:
    """Programs that follow from their numbers, each operator the first of some."""
    for seed in range(count):
        yield program(Seeded(seed), first=OPERATORS[seed % len(OPERATORS)], **options)


# ---- programs made of programs -------------------------------------------------------------------
def with_updates(choices: Choices, *, most: int = 20) -> tuple[Program, dict[int, int]]:
    """A program some of whose outputs (output number -> input number) are written to inputs' memory.

    What is written may be a computed value, another input (two of them swapped), or a view of one.
    """
    if (
        choices.between(0, 3) > 0
    ):  # mostly of few operators, whose kernels read and write the same memory
        operators = tuple(TABLE[name] for name in COMMON)
        p = program(
            choices, most=most, narrow=True, operators=operators, dtypes=("float32", "int32")
        )
    else:
        p = program(choices, most=most)
    updates: dict[int, int] = {}
    outputs = list(p.graph.outputs)
    free = [k for k, v in enumerate(p.graph.inputs) if not v.type.weak]
    made = {v for node in p.graph.nodes for v in node.outputs}
    for _ in range(choices.between(1, 4)):
        pairs = [(k, v) for v in p.graph.values() for k in free if v.type == p.graph.inputs[k].type]
        if choices.between(0, 3) > 0:
            pairs = [(k, v) for k, v in pairs if v in made] or pairs
        if not pairs:
            break
        k, v = pairs[choices.between(0, len(pairs) - 1)]
        free.remove(k)
        updates[len(outputs)] = k
        outputs.append(v)
    return p.with_outputs(outputs), updates


def gradients(p: Program, eager: bool = False) -> Any:
    """(graph, arrays): outputs of a program, then gradients of its floating inputs; arrays for its
    inputs and the outputs' cotangents. With `eager` the results themselves, computed at once."""
    recorder = Recorder("gradient")
    numbers = np.random.default_rng(7)
    values = [Value(v.type) for v in p.graph.inputs]
    floating = [k for k, v in enumerate(values) if is_floating(v.type.dtype) and not v.type.weak]

    def leaf(k: int) -> Tensor:
        if eager:
            return Tensor.of_array(p.arrays[k].copy())
        return Tensor.of_value(values[k], recorder)

    arrays = list(p.arrays)
    with contextlib.nullcontext() if eager else recording(recorder):
        inputs = [leaf(k) for k in range(len(values))]
        for k in floating:
            inputs[k].requires_grad = True
        outputs = replay(p.graph, inputs, BUILDER)
        ends = [y for y in outputs if y.requires_grad]
        heads = []
        for y in ends:
            array = numbers.uniform(-1, 1, y.shape).astype(y.dtype)
            arrays.append(np.asarray(array))
            values.append(Value(y.type.strong()))
            heads.append(Tensor.of_array(array) if eager else Tensor.of_value(values[-1], recorder))
        wanted = [inputs[k] for k in floating]
        found = grad(ends, wanted, heads, allow_unused=True) if ends else []
        zeros = [BUILDER.zeros(x.type) for x in wanted]
        results = [z if g is None else g for g, z in zip(found or zeros, zeros, strict=True)]
        if eager:
            return [np.asarray(t.detach()) for t in (*outputs, *results)]
        made = [recorder.value_of(t) for t in (*outputs, *results)]
    graph = Graph(tuple(values), tuple(recorder.builder.nodes), tuple(made), name="gradient")
    return graph, tuple(arrays)


__all__ = [
    "ENTANGLED",
    "EXACT",
    "OPERATORS",
    "SMOOTH",
    "Drawn",
    "Program",
    "Seeded",
    "gradients",
    "program",
    "seeded",
    "with_updates",
]
