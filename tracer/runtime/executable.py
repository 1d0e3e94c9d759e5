"""A graph made ready to run: lowered to a program, called with Tensors.

A call writes one word for each input, output and the workspace and runs the program. Inputs that are not row-major are copied
first; results are new blocks of memory from the pool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ops.errors import ArgumentError
from ops.types import Type, short
from tracer.ir.graph import Graph, Value
from tracer.runtime.operand_overlap import Sharing
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor, intern, is_plain

if TYPE_CHECKING:
    from codegen.targets.target import Target

_LOG = logging.getLogger("tracer.fusion")


class Result(NamedTuple):
    """Where a result lies: in memory of its own ("new", and which), or in that of the input with the number, which it is
    ("input") or which it is written to ("update")."""

    kind: str
    number: int
    type: Type


class Executable:
    """A compiled graph. `updates`: output number -> input number whose memory receives it. `shared`: numbers of outputs that
    may share the memory of an input which they are; the others are the caller's own. `tested`: indices are tested first.
    `read_before`: numbers of inputs that programs before this one have read, so that it must not have changed them meanwhile.
    `target`: where it runs, here unless given."""

    def __init__(
        self,
        graph: Graph,
        updates: Mapping[int, int],
        shared: Container[int] = (),
        tested: bool = True,
        read_before: Collection[int] = (),
        target: Target | None = None,
    ) -> None:
        from tracer import passes
        from tracer.lowering.assemble import Lowering
        from tracer.lowering.checks import IndexCheck, index_tests

        start = time.perf_counter()
        self.graph = graph
        # in anomaly mode it is examined; programs that are part of another are examined with that
        self.examined = tested
        self.forward: Graph | None = None  # of a program of gradients: what they are gradients of
        self._anomalies: Any = None
        self.updates = dict(updates)
        self._shared, self._read_before = shared, frozenset(read_before)
        simple = passes.run(graph)
        tests = index_tests(simple) if tested else None
        self.check = tests and IndexCheck(
            Executable(tests[0], {}, tested=False, target=target), tests[1]
        )
        self.lowering = Lowering(simple, self.updates, shared, target)
        self._allocate = self.lowering.target.allocate
        self.program = self.lowering.program
        self.compile_seconds = time.perf_counter() - start
        if _LOG.isEnabledFor(logging.INFO):
            _LOG.info("%s: %s", graph.name or "a graph", self.plan())
        self.call = self.program.call
        self._inputs = [(intern(v.type.strong()), v.type.weak) for v in graph.inputs]
        number_of: dict[Value, int] = {v: k for k, v in enumerate(graph.inputs)}
        self.results: list[Result] = []
        for number, v in enumerate(simple.outputs):
            type_ = intern(v.type.strong())
            if number in self.updates:
                self.results.append(Result("update", self.updates[number], type_))
            elif number in self.lowering.output_slots:
                self.results.append(Result("new", self.lowering.output_slots[number], type_))
            else:
                self.results.append(Result("input", number_of[v], type_))
        self._names = graph.input_names
        used = {v for node in simple.nodes for v in node.inputs} | set(simple.outputs)
        self.unread = frozenset(
            k
            for k, v in enumerate(simple.inputs)
            if v not in used and k not in self.updates.values()
        )
        sizes = [
            0 if k in self.unread and k not in read_before else int(t.size) * t.itemsize
            for k, (t, _) in enumerate(self._inputs)
        ]
        self.sharing = Sharing(sizes, self._names, self.updates.values())
        self._new = [(t, int(t.size) * t.itemsize) for kind, _, t in self.results if kind == "new"]
        self.workspace = self.lowering.workspace

    def __call__(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Outputs as Tensors; those with an update are written to their input.

        Raises `BoundsError` for an index that is out of range and `ArgumentError` for memory that cannot be written, before
        anything is.
        """
        if self.check is not None:
            self.check(inputs)
        if MODES.anomaly is not None and self.examined:
            self._anomalies = look_for_anomalies(self._anomalies, self.graph, inputs, self.forward)
        words: list[Any] = []
        keep: list[Any] = []
        copied: list[tuple[int, Any, Tensor]] = []
        for k, (x, (type_, weak)) in enumerate(zip(inputs, self._inputs, strict=True)):
            if weak or (k in self.unread and k not in self._read_before):
                words.append(float(x) if weak else 0)
                continue
            tensor = x if isinstance(x, Tensor) else Tensor.of_array(x)
            array = tensor._array
            if array is not None:
                if k in self.sharing.written and not array.flags.writeable:
                    raise ArgumentError(
                        f"{self._names[k] or f'operand {k}'} is changed in place, and its array is read-only; pass a copy of it"
                    )
                if not is_plain(array):
                    plain = Tensor.of_array(np.array(array, type_.numpy, order="C"))
                    copied.append((k, tensor, plain))
                    tensor = plain
            if tensor.type.dtype != type_.dtype or tensor.type.shape != type_.shape:
                raise AssertionError(
                    f"input {k}: expected {short(type_)}, got {short(tensor.type)}"
                )
            keep.append(tensor)
            words.append(tensor._pointer or tensor.pointer)
        if self.sharing.written:
            self._refuse_sharing(words, copied)
        allocate = self._allocate
        blocks = [allocate(size) for _, size in self._new]
        words += [b.pointer for b in blocks]
        workspace = allocate(self.workspace) if self.workspace else None
        words.append(workspace.pointer if workspace is not None else 0)
        self.call(*words)
        for k, original, plain in copied:
            if k in self.sharing.written:
                original._array[...] = plain._array
        fresh = iter(zip(blocks, self._new, strict=True))
        results: list[Tensor] = []
        for kind, number, _ in self.results:
            if kind == "new":
                block, (type_, _) = next(fresh)
                results.append(Tensor.of_block(block, type_))
            else:
                source = inputs[number]
                tensor = (
                    source if isinstance(source, Tensor) else Tensor.of_array(np.asarray(source))
                )
                results.append(tensor if kind == "update" else tensor.detach())
        return results

    def _refuse_sharing(
        self, words: Sequence[Any], copied: Sequence[tuple[int, Tensor, Tensor]]
    ) -> None:
        operands: list[Any] = [
            None if weak else word for word, (_, weak) in zip(words, self._inputs, strict=True)
        ]
        for k, original, _ in copied:
            operands[k] = original._array
        self.sharing.check(operands)

    def borrowed(self, numbers: Iterable[int]) -> list[int]:
        """The inputs whose memory outputs of these numbers share."""
        return [self.results[k].number for k in numbers if self.results[k].kind == "input"]

    def kernels(self, target: Target | None = None) -> Kernels:
        """The generated kernels; with a target, those of this graph there."""
        lowering = self.lowering
        if target is not None:
            lowering = type(lowering)(lowering.graph, self.updates, self._shared, target)
        return Kernels([p.text for p in lowering.planned if p.text])

    def plan(self) -> Any:
        """The plan as data."""
        from tracer.lowering.report import report

        kept = sum(
            int(type_.size) * type_.itemsize
            for number, (kind, _, type_) in enumerate(self.results)
            if kind == "new" and number in self._shared
        )
        return replace(report(self.lowering), residuals=kept)


def look_for_anomalies(
    known: Any, graph: Graph, inputs: Sequence[Any], forward: Graph | None = None
) -> Any:
    """Raise `AnomalyError` for the first value of a graph that is not finite; what has been made for that, for the next call."""
    assert MODES.anomaly is not None
    checks = MODES.anomaly.of_graph(graph, forward) if known is None else known
    checks(inputs)
    return checks


class Kernels(list[str]):
    """Texts of kernels; `print` shows them all."""

    def __str__(self) -> str:
        return "\n".join(self)
