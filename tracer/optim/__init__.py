"""Optimisers and schedules of their learning rates, under PyTorch's names.

Knows Parameters and functions. Must not know modules, traces or files.
"""

from __future__ import annotations

import typing as _typing

from tracer.core.lazy_imports import lazily as _lazily
from tracer.optim.adam import Adam as Adam
from tracer.optim.adam import AdamW as AdamW
from tracer.optim.optimizer import Optimizer as Optimizer
from tracer.optim.schedulers import CosineAnnealingLR as CosineAnnealingLR
from tracer.optim.schedulers import LambdaLR as LambdaLR
from tracer.optim.schedulers import LRScheduler as LRScheduler
from tracer.optim.schedulers import StepLR as StepLR
from tracer.optim.sgd import SGD as SGD

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__, __all__ = _lazily(__name__, {})
