"""Neural networks: modules, layers and their functional forms, under PyTorch's names.

Knows functions and gradients. Must not know optimisers or how traces are made.
"""

from __future__ import annotations

import typing as _typing

from tracer.core.lazy_imports import lazily as _lazily
from tracer.nn import functional as functional
from tracer.nn import init as init
from tracer.nn.module import Module as Module
from tracer.nn.modules.activation import ELU as ELU
from tracer.nn.modules.activation import GELU as GELU
from tracer.nn.modules.activation import SELU as SELU
from tracer.nn.modules.activation import Hardsigmoid as Hardsigmoid
from tracer.nn.modules.activation import Hardswish as Hardswish
from tracer.nn.modules.activation import Hardtanh as Hardtanh
from tracer.nn.modules.activation import LeakyReLU as LeakyReLU
from tracer.nn.modules.activation import LogSigmoid as LogSigmoid
from tracer.nn.modules.activation import LogSoftmax as LogSoftmax
from tracer.nn.modules.activation import Mish as Mish
from tracer.nn.modules.activation import ReLU as ReLU
from tracer.nn.modules.activation import ReLU6 as ReLU6
from tracer.nn.modules.activation import Sigmoid as Sigmoid
from tracer.nn.modules.activation import SiLU as SiLU
from tracer.nn.modules.activation import Softmax as Softmax
from tracer.nn.modules.activation import Softplus as Softplus
from tracer.nn.modules.activation import Softsign as Softsign
from tracer.nn.modules.activation import Tanh as Tanh
from tracer.nn.modules.container import ModuleDict as ModuleDict
from tracer.nn.modules.container import ModuleList as ModuleList
from tracer.nn.modules.container import Sequential as Sequential
from tracer.nn.modules.linear import Linear as Linear
from tracer.nn.modules.loss import BCELoss as BCELoss
from tracer.nn.modules.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from tracer.nn.modules.loss import CrossEntropyLoss as CrossEntropyLoss
from tracer.nn.modules.loss import HuberLoss as HuberLoss
from tracer.nn.modules.loss import KLDivLoss as KLDivLoss
from tracer.nn.modules.loss import L1Loss as L1Loss
from tracer.nn.modules.loss import MSELoss as MSELoss
from tracer.nn.modules.loss import NLLLoss as NLLLoss
from tracer.nn.modules.loss import SmoothL1Loss as SmoothL1Loss
from tracer.nn.modules.normalization import LayerNorm as LayerNorm
from tracer.nn.modules.normalization import RMSNorm as RMSNorm
from tracer.nn.modules.regularization import Dropout as Dropout
from tracer.nn.modules.shape import Flatten as Flatten
from tracer.nn.modules.shape import Identity as Identity
from tracer.nn.modules.shape import Unflatten as Unflatten
from tracer.nn.modules.sparse import Embedding as Embedding
from tracer.tensors.parameter import Parameter as Parameter

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__, __all__ = _lazily(__name__, {}, modules=("functional", "init"))
