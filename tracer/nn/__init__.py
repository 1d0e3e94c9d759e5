"""Neural networks: modules, layers and their functional forms, under PyTorch's names."""

from __future__ import annotations

from tracer.nn.module import Module as Module
from tracer.nn.modules.activation import ReLU as ReLU
from tracer.nn.modules.container import ModuleList as ModuleList
from tracer.nn.modules.container import Sequential as Sequential
from tracer.nn.modules.linear import Linear as Linear
from tracer.nn.parameter import Parameter as Parameter
