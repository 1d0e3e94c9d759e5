"""Every operator's ONNX form, run by ONNX Runtime on sizes never traced, equals the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from ops import samples, table
from ops.dims import Dim
from ops.errors import TracerError
from ops.operator import TABLE, Operator, Sample, Sizes, Unsupported
from ops.types import DTYPES, Type, is_floating
from tracer.ir.graph import Graph, GraphBuilder
from tracer.ir.interpreter import interpret
from tracer.onnx import DEFAULT_OPSET, OPSETS, export_graph
from tracer.onnx.kernels import MISSING

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
onnxruntime.set_default_logger_severity(4)

# An operator with blocks needs graphs: test_interpret exports it.
WALKED = [op for op in table.TABLE.values() if op.samples]
EXPORTED = [op for op in WALKED if not isinstance(op.onnx, Unsupported)]


def is_special(sample: Sample, dtype: str) -> bool:
    return is_floating(dtype) and any(x.special for x in sample.inputs)


def is_empty(sample: Sample, dtype: str) -> bool:
    return any(0 in x.shape for x in sample.inputs)


def is_integer_product(sample: Sample, dtype: str) -> bool:
    return not is_floating(dtype)


def is_large_integer(sample: Sample, dtype: str) -> bool:
    return dtype in ("int64", "uint64") and any(x.special for x in sample.inputs)


# What ONNX Runtime does not do as ONNX says, or ONNX leaves open. The models are valid.
LIMITS = {
    "ReduceProd": [
        (is_integer_product, "integers are multiplied in float64, which saturates"),
        (is_special, "float32 is not accumulated in float64: it overflows on the way"),
    ],
    "ReduceSum": [(is_large_integer, "integers are added in float64, which saturates")],
    "ReduceL2": [(is_special, "float32 is not accumulated in float64: it overflows on the way")],
    "LogSoftmax": [(is_special, "infinities among the values give no NaN")],
    "LayerNormalization": [
        (is_empty, "rows without elements are refused"),
        (is_special, "float32 is not accumulated in float64: it overflows on the way"),
    ],
    "MatMul": [
        (
            lambda sample, dtype: dtype in ("uint32", "uint64") and is_empty(sample, dtype),
            "sums of no products are refused for unsigned integers",
        )
    ],
}


def limit_of(op: Operator, sample: Sample, dtype: str) -> str:
    found = [why for applies, why in LIMITS.get(op.name, ()) if applies(sample, dtype)]
    return found[0] if found else ""


# ---- one graph for all samples of an operator ----------------------------------------------------


@dataclass
class Case:
    sample: Sample
    dtype: str
    types: tuple[Type, ...]
    attrs: dict[str, Any]
    sizes: dict[str, int]  # of the sample; empty where nothing is symbolic


def symbolic(op: Operator, sample: Sample, types: tuple[Type, ...], tag: str) -> Case | None:
    """The sample with a symbol for each size over 1, attributes too, if the type rule allows."""
    sizes = sorted({d for t in types for d in t.shape if d > 1})
    if not sizes or any(x.values is not None for x in sample.inputs):
        return None
    symbols: dict[Any, Any] = {d: Dim.symbol(f"size{d}_{tag}") for d in sizes}
    attrs = dict(sample.attrs)
    for name, value in attrs.items():
        kind = op.attributes[name].kind
        if kind == Sizes:
            attrs[name] = tuple(symbols.get(d, d) for d in value)
        elif kind == int | Dim:
            attrs[name] = symbols.get(value, value)
    general = tuple(replace(t, shape=tuple(symbols.get(d, d) for d in t.shape)) for t in types)
    try:
        op.infer(general, op.normalize(attrs))
    except TracerError:
        return None
    values = {str(symbol): size for size, symbol in symbols.items()}
    return Case(sample, "", general, attrs, values)


def cases_of(op: Operator) -> Iterator[Case]:
    """Every sample in every type, symbolic where possible; in the first with fixed sizes too."""
    for number, sample in enumerate(op.samples):
        for dtype in samples.tested_types(op, sample):
            if limit_of(op, sample, dtype):
                continue
            types = tuple(Type(x.dtype or dtype, x.shape) for x in sample.inputs)
            general = symbolic(op, sample, types, f"{number}_{dtype}")
            if general is not None:
                general.dtype = dtype
                yield general
            if general is None or dtype == samples.tested_types(op, sample)[0]:
                yield Case(sample, dtype, types, dict(sample.attrs), {})


def passable(type_: Type) -> Type:
    """NumPy arrays of bfloat16 cannot be handed to the runtime; float32 holds all its values."""
    return replace(type_, dtype="float32") if type_.dtype == "bfloat16" else type_


def graph_of(op: Operator, cases: list[Case]) -> Graph:
    g = GraphBuilder(op.name)
    results = []
    for number, case in enumerate(cases):
        inputs = []
        for k, type_ in enumerate(case.types):
            x = g.input(passable(type_), f"x{number}_{k}")
            inputs.append(x if x.type == type_ else g.Cast(x, to=type_.dtype))
        outputs = g.op(op.name, *inputs, **case.attrs)
        results += [
            g.Cast(y, to="float32") if y.type.dtype == "bfloat16" else y
            for y in (outputs if isinstance(outputs, tuple) else (outputs,))
        ]
    return g.build(results)


def arrays_of(case: Case, larger: int) -> tuple[Array, ...]:
    """The sample's inputs, its symbolic sizes larger by some."""
    sample = case.sample
    if case.sizes:
        sizes = {s: d + larger for s, d in case.sizes.items()}
        shapes = [t.substitute(sizes).shape for t in case.types]
        inputs = tuple(replace(x, shape=s) for x, s in zip(sample.inputs, shapes, strict=True))
        sample = replace(sample, inputs=inputs)
    with np.errstate(all="ignore"):
        drawn = samples.draw(sample, case.dtype)
        return tuple(a.astype(np.float32) if a.dtype == ml_dtypes.bfloat16 else a for a in drawn)


def options() -> onnxruntime.SessionOptions:
    result = onnxruntime.SessionOptions()
    result.log_severity_level = 4
    result.intra_op_num_threads = 1
    return result


def run_model(model: onnx.ModelProto, arrays: list[Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options(), providers=["CPUExecutionProvider"]
    )
    names = [x.name for x in model.graph.input]
    feed = {n: np.array(a, order="C") for n, a in zip(names, arrays, strict=True)}
    return session.run(None, feed)


# ---- the comparison ------------------------------------------------------------------------------


def assert_close(found: Array, expected: Array, ulp: float, dtype: str) -> None:
    """Equal bits for what is exact; else within a few units of the last place, or of the largest
    element: runtimes sum in float32 and have other polynomials."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    info: Any = ml_dtypes.finfo(dtype if dtype == "bfloat16" else expected.dtype)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    largest = np.abs(b[np.isfinite(b)]).max(initial=0)
    with np.errstate(all="ignore"):
        near = np.abs(b) * (ulp + 4) + 16 * min(largest, 1e30) + float(info.tiny)
        close = finite & (np.abs(a - b) <= float(info.eps) * near)
    wrong = ~(same | close)
    if wrong.any():
        at = tuple(int(k[0]) for k in np.nonzero(wrong)) if wrong.ndim else ()
        pytest.fail(f"{wrong.sum()} of {wrong.size}: got {found[at]!r}, expected {expected[at]!r}")


def outputs_per_case(op: Operator, cases: list[Case]) -> int:
    return len(op.infer(cases[0].types, op.normalize(cases[0].attrs)))


@pytest.mark.parametrize("op", EXPORTED, ids=lambda op: op.name)
def test_the_model_computes_what_the_reference_does(op: Operator) -> None:
    cases = list(cases_of(op))
    assert cases, "no sample is left"
    graph = graph_of(op, cases)
    count = outputs_per_case(op, cases)
    for larger, opset in ((0, OPSETS[-1]), (3, DEFAULT_OPSET)):
        model = export_graph(graph, opset=opset)
        onnx.checker.check_model(model, full_check=True)
        assert {i.domain for i in model.opset_import} == {""}, "standard operators only"
        arrays = [arrays_of(case, larger) for case in cases]
        flat = [a for group in arrays for a in group]
        found, expected = run_model(model, flat), interpret(graph, flat)
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            case = cases[number // count]
            try:
                assert_close(a, b, op.ulp, case.dtype)
            except (AssertionError, pytest.fail.Exception) as error:
                pytest.fail(f"{case.sample} as {case.dtype}, sizes larger by {larger}: {error}")


def test_most_operators_are_walked_with_symbolic_sizes() -> None:
    without = [op.name for op in EXPORTED if not any(c.sizes for c in cases_of(op))]
    assert len(without) <= len(EXPORTED) // 4, without


def test_what_has_no_onnx_form_says_so() -> None:
    for op in WALKED:
        if isinstance(op.onnx, Unsupported):
            refused(op, op.onnx.reason)


def refused(op: Operator, reason: str) -> None:
    sample = op.samples[0]
    g = GraphBuilder()
    inputs = [g.input(Type(x.dtype or op.dtypes[0], x.shape)) for x in sample.inputs]
    results = g.op(op.name, *inputs, **sample.attrs)
    graph = g.build(results if isinstance(results, tuple) else (results,))
    with pytest.raises(TracerError, match=op.name) as caught:
        export_graph(graph)
    assert reason in str(caught.value)


def test_the_table_of_limits_names_operators_that_exist() -> None:
    assert not set(LIMITS) - set(TABLE)


# ---- the list of missing kernels -----------------------------------------------------------------


def test_the_list_of_missing_kernels_is_that_of_the_installed_runtime() -> None:
    state = onnxruntime.capi.onnxruntime_pybind11_state
    if not hasattr(state, "get_all_opkernel_def"):
        pytest.skip("this build of the runtime does not tell its kernels")
    if not onnxruntime.__version__.startswith("1.32"):
        pytest.skip("the list is that of onnxruntime 1.32")
    names = {"float": "float32", "double": "float64"}
    kernels: dict[tuple[str, str, int], set[str]] = {}
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == "":
            low, high = kernel.version_range
            for parameter, types in kernel.type_constraints.items():
                for version in range(max(low, 1), min(high, 23) + 1):
                    found = kernels.setdefault((kernel.op_name, parameter, version), set())
                    found.update(t[7:-1] for t in types)
    for key, listed in MISSING.items():
        operator, _, parameter = key.partition(".")
        missing: set[str] = set()
        for opset in range(17, 24):
            try:
                schema = onnx.defs.get_schema(operator, opset, "")
            except onnx.defs.SchemaError:
                continue
            (constraint,) = [
                c for c in schema.type_constraints if c.type_param_str == (parameter or "T")
            ]
            present = kernels.get((operator, parameter or "T", schema.since_version), set())
            for text in constraint.allowed_type_strs:
                dtype = names.get(text[7:-1], text[7:-1])
                if text[7:-1] not in present and dtype in DTYPES:
                    missing.add(dtype)
        assert set(listed.split()) == missing, key
