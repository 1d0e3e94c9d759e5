"""`Parameter` under PyTorch's name of its module."""

from __future__ import annotations

from tracer.tensors.parameter import Parameter as Parameter
