"""inference_mode, and Tensors made in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.flags import array
from tracer import GradError, nn, trace


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


def test_what_is_an_inference_tensor() -> None:
    w = tracer.tensor(array(3), requires_grad=True)
    x = tracer.tensor(array(3))
    with tracer.inference_mode():
        made = (x * 2, w * 2, tracer.ones(3), tracer.tensor([1.0]), tracer.randn(3), tracer.eye(2))
        assert all(y.is_inference() and not y.requires_grad and y.grad_fn is None for y in made)
        assert not x[1:].is_inference()  # x's own memory
        model = nn.Linear(2, 2)  # is trained later
        leaf = tracer.randn(3, requires_grad=True)
    assert not any(p.is_inference() or not p.requires_grad for p in model.parameters())
    assert leaf.requires_grad and not leaf.is_inference()
    y = made[0]
    assert y[1:].is_inference() and y.detach().is_inference()
    assert not (y + 1).is_inference() and not y.clone().is_inference()
    assert model(array(1, 2)).requires_grad


def test_inference_tensors_have_no_part_in_gradients() -> None:
    w = tracer.tensor(array(3), requires_grad=True)
    with tracer.inference_mode():
        y = tracer.tensor(array(3)) * 2
    with pytest.raises(GradError, match=r"inference mode(.|\n)*test_inference_mode\.py:\d+"):
        y.requires_grad = True
    with pytest.raises(
        GradError, match=r"inference mode(.|\n)*clone(.|\n)*test_inference_mode\.py:\d+"
    ):
        w * y
    with pytest.raises(GradError, match="inference mode"):
        trace(lambda a: a * w)(y)
    for change in (lambda: y.add_(1), lambda: y.__setitem__(0, 1)):
        with pytest.raises(GradError, match=r"inference mode(.|\n)*test_inference_mode\.py:\d+"):
            change()
    with tracer.inference_mode():
        y.add_(1)
        x = tracer.ones(3).add_(y)
    y = tracer.tensor(x) * 0 + 1
    (w + y).sum().backward()  # keeps nothing of y
    np.testing.assert_array_equal(w.grad, np.ones(3))
    assert (w * y.clone()).requires_grad


def test_functional_gradients_work_in_every_mode() -> None:
    x = array(3)
    with tracer.inference_mode():
        y = tracer.tensor(x)
        gradient = tracer.grad(lambda a: (a * a).sum())(y)
        hessian = tracer.hessian(lambda a: (a * a).sum())(y)
    with tracer.no_grad():
        np.testing.assert_array_equal(tracer.grad(lambda a: (a * a).sum())(x), 2 * x)
    np.testing.assert_array_equal(gradient, 2 * x)
    np.testing.assert_array_equal(hessian, 2 * np.eye(3))


def test_buffers_assigned_in_inference_mode_can_be_used_in_training() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.register_buffer("scale", tracer.ones(3))

        def forward(self, x: Any) -> Any:
            self.scale = self.scale * 0.5
            return self.layer(x) * self.scale

    model = Scaled()
    with tracer.inference_mode():
        model(array(2, 3))
        trace(lambda x: model(x))(array(2, 3))
    model(array(2, 3)).sum().backward()
    assert model.layer.weight.grad is not None
