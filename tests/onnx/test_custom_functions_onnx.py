"""Functions of the user's in exported models."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tracer
from ops.forms import Form, FormNode, Reference
from tests.support.custom_functions import Exp, X, near, run
from tracer import ir, trace
from tracer.autograd import Function


class QuickGelu(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return x * (x * alpha).sigmoid()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = (x * ctx.alpha).sigmoid()
        return dy * (s + x * s * (1 - s) * ctx.alpha), None

    @staticmethod
    def symbolic(g, x, alpha):
        assert x.type().sizes()[-1] == 3 and x.type().dtype == "float32"
        return g.op("com.microsoft::QuickGelu", x, alpha_f=alpha)


def model_of(f, *args, **kwargs):
    import onnx

    model = tracer.onnx.export(trace(f), args, **kwargs)
    onnx.checker.check_model(model, full_check=True)
    return model


def nodes_of(model):
    return [f"{n.domain}::{n.op_type}".removeprefix("::") for n in model.graph.node]


def test_symbolic_says_what_it_is_in_onnx() -> None:
    def f(x):
        return QuickGelu.apply(x, 1.702) * 2

    model = model_of(f, X[None], dynamic_shapes={"x": {0: "n"}})
    assert nodes_of(model) == ["com.microsoft::QuickGelu", "Mul"]
    assert [(i.domain, i.version) for i in model.opset_import][1:] == [("com.microsoft", 1)]
    assert model_of(f, X[None], custom_opsets={"com.microsoft": 2}).opset_import[1].version == 2
    for wrong in ({"": 3}, {"my": 0}, {"my": "1"}):
        with pytest.raises(tracer.ExportError, match="custom_opsets"):
            model_of(f, X[None], custom_opsets=wrong)
    more = np.stack([X, X + 1])
    near(run(model, more)[0], np.asarray(f(more)))


def test_without_symbolic_it_exports_what_forward_recorded() -> None:
    model = model_of(lambda x: Exp.apply(x) + 1, X)
    assert nodes_of(model) == ["Exp", "Add"]
    near(run(model, X)[0], np.exp(X) + 1)


def test_a_training_step_exports_with_it() -> None:
    def step(x):
        return tracer.value_and_grad(lambda x: QuickGelu.apply(x, 1.5).sum())(x)

    model = model_of(step, X)
    assert nodes_of(model)[0] == "com.microsoft::QuickGelu"
    for got, wanted in zip(run(model, X), step(X), strict=True):
        near(got, np.asarray(wanted), rtol=1e-5)


class Everything(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, x - y, x * y

    @staticmethod
    def symbolic(g, x, y):
        two = g.op("Constant", value_t=np.array([2.0], np.float32))
        a, b = g.op(
            "my.domain::Two", x, None, 0.5, y, outputs=2, n=3, names_s=["a", "b"], f=[0.5, 1.5]
        )
        clipped = g.op("Clip", b, -1.0, np.float32(1))
        cast = g.op("Cast", g.op("onnx::Mul", clipped, two), to_i=1)
        table = g.op(
            "my.domain::Table", cast, table_t=np.arange(20.0), k_i=7, t_t=2.5, s_s="x", w_f=1
        )
        return a, None, table


def test_the_forms_that_symbolic_can_build() -> None:
    graph = trace(lambda x, y: Everything.apply(x, y)).ir(X, X)
    form = graph.nodes[0].attrs.symbolic
    assert [n.operator for n in form.nodes][:2] == ["Constant", "my.domain::Two"]
    assert form.outputs[1] is None and dict(form.nodes[1].attributes)["n_i"] == 3
    text = ir.to_text(graph)
    assert "%3, %4 = my.domain::Two[n_i=3, names_s=[" in text and "(%0, None, 0.5, %1)" in text
    assert ir.equal(ir.parse(text, ir.constants(graph)), graph)
    assert ir.equal(ir.parse(ir.to_text(graph, inline=True)), graph)
    assert ir.fingerprint(graph) == ir.fingerprint(ir.parse(ir.to_text(graph, inline=True)))

    model = model_of(lambda x, y: Everything.apply(x, y), X, X)
    assert nodes_of(model) == [
        *("my.domain::Two", "Clip", "Mul", "Cast", "my.domain::Table"),
        "Sub",  # the result that has no form is what forward recorded
    ]
    (two,) = (n for n in model.graph.node if n.op_type == "Two")
    assert {a.name: a.type for a in two.attribute} == {"n": 2, "names": 8, "f": 6}
    assert two.input[1] == "" and len(two.output) == 2
    assert [o.type.tensor_type.elem_type for o in model.graph.output] == [1, 1, 1]


@pytest.mark.parametrize(
    "attribute",
    [
        *({"value_t": t} for t in (2.0, [2.0], np.float32(2))),
        *({"value": 2.0}, {"value_f": 2.0}, {"value_float_f": 2.0}, {"value_t": None}),
    ],
    ids=str,
)
def test_constants_of_forms_are_of_the_type_that_tensors_have(attribute) -> None:
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def symbolic(g, x):  # a Tensor that is made here is a constant, also in a trace
            given = {k: tracer.tensor(1.0) * 2 if v is None else v for k, v in attribute.items()}
            return g.op("Mul", x, g.op("Constant", **given))

    near(run(model_of(lambda x: Doubled.apply(x), X), X)[0], 2 * X)


def exported(symbolic):
    function = type(
        "Made",
        (Function,),
        {"forward": staticmethod(lambda ctx, x: x * 2), "symbolic": staticmethod(symbolic)},
    )
    traced = trace(lambda x: function.apply(x))
    near(traced(X), 2 * X)  # whatever symbolic does, it runs
    return tracer.onnx.export(traced, (X,))


@pytest.mark.parametrize(
    ("symbolic", "message"),
    [
        (lambda g, x: g.op("Relu", x, slope_f=1.0), "Relu has no attribute 'slope_f'"),
        (lambda g, x: g.op("NoSuch", x), "ONNX has no operator NoSuch"),
        (lambda g, x: (x, x), "gave 2 values, forward gives 1 Tensors"),
        (lambda g, x: 1.0, "it gave 1.0; a result is what g.op gave"),
        (lambda g: None, "Made.symbolic failed: TypeError"),
        (lambda g, x: g.op("my::A", x, alpha_i=0.5), "the attribute alpha_i is integers, got 0.5"),
        (lambda g, x: g.op("my::A", x, alpha_f=x), "a value of the graph is no attribute"),
        (lambda g, x: g.op("my::A", "x"), "an input is a value of symbolic's"),
        (lambda g, x: g.op("no good", x), "the name of an operator"),
        (lambda g, x: g.op("my::A", x, outputs=0), "outputs is how many results"),
        (
            lambda g, x: g.op("my::A", g.op("Relu", x).type()),
            "the type of what g.op gave is not known",
        ),
    ],
)
def test_what_is_wrong_with_a_form_is_told_when_it_is_exported(symbolic, message: str) -> None:
    with pytest.raises(tracer.ExportError, match=re.escape(message)) as error:
        exported(symbolic)
    assert "test_custom_functions_onnx.py" in str(error.value)


def test_damaged_forms_in_a_text_are_refused() -> None:
    graph = trace(lambda x: QuickGelu.apply(x, 1.5)).ir(X[None])
    text = ir.to_text(graph)
    for old, new in (
        ("(%0); %1", "(%1); %1"),
        ("alpha_f=1.5", "alpha=1.5"),
        ("alpha_f=1.5", 'alpha_f="x"'),
        ("return (%1)}", "return (%2)}"),
        ("return (%1)}", "return (%1)"),
        ("QuickGelu[alpha_f=1.5](%0)", "QuickGelu[alpha_f=1.5](%5)"),
        ("symbolic={", "symbolic={3 inputs, "),
    ):
        assert old in text
        with pytest.raises(tracer.ParseError, match="line"):
            ir.parse(text.replace(old, new, 1))
    broken = Form(1, (FormNode("Relu", (Reference(0),), ()),), (Reference(1), Reference(1)))
    attrs = {"function": "F", "symbolic": broken}
    node = graph.nodes[0]
    with pytest.raises(tracer.ShapeError, match="more inputs or results than body"):
        node.op.infer([v.type for v in node.inputs], attrs, [b.signature for b in node.blocks])
