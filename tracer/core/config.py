"""Switches from the environment, read once."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass


@dataclass(slots=True)
class Config:
    """`jit`: TRACER_JIT=0 runs traced functions eagerly. `check`: TRACER_CHECK=1 verifies graphs after every pass.
    `compile`: TRACER_KERNELS=python lets programs run their kernels' text as Python (`codegen.cpu.python_kernel`)."""

    jit: bool = True
    check: bool = False
    compile: bool = True
    fast: bool = True


CONFIG = Config(
    jit=os.environ.get("TRACER_JIT", "1") != "0",
    check=os.environ.get("TRACER_CHECK", "0") == "1",
    compile=os.environ.get("TRACER_KERNELS", "") != "python",
)


def configure_logging() -> None:
    """TRACER_LOG=retrace,fusion,cache prints those loggers' messages."""
    names = [n.strip() for n in os.environ.get("TRACER_LOG", "").split(",") if n.strip()]
    for name in names:
        logger = logging.getLogger(f"tracer.{name}")
        logger.setLevel(logging.INFO)
        if not logger.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("tracer %(name)s: %(message)s"))
            logger.addHandler(handler)
