"""Functions with a backward of their own that several tests use."""

from __future__ import annotations

import numpy as np

import tracer
from tracer.autograd import Function

X = np.array([-1.0, 0.5, 2.0], np.float32)


def leaf(values=X, dtype=np.float32):
    return tracer.tensor(np.array(values, dtype), requires_grad=True)


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


class Odd(Function):
    """x * factor, with a gradient that nobody could guess: 10 * dy + x."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 10 * dy + x, None


def near(got, wanted, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=rtol, atol=1e-6)


class Split(Function):
    """(x + y, x * y, the sign of x, a string)."""

    seen: tuple = ()

    @staticmethod
    def forward(ctx, x, y, name):
        sign = x.sign()
        ctx.mark_non_differentiable(sign)
        ctx.save_for_backward(x, None, y)
        return x + y, x * y, sign, name

    @staticmethod
    def backward(ctx, d_sum, d_product, d_sign, nothing):
        Split.seen = (d_sum, d_product, d_sign, nothing)
        x, none, y = ctx.saved_tensors
        assert none is None
        dy = d_sum + d_product * x if ctx.needs_input_grad[1] else None
        return d_sum + d_product * y, dy, None


def failing(forward=lambda ctx, x: x * 2, backward=lambda ctx, dy: dy):
    return type(
        "Failing",
        (Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )


def run(model, *arrays):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
    return session.run(None, feeds)
