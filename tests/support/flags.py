"""What tests of the flags of gradients share."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracer
from tracer import nn


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Stack(nn.Module):
    """A base of residual layers, and a classifier."""

    def __init__(self, depth: int, width: int = 32) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth)]
        self.base = nn.ModuleList(layers)
        self.fc = nn.Linear(width, 5)

    def forward(self, x: Any) -> Any:
        for layer in self.base:
            x = x + tracer.tanh(layer(x))
        return self.fc(x)


def stack(depth: int, frozen: bool) -> Stack:
    model = Stack(depth)
    model.base.requires_grad_(not frozen)
    return model
