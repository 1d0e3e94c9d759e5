"""Optimisers, under PyTorch's names."""

from __future__ import annotations

from tracer.optim.adam import Adam as Adam
from tracer.optim.adam import AdamW as AdamW
from tracer.optim.optimizer import Optimizer as Optimizer
from tracer.optim.sgd import SGD as SGD
