"""Models as a whole: names, state, symbolic sizes, blocks, opsets, files, errors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tracer.onnx
from ops import dims
from ops.dims import Dim
from ops.errors import ExportError
from ops.operator import TABLE
from ops.types import Type
from tests.support.products import within_rounding
from tracer.ir.graph import Graph, GraphBuilder, Origin
from tracer.ir.interpreter import interpret
from tracer.onnx import export_graph

Array = np.ndarray[Any, Any]
onnxruntime.set_default_logger_severity(4)
N, M = Dim.symbol("n"), Dim.symbol("m")


def run_model(model: onnx.ModelProto | bytes, feed: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def checked(graph: Graph, **options: Any) -> onnx.ModelProto:
    model = export_graph(graph, **options)
    onnx.checker.check_model(model, full_check=True)
    return model


def linear(batch: int | Dim = N) -> Graph:
    """A linear layer: weight and bias first, then the input."""
    g = GraphBuilder("Linear")
    weight = g.input(Type("float32", (3, 4)), "weight")
    bias = g.input(Type("float32", (4,)), "bias")
    x = g.input(Type("float32", (batch, 3)), "x")
    g.origin = Origin("Linear", "examples/net.py:7")
    y = g.MatMul(x, weight)
    g.origin = Origin("Linear", "examples/net.py:8", gradient=True)
    return g.build([g.Add(y, bias)])


def arrays_for_linear(rng: np.random.Generator, batch: int) -> dict[str, Array]:
    shapes = {"weight": (3, 4), "bias": (4,), "x": (batch, 3)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def assert_affine(found: Array, given: dict[str, Array]) -> None:
    """found is x @ weight + bias, whatever the order of the runtime's sums."""
    x, weight = given["x"], np.vstack([given["weight"], given["bias"]])
    x = np.hstack([x, np.ones_like(x[:, :1])])
    assert within_rounding(found, x @ weight, x, weight), (found, x @ weight)


# ---- names and origins ---------------------------------------------------------------------------


def test_values_have_their_printed_names_and_nodes_their_origins() -> None:
    model = checked(linear())
    assert [x.name for x in model.graph.input] == ["weight", "bias", "x"]
    assert model.graph.name == "Linear"
    first, second = model.graph.node
    assert (first.output[0], second.output[0]) == ("3", "4")
    assert [y.name for y in model.graph.output] == ["4"]
    assert (first.name, second.name) == ("Linear/MatMul.3", "Linear/Add.4")
    assert first.doc_string == "examples/net.py:7"
    assert second.doc_string == "gradient of examples/net.py:8"
    facts = {p.key: p.value for p in second.metadata_props}
    assert facts == {"scope": "Linear", "source": "examples/net.py:8", "gradient": "true"}
    described = {v.name: v for v in model.graph.value_info}
    sizes = described["3"].type.tensor_type.shape.dim
    assert (sizes[0].dim_param, sizes[1].dim_value) == ("n", 4)


def test_given_names_replace_those_of_the_graph(rng: np.random.Generator) -> None:
    names = ["learned_0", "learned_1", "actual_input_1"]
    model = checked(linear(), input_names=names, output_names=["output1"])
    assert [x.name for x in model.graph.input] == names
    given = arrays_for_linear(rng, 5)
    (found,) = run_model(model, dict(zip(names, given.values(), strict=True)))
    assert_affine(found, given)


def test_no_name_is_used_twice_whatever_the_user_calls_things() -> None:
    g = GraphBuilder()
    a = g.input(Type("float32", (N,)), "2")
    b = g.input(Type("float32", (N,)), "size_0")
    c = g.Sin(g.Add(a, b))
    d = g.Add(c, g.Expand(g.constant(1.5, "float32"), shape=(N,)))
    model = checked(g.build([d]), output_names=["constant_0"])
    one = np.ones(2, np.float32)
    (found,) = run_model(model, {"2": one, "size_0": one})
    np.testing.assert_allclose(found, np.sin(2 * one) + 1.5, rtol=1e-6)


def test_inputs_constants_and_repeated_results_come_out_under_their_own_names() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (2,)), "x")
    y = g.Exp(x)
    constant = g.constant([1.0, 2.0], "float32")
    size = g.op("Dimension", size=7)
    graph = g.build([x, y, y, constant, size, x])
    one = np.ones(2, np.float32)
    for names in (None, ["a", "b", "c", "d", "e", "f"]):
        model = checked(graph, output_names=names)
        outputs = [v.name for v in model.graph.output]
        assert len(set(outputs)) == 6 and "x" not in outputs
        assert names is None or outputs == names
        expected = interpret(graph, [one])
        for found, wanted in zip(run_model(model, {"x": one}), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_names": ["a", "b"]}, "must be 3 names"),
        ({"input_names": ["a", "b", "a"]}, "'a' twice"),
        ({"output_names": ["y", "z"]}, "must be 1 names"),
        ({"initializers": {"nothing": np.zeros(4)}}, "no input 'nothing'"),
        ({"initializers": {"bias": np.zeros(4)}}, r"must be float32\[4\], got float64\[4\]"),
        ({"initializers": {"bias": np.zeros(3, np.float32)}}, r"must be float32\[4\], got"),
        ({"opset": 16}, "must be 17 to 23"),
        ({"opset": 99}, "must be 17 to 23"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExportError, match=message):
        export_graph(linear(), **options)


# ---- state ---------------------------------------------------------------------------------------


def test_parameters_become_part_of_the_model(rng: np.random.Generator) -> None:
    given = arrays_for_linear(rng, 6)
    state = {"weight": given["weight"], "bias": given["bias"]}
    model = checked(linear(), initializers=state)
    assert [x.name for x in model.graph.input] == ["x"]
    (found,) = run_model(model, {"x": given["x"]})
    assert_affine(found, given)


def test_the_same_graph_gives_the_same_bytes(rng: np.random.Generator) -> None:
    state = {"bias": rng.standard_normal(4).astype(np.float32)}
    texts = {
        checked(linear(), initializers=state).SerializeToString(deterministic=True)
        for _ in range(3)
    }
    assert len(texts) == 1


def test_equal_constants_are_stored_once() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (3,)), "x")
    for _ in range(5):
        x = g.Add(x, g.constant(2.0, "float32"))
    model = checked(g.build([x]))
    assert len(model.graph.initializer) == 1


# ---- symbolic sizes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "size",
    [
        N,
        2 * N + 1,
        N * M,
        N // 2,
        -((-N) // 2),
        (N - 3) // 2,
        (3 * N + M) // 4 - 1,
        dims.maximum(N, M) * 2 - N,
        dims.minimum(N, 3),
        N // M,
        dims.maximum(N - 5, 0),
        2 * (N // 2) * (M // 3) + 7,
    ],
    ids=str,
)
def test_expressions_in_sizes_are_computed_by_the_model(size: Dim) -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (N, M)), "x")
    graph = g.build([g.op("Dimension", size=size), x])
    model = checked(graph)
    for n, m in ((1, 1), (2, 3), (7, 2), (4, 9), (5, 5)):
        found, _ = run_model(model, {"x": np.zeros((n, m), np.float32)})
        assert found.shape == () and found == dims.substitute(size, {"n": n, "m": m})


def test_a_size_is_found_where_no_axis_is_just_the_symbol() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (2 * N + 1, M + N)), "x")
    graph = g.build([g.op("Dimension", size=N), g.op("Dimension", size=M), x])
    n, m, _ = run_model(checked(graph), {"x": np.zeros((9, 7), np.float32)})
    assert (n, m) == (4, 3)


def test_shapes_are_built_from_sizes_and_shared() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (N, M)), "x")
    graph = g.build(
        [
            g.Reshape(x, shape=(M, N)),
            g.Reshape(x, shape=(1, N * M, 1)),
            g.Expand(x, shape=(2, 3, N, M)),
            g.Reshape(g.Exp(x), shape=(M, N)),
        ]
    )
    model = checked(graph)
    array = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
    for found, wanted in zip(
        run_model(model, {"x": array}), interpret(graph, [array]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    operators = [n.op_type for n in model.graph.node]
    assert operators.count("Shape") == 2, "each size is read once"
    assert model.graph.output[1].type.tensor_type.shape.dim[1].dim_param == "m*n"


def test_a_size_that_no_input_determines_is_refused() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (N * M,)), "x")
    g.origin = Origin("", "net.py:3")
    graph = g.build([g.Reshape(x, shape=(N, M))])
    with pytest.raises(ExportError, match=r"Reshape: the size n cannot be known.*net.py:3"):
        export_graph(graph)


# ---- blocks --------------------------------------------------------------------------------------


def choice() -> Graph:
    """x + 1 or exp(x) * n, nested once."""

    def block(build: Any) -> Graph:
        b = GraphBuilder()
        x = b.input(Type("float32", (N,)), "x")
        y = b.input(Type("float32"), "y")
        return b.build(build(b, x, y))

    def inner(b: GraphBuilder, x: Any, y: Any) -> Any:
        condition = b.Less(y, b.constant(0.0, "float32"))
        result = b.emit(TABLE["If"], (condition, x, y), {}, (plain, passing))
        return [b.Mul(result, b.Cast(b.size(N), to="float32"))]

    plain = block(lambda b, x, y: [b.Add(x, y)])
    passing = block(lambda b, x, y: [x])
    nested = block(inner)
    g = GraphBuilder("choice")
    condition = g.input(Type("bool"), "condition")
    x, y = g.input(Type("float32", (N,)), "x"), g.input(Type("float32"), "y")
    return g.build([g.emit(TABLE["If"], (condition, x, y), {}, (plain, nested))])


def test_blocks_become_branches() -> None:
    graph = choice()
    model = checked(graph)
    branches = [a.name for a in model.graph.node[-1].attribute]
    assert branches == ["else_branch", "then_branch"]
    x = np.array([1.0, -2.0, 0.5], np.float32)
    for condition in (True, False):
        for y in (-1.0, 2.0):
            feed = {"condition": np.array(condition), "x": x, "y": np.float32(y)}
            feed["y"] = np.asarray(feed["y"])
            (found,) = run_model(model, feed)
            (wanted,) = interpret(graph, list(feed.values()))
            np.testing.assert_array_equal(found, wanted)


# ---- element types -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_round_after_every_operator(dtype: str) -> None:
    g = GraphBuilder()
    x, y, z = (g.input(Type("float32", (64,)), name) for name in "xyz")
    a, b, c = (g.Cast(v, to=dtype) for v in (x, y, z))
    graph = g.build([g.Cast(g.Sub(g.Mul(g.Add(a, b), c), a), to="float32")])
    arrays = [np.linspace(k, 2 * k, 64, dtype=np.float32) for k in (0.1, 7.0, 300.0)]
    (found,) = run_model(checked(graph), dict(zip("xyz", arrays, strict=True)))
    np.testing.assert_array_equal(found, interpret(graph, arrays)[0])


def test_unsigned_64_bit_extremes_keep_their_order() -> None:
    g = GraphBuilder()
    x = g.input(Type("uint64", (N,)), "x")
    graph = g.build(
        [
            g.ReduceMax(x, axes=(0,), keepdims=False),
            g.ReduceMin(x, axes=(0,), keepdims=False),
            g.ArgMax(x, axes=(0,), keepdims=False),
        ]
    )
    array = np.array([5, 1 << 63, (1 << 64) - 1, 3], np.uint64)
    for found, wanted in zip(
        run_model(checked(graph), {"x": array}), interpret(graph, [array]), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


# ---- opsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", tracer.onnx.OPSETS)
def test_every_opset_gives_the_same_results(opset: int, rng: np.random.Generator) -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (N, 4)), "x")
    total = g.ReduceSum(g.Exp(x), axes=(1,), keepdims=True)
    largest = g.ReduceMax(x, axes=(1,), keepdims=True)
    mean = g.ReduceMean(x, axes=(0, 1), keepdims=False)
    graph = g.build([g.Div(g.Exp(x), total), largest, mean, g.Where(g.Less(x, largest), x, total)])
    model = checked(graph, opset=opset)
    assert model.opset_import[0].version == opset
    array = rng.standard_normal((3, 4)).astype(np.float32)
    for found, wanted in zip(
        run_model(model, {"x": array}), interpret(graph, [array]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_an_operator_that_an_opset_lacks_is_refused() -> None:
    g = GraphBuilder()
    x = g.input(Type("int32", (3,)), "x")
    g.origin = Origin("Net/Hash[0]", "net.py:12")
    graph = g.build([g.BitwiseXor(x, x)])
    with pytest.raises(
        ExportError, match=r"BitwiseXor in Net/Hash\[0\]: .* since opset 18.* 17 \(at net.py:12\)"
    ):
        export_graph(graph, opset=17)


# ---- the user's call -----------------------------------------------------------------------------


def test_export_writes_a_file_and_prints_the_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    path = tmp_path / "net.onnx"
    names = ["w", "b", "input"]
    model = tracer.onnx.export(
        linear(), None, path, verbose=True, input_names=names, output_names=["output1"]
    )
    printed = capsys.readouterr().out
    assert printed.startswith("graph(%w : Float(3, 4)\n")
    assert "%output1 : Float(n, 4) = Add(%3, %b), scope: Linear" in printed
    assert path.read_bytes() == model.SerializeToString(deterministic=True)
    assert list(tmp_path.iterdir()) == [path]
    given = arrays_for_linear(rng, 2)
    (found,) = run_model(path.read_bytes(), dict(zip(names, given.values(), strict=True)))
    assert_affine(found, given)


def test_export_writes_to_an_open_file() -> None:
    file = io.BytesIO()
    tracer.onnx.export(linear(), None, file)
    onnx.checker.check_model(onnx.load_model_from_string(file.getvalue()))


def test_example_arguments_must_fit() -> None:
    good = (np.zeros((3, 4)), np.zeros(4), np.zeros((8, 3)))
    tracer.onnx.export(linear(), good)
    with pytest.raises(ExportError, match="3 inputs, got 2"):
        tracer.onnx.export(linear(), good[:2])
    with pytest.raises(ValueError, match="weight must be"):
        tracer.onnx.export(linear(), (np.zeros((3, 5)), *good[1:]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "missing/net.onnx"}, "does not exist"),
        ({"path": "."}, "is a folder"),
        ({"path": 7}, "file name or a binary file"),
        ({"dynamic_axes": {"x": {0: "n"}}}, "record it with symbolic sizes"),
        ({"dynamic_axes": {}, "dynamic_shapes": {}}, "pass one of them"),
        ({"opset_version": 3}, "must be 17 to 23"),
    ],
)
def test_wrong_calls_are_refused_and_leave_nothing(
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match=message):
        tracer.onnx.export(linear(), None, **{"path": "net.onnx", **options})
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_graph_is_refused() -> None:
    with pytest.raises(ExportError, match="list cannot be exported"):
        tracer.onnx.export([1, 2], None, None)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")

    def broken(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(ExportError, match="No space left on device"):
        tracer.onnx.export(linear(), None, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
