"""Functions of the user's beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.custom_functions import X, leaf, near
from tracer.autograd import Function
from tracer.autograd import grad as grad_of


@pytest.mark.torch
@pytest.mark.parametrize("case", ["exp", "odd", "split", "same", "dirty", "power"])
def test_values_and_gradients_are_torch_s(case: str) -> None:
    import torch

    def results(base, tensor, grad, no_tensor):
        class Exp(base):
            forward = staticmethod(lambda ctx, x: save(ctx, x.exp()))
            backward = staticmethod(lambda ctx, dy: dy * ctx.saved_tensors[0])

        def save(ctx, y):
            ctx.save_for_backward(y)
            return y

        class Odd(base):
            forward = staticmethod(lambda ctx, x, k: save(ctx, x) * k)
            backward = staticmethod(lambda ctx, dy: (10 * dy + ctx.saved_tensors[0], None))

        class Split(base):
            @staticmethod
            def forward(ctx, x, k):
                sign = x.sign()
                ctx.mark_non_differentiable(sign)
                ctx.save_for_backward(x)
                return x + k, sign, no_tensor, x * x

            @staticmethod
            def backward(ctx, a, b, c, d):
                return a * 3 + b + d * 2 * ctx.saved_tensors[0], None

        class Same(base):
            forward = staticmethod(lambda ctx, x, k: (x, x.view(-1)))
            backward = staticmethod(lambda ctx, a, b: (a * 2 + b, None, None))

        class Dirty(base):
            @staticmethod
            def forward(ctx, x, k):
                x.mul_(k)
                ctx.mark_dirty(x)
                ctx.save_for_backward(x)
                return x

            @staticmethod
            def backward(ctx, dy):
                return dy * 20 * ctx.saved_tensors[0], None

        class Power(base):
            @staticmethod
            def forward(x, k):
                return x**k

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0], output)
                ctx.k = inputs[1]

            @staticmethod
            def backward(ctx, dy):
                x, y = ctx.saved_tensors
                return dy * ctx.k * y / x, None

        x = tensor(X)
        if case == "exp":
            y = Exp.apply(x)
        elif case == "odd":
            y = Odd.apply(x, 3)
        elif case == "split":
            a, sign, _, b = Split.apply(x, 2)
            assert not sign.requires_grad
            y = a * b + sign
        elif case == "same":
            a, b = Same.apply(x, 2)
            y = a * b
        elif case == "dirty":
            y = x * 3
            Dirty.apply(y[1:], 2)
        else:
            y = Power.apply(x, 3)
        (g,) = grad((y * y).sum(), x, create_graph=True)
        (gg,) = grad(g.sum(), x)
        return [np.asarray(v.detach()) for v in (y, g, gg)]

    ours = results(Function, leaf, grad_of, "text")
    theirs = results(
        torch.autograd.Function,
        lambda a: torch.tensor(a, requires_grad=True),
        torch.autograd.grad,
        "text",
    )
    for got, wanted in zip(ours, theirs, strict=True):
        near(got, wanted, rtol=1e-5)
