"""The workloads: what is computed, and how it is written for each peer."""

from __future__ import annotations

from . import calls, elementwise, rows, training
from .workload import Workload

WORKLOADS: tuple[Workload, ...] = (
    *elementwise.WORKLOADS,
    *rows.WORKLOADS,
    *training.WORKLOADS,
    *calls.WORKLOADS,
)

__all__ = ["WORKLOADS", "Workload"]
