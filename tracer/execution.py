"""A graph made ready to run: lowered to a program and called with Tensors."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracer.dispatch import run_reference
from tracer.graph import Graph
from tracer.tensor import Tensor, intern


class Executable:
    """A compiled graph. `updates`: output number -> input number whose memory receives it."""

    def __init__(self, graph: Graph, updates: Mapping[int, int]) -> None:
        start = time.perf_counter()
        self.graph = graph
        self.updates = dict(updates)
        self.compile_seconds = time.perf_counter() - start

    def __call__(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Outputs as Tensors; those with an update are written to their input."""
        arrays = {
            v: (x._data() if isinstance(x, Tensor) else np.asarray(x))
            for v, x in zip(self.graph.inputs, inputs, strict=True)
        }
        for node in self.graph.nodes:
            results = run_reference(node.op, [arrays[v] for v in node.inputs], node.attrs)
            arrays.update(zip(node.outputs, results, strict=True))
        outputs = [arrays[v] for v in self.graph.outputs]
        number_of = {v: k for k, v in enumerate(self.graph.inputs)}
        results = []
        new = {k: np.array(outputs[k]) for k in self.updates}
        for k, (array, value) in enumerate(zip(outputs, self.graph.outputs, strict=True)):
            if k in self.updates:
                target = inputs[self.updates[k]]
                (target._data() if isinstance(target, Tensor) else target)[...] = new[k]
                results.append(target)
            elif value in number_of and isinstance(inputs[number_of[value]], Tensor):
                results.append(inputs[number_of[value]])
            else:
                results.append(Tensor.of_array(array, intern(value.type.strong())))
        return results
