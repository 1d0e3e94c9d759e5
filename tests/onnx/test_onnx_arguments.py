"""What `tracer.onnx.export` is given: example arguments, the sizes that may change, names of inputs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import tracer
from ops.dims import Dim
from ops.errors import ExportError, ShapeError, TracerError
from tracer import nn
from tracer.onnx import export

from .test_onnx_export import run_model

X = np.arange(12.0, dtype=np.float32).reshape(3, 4)
KEEP = np.array([True, False, True, True])


def sizes(values: Any) -> dict[str, list[str | int]]:
    """The sizes of inputs or outputs by name."""
    return {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values
    }


def both(batch: dict[str, Any], factor: float = 2.0) -> Any:
    return batch["x"] + batch["y"] * factor


def total(pair: list[Any], scale: Any) -> Any:
    return (pair[0] + pair[1]) * scale


def swapped(x: Any) -> Any:
    y = x * 1.0
    y[0:1], y[-1:] = x[-1:], x[0:1]
    return y


# ---- which sizes may change ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dynamic", "expected"),
    [
        ({"x": {0: "n"}}, ["n", 4]),
        ({"x": {-2: "n"}}, ["n", 4]),
        ({"x": {0: "n", 1: None}}, ["n", 4]),
        ({"x": {0: "n", 1: 4}}, ["n", 4]),
        ({"x": [0]}, ["x_0", 4]),
        ({"x": ("n", None)}, ["n", 4]),
        ({"x": {0: Dim.symbol("n")}}, ["n", 4]),
        ({"x": None}, [3, 4]),
        (({0: "n"},), ["n", 4]),
        ([None], [3, 4]),
        ((), [3, 4]),
    ],
)
def test_the_forms_of_dynamic_shapes(dynamic: Any, expected: list[Any]) -> None:
    model = export(lambda x: x * 2.0, (X,), dynamic_shapes=dynamic)
    assert sizes(model.graph.input) == {"x": expected}
    assert sizes(model.graph.output) == {"output": expected}


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        (5, "a dict by the names of arguments"),
        ("batch", "a dict by the names of arguments"),
        ([5], "a dict such as"),
        ({"y": {0: "n"}}, "names 'y', but the arguments are x"),
        ([{0: "n"}, None], "2 entries for 1 arguments"),
        ({"x": {5: "n"}}, "axis 5 of 'x', which has 2 axes"),
        ({"x": {"0": "n"}}, "axis '0' of 'x'"),
        ({"x": {-1: "n", 1: "m"}}, "axis 1 of 'x' twice"),
        ({"x": {0: "batch size"}}, "named by an identifier, got 'batch size'"),
        ({"x": {0: "max"}}, "named by an identifier"),
        ({"x": {0: 5}}, "is 5, the example has 3"),
        ({"x": {0: 2.5}}, "a name, or None where it is fixed; got 2.5"),
        ({"x": {0: "n", 1: "n"}}, "a name stands for one size"),
        ({"x": {"deep": {0: "n"}}}, "axis 'deep'"),
    ],
)
def test_what_does_not_fit_the_arguments_is_refused(dynamic: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        export(lambda x: x * 2.0, (X,), dynamic_shapes=dynamic)


@pytest.mark.parametrize(
    "dynamic",
    [
        {"batch": {"x": {0: "n"}, "y": {0: "n"}}},
        ({"x": {0: "n"}, "y": {0: "n"}},),
        {"batch.x": {0: "n"}, "batch.y": {0: "n"}},
    ],
)
def test_trees_of_arguments_have_trees_of_sizes(dynamic: Any) -> None:
    model = export(both, ({"x": X, "y": X},), dynamic_shapes=dynamic)
    assert sizes(model.graph.input) == {"batch.x": ["n", 4], "batch.y": ["n", 4]}
    longer = np.ones((5, 4), np.float32)
    (found,) = run_model(model, {"batch.x": longer, "batch.y": longer})
    np.testing.assert_array_equal(found, 3 * longer)


def test_every_part_of_a_list_is_named_or_refused() -> None:
    model = export(total, ([X, X], np.float32(2)), dynamic_shapes=([{0: "n"}, {0: "n"}], None))
    assert sizes(model.graph.input) == {"pair.0": ["n", 4], "pair.1": ["n", 4], "scale": []}
    for wrong in ({"pair": {"first": {0: "n"}}}, {"pair": 3}, {"pair": [None, None, {0: "n"}]}):
        with pytest.raises(ExportError, match=r"pair\.0, pair\.1"):
            export(total, ([X, X], np.float32(2)), dynamic_shapes=wrong)


def test_sizes_without_a_name_are_different_ones() -> None:
    model = export(
        lambda a, b: (a["c"].sum(), b.sum()),
        ({"c": X}, X),
        dynamic_shapes={"a.c": [0], "b": {0: "a_c_0"}},
    )
    assert sizes(model.graph.input) == {"a.c": ["a_c_0_", 4], "b": ["a_c_0", 4]}


def test_dynamic_axes_may_use_the_names_that_the_model_gets() -> None:
    model = export(
        nn.Linear(4, 2),
        X,
        input_names=["input"],
        output_names=["output"],
        dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
    )
    assert sizes(model.graph.input) == {"input": ["batch", 4]}
    assert sizes(model.graph.output) == {"output": ["batch", 2]}
    assert [i.name for i in model.graph.initializer] == ["weight", "bias"]


# ---- names and arguments -------------------------------------------------------------------------


def test_names_are_for_all_inputs_or_for_those_that_are_no_part_of_the_model() -> None:
    layer = nn.Linear(4, 2)
    short = export(layer, X, input_names=["bias"])  # the name of a parameter
    assert [i.name for i in short.graph.input] == ["bias"]
    assert [i.name for i in short.graph.initializer] == ["weight", "bias_"]
    whole = export(layer, X, input_names=["w", "b", "x"])
    assert [i.name for i in whole.graph.initializer] == ["w", "b"]
    with pytest.raises(ExportError, match="must be 3 different names, one for each input, or 1"):
        export(layer, X, input_names=["w", "b"])
    for option in ("input_names", "output_names"):
        with pytest.raises(ExportError, match=rf"{option} is a list of names.* write \['x'\]"):
            export(layer, X, **{option: "x"})


def test_arguments_of_any_number_have_names() -> None:
    def combined(first: Any, *others: Any, **named: Any) -> Any:
        return first + others[0] * others[1] + named["last"]

    for dynamic in ({"others": [{0: "n"}] * 2, "last": None}, (None, {0: "n"}, {0: "n"}, None)):
        model = export(combined, (X[:1], X, X, {"last": X[0]}), dynamic_shapes=dynamic)
        assert list(sizes(model.graph.input)) == ["first", "others.0", "others.1", "last"]
        assert sizes(model.graph.output) == {"output": ["n", 4]}


class Scaled(nn.Module):
    """Tensors and arrays that are no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = np.ones(4, np.float32), tracer.ones(4)
        self.register_buffer("kept", tracer.ones(4))

    def forward(self, x: Any) -> Any:
        return x * self.scale + self.shift + self.kept * KEEP.astype(np.float32)


def test_what_a_module_reads_has_its_name() -> None:
    model = export(nn.Sequential(Scaled()), (X,))
    names = [i.name for i in model.graph.initializer]
    assert names[:3] == ["0.kept", "0.scale", "0.shift"]


def test_a_dict_at_the_end_is_keywords_unless_only_an_argument_fits() -> None:
    for args in (({"x": X, "y": X},), {"x": X, "y": X}, ({"batch": {"x": X, "y": X}},)):
        model = export(both, args)
        assert [i.name for i in model.graph.input] == ["batch.x", "batch.y"]
    keywords = export(lambda x, *, scale: x * scale, (X, {"scale": X}))
    assert [i.name for i in keywords.graph.input] == ["x", "scale"]


# ---- code that depends on sizes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * len(x), r"len\(x\) is a number(?s:.*)test_onnx_arguments\.py:\d+"),
        (lambda x: x * max(x.shape[0], 3), "whether the size n is larger or smaller than 3"),
        (lambda x: x * (x.shape[0] * 0.5), r"what \* gives with 0.5 is no size"),
        (lambda x: x * (1 / x.shape[0]), "what / gives with 1 is no size"),
        (lambda x: x * x.shape[0] ** 0.5, r"what \*\* gives with 0.5"),
        (lambda x: x * float(x.shape[0]), "no value as a number"),
        (lambda x: [x[k] for k in range(x.shape[0])], "no integer value"),
        (lambda x: x[x.shape[0] - 1], "n - 1 is symbolic"),
        (lambda x: list(x), "unstack needs to know the size"),
    ],
)
def test_numbers_made_of_symbolic_sizes_are_refused(
    function: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        export(function, (X,), dynamic_shapes={"x": {0: "n"}})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.shape[0] ** 2,
        lambda x: x.shape[0] - x.sum() / x.shape[0],
        lambda x: (x.shape[0] > x.sum(), x.sum() >= x.shape[0]),
        lambda x: x * tracer.sqrt(tracer.tensor(x.shape[0])),
        lambda x: tracer.tensor([x.shape[0], 2]),
        lambda x: x * (np.int64(3) * x.shape[0] // np.int64(2)),
        lambda x: x * int(f"{x.ndim:2d}") if f"{x.shape[0]:>3d}" else x,
        lambda x: tracer.split(x, [1], axis=0),
        lambda x: tracer.split(x, [2, -1, 1, 9], axis=0),
        lambda x: tracer.split(x, [-9], axis=1),
        lambda x: tracer.concat([x[:1], x[1:] - x[:-1]], axis=0) + x,
        lambda x: tracer.concat([x[-1:], x[:-1]], axis=0) * x[::-1],
        swapped,
    ],
)
def test_values_made_of_symbolic_sizes_follow_them(function: Callable[[Any], Any]) -> None:
    model = export(function, (X,), dynamic_shapes={"x": {0: "n"}})
    onnx.checker.check_model(model, full_check=True)
    for rows in (1, 2, 5):
        x = np.linspace(-2, 2, 4 * rows, dtype=np.float32).reshape(rows, 4)
        expected = function(tracer.tensor(x))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for found, wanted in zip(run_model(model, {"x": x}), expected, strict=True):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-6)


BACKWARDS = [(-2, None, -1), (-3, -5, -2), (-2, 0, -1), (-6, None, -3), (-2, -1, -1), (4, -3, -2)]


def turned(x: Any) -> Any:
    changed = x * 1.0
    parts = []
    for start, stop, step in BACKWARDS:
        parts.append(x[start:stop:step])
        changed[start:stop:step] += 1.0
    return (*parts, changed)


def test_slices_backwards_at_every_size() -> None:
    def function(x: Any) -> Any:
        return (*turned(x), tracer.grad(lambda x: (x[-2::-1] ** 2).sum())(x))

    model = export(function, (X,), dynamic_shapes={"x": {0: "n"}})
    onnx.checker.check_model(model, full_check=True)
    for rows in range(8):
        x = np.arange(4.0 * rows, dtype=np.float32).reshape(rows, 4)
        expected = function(tracer.tensor(x))
        for found, wanted in zip(run_model(model, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(found, wanted.numpy())


def test_the_text_of_a_size_gives_no_warnings() -> None:
    from ops.dims import parse

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("3n", "2if n", "1_0", "0x1", "1or n"):
            with pytest.raises(TracerError, match="not a size"):
                parse(text)


# ---- values that nothing can change --------------------------------------------------------------


def chosen(x: Any) -> Any:
    y = x[:, KEEP] * float(tracer.tensor([1.0, 2.5])[1])
    y[:, [True, False, False]] = 7.0
    if tracer.ones(3).sum() > 2:
        y = y + int(tracer.asarray(KEEP).sum())
    return y, tracer.masked_select(tracer.arange(4), KEEP)


def test_constants_may_be_asked_for() -> None:
    model = export(chosen, (X,), dynamic_shapes={"x": {0: "n"}})
    onnx.checker.check_model(model, full_check=True)
    for rows in (1, 4):
        x = np.linspace(0, 1, 4 * rows, dtype=np.float32).reshape(rows, 4)
        for found, wanted in zip(run_model(model, {"x": x}), chosen(tracer.tensor(x)), strict=True):
            np.testing.assert_array_equal(found, wanted.numpy())


def test_what_a_symbolic_size_or_state_decides_is_no_constant() -> None:
    state = tracer.tensor(KEEP)
    with pytest.raises(TracerError, match="holds one path only"):
        export(
            lambda x: x if tracer.ones(x.shape).sum() > 0 else x * 2,
            (X,),
            dynamic_shapes={"x": {0: "n"}},
        )
    with pytest.raises(TracerError, match="whose size depends on elements"):
        export(lambda x: x[:, state], (X,))


# ---- results -------------------------------------------------------------------------------------


def test_results_have_other_names_than_inputs() -> None:
    for options in ({}, {"input_names": ["output"]}):
        model = export(lambda output: output * 2.0, (X,), **options)
        onnx.checker.check_model(model, full_check=True)
        assert [o.name for o in model.graph.output] == ["output_"]
    for name, target in (("x", lambda x: x * 2.0), ("weight", nn.Linear(4, 2))):
        with pytest.raises(ExportError, match=f"output_names has '{name}', .* of an input"):
            export(target, (X,), output_names=[name])


def test_a_text_file_is_refused() -> None:
    with pytest.raises(ExportError, match="binary file"):
        export(lambda x: x * 2.0, (X,), io.StringIO())


class Filter:
    """State that is another Tensor after each call."""

    def __init__(self) -> None:
        self.kept = {"mean": tracer.zeros(4)}
        self.calls = 0
        self.last: Any = None

    def __call__(self, x: Any) -> Any:
        self.kept["mean"] = self.kept["mean"] * 0.5 + x.sum(0)
        self.calls += 1
        self.last = x
        return x * self.kept["mean"]


def test_state_that_is_assigned_is_an_input_and_a_result() -> None:
    target = Filter()
    model = export(target, (X,), dynamic_shapes={"x": {0: "n"}})
    onnx.checker.check_model(model, full_check=True)
    assert (target.calls, target.last) == (0, None)
    assert list(sizes(model.graph.input)) == ["kept.mean", "x"]
    assert list(sizes(model.graph.output)) == ["output", "kept.mean.next"]
    state = np.zeros(4, np.float32)
    for rows in (3, 1, 2):
        result, state = run_model(model, {"kept.mean": state, "x": X[:rows]})
        np.testing.assert_array_equal(result, target(tracer.tensor(X[:rows])).numpy())
        np.testing.assert_array_equal(state, target.kept["mean"].numpy())


def descend(w: Any, x: Any) -> Any:
    w -= tracer.grad(lambda w: (x @ w).sum())(w) * 0.5
    return w.sum()


def test_an_argument_that_is_changed_is_a_result() -> None:
    w = tracer.zeros(4)
    model = export(descend, (w, X), dynamic_shapes={"x": {0: "n"}})
    onnx.checker.check_model(model, full_check=True)
    assert list(sizes(model.graph.output)) == ["output", "w.next"]
    total, new = run_model(model, {"w": w.numpy(), "x": X})
    np.testing.assert_array_equal(total, descend(w, tracer.tensor(X)).numpy())
    np.testing.assert_array_equal(new, w.numpy())
