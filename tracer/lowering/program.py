"""Parts of a plan become rows of a program: places of temporaries and constants, argument blocks, compiled kernels.

Graph inputs and outputs and the workspace have slots of the program; constants are memory that lives as long as the lowering.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from codegen.errors import FunctionError
from codegen.runtime import AddressOf, HostCall, Slot
from codegen.runtime.library import WORKSPACE
from codegen.spec.argument_block import argument_block
from codegen.targets.target import Target
from ops.compute import Host
from ops.errors import ArgumentError, TracerError
from ops.operator import run_reference
from tracer.ir.graph import Graph, Node
from tracer.lowering.layout import Buffer, Layout
from tracer.lowering.libraries import LibraryCall
from tracer.lowering.memory_plan import plan_memory
from tracer.lowering.placement import Placement
from tracer.lowering.specify import Bound


@dataclass(slots=True)
class Planned:
    """One part of a plan: what it runs, reads and writes. `kind` says which of `bound` (a kernel of ours), `library` and `host`
    (a node, where its operands and its results lie) there is."""

    kind: Literal["kernel", "library", "host"]
    name: str
    nodes: list[Node]
    reads: list[Buffer]
    writes: list[Buffer]
    bound: Bound | None = None
    library: LibraryCall | None = None
    host: tuple[Node, list[Layout], list[Layout]] | None = None
    text: str = ""


class ProgramBuilder:
    """Where a planned program's buffers are when it runs, and its rows there. `workspace`: its bytes; `constants`: the memory
    that holds them; `output_slots` by output number."""

    def __init__(
        self, graph: Graph, places: Placement, planned: Sequence[Planned], target: Target
    ) -> None:
        self._target = target
        lives: dict[int, tuple[Buffer, int, int]] = {}
        for row, part in enumerate(planned):
            for buffer in (*part.reads, *part.writes):
                if buffer.kind == "work":
                    first = lives[id(buffer)][1] if id(buffer) in lives else row
                    lives[id(buffer)] = (buffer, first, row)
        self.workspace = plan_memory(list(lives.values()))
        self.constants = _pack(places.constants)
        self._constants_at, self._resident = target.resident(self.constants)
        self.output_slots: dict[int, int] = {}
        slot = len(graph.inputs)
        for number, output in enumerate(places.output_buffers):
            if output is not None:
                self.output_slots[number] = slot
                slot += 1
        self.workspace_slot = slot

    def pointer(self, buffer: Buffer, offset: int = 0) -> Any:
        """What an argument block holds for an element of a buffer."""
        bytes_ = offset * buffer.type.itemsize
        if buffer.kind == "input":
            if buffer.type.weak:
                return AddressOf(buffer.number)
            return Slot(buffer.number, bytes_)
        if buffer.kind == "output":
            return Slot(self.output_slots[buffer.number], bytes_)
        if buffer.kind == "work":
            return Slot(self.workspace_slot, buffer.place + bytes_)
        return self._constants_at + buffer.place + bytes_

    def rows(self, planned: Planned) -> list[Any]:
        """The rows of a part, its kernels compiled or loaded."""
        if planned.bound is not None:
            bound = planned.bound
            try:
                kernel = self._target.kernel(bound.spec, bound.schedule, bound.notes)
            except FunctionError as error:
                raise ArgumentError(f"{error}{_used_at(planned.nodes)}") from None
            planned.text = kernel.text
            block = argument_block(
                bound.spec,
                {
                    o.name: self.pointer(*b)
                    for o, b in zip(bound.spec.operands, bound.operands, strict=True)
                },
                bound.sizes,
                bound.strides,
            )
            return [self._target.row(kernel, bound.spec, bound.schedule, bound.sizes, block)]
        if planned.host is not None:
            return [HostCall(self.host_function(*planned.host), planned.name)]
        call = planned.library
        assert call is not None
        operands = {
            name: self.pointer(x.buffer, x.strided.offset) for name, x in call.operands.items()
        }
        operands[WORKSPACE] = self.pointer(call.workspace)
        return self._target.library_rows(call.plan, operands)

    def host_function(self, node: Node, layouts: Sequence[Layout], outs: Sequence[Layout]) -> Any:
        """The reference of a declared host call, as a function of the call's words."""
        sources = [(self.pointer(x.buffer, x.strided.offset), x) for x in layouts]
        targets = [(self.pointer(y.buffer, y.strided.offset), y) for y in outs]

        def resolve(pointer: Any, words: Sequence[Any]) -> int:
            return (
                int(words[pointer.index]) + pointer.offset
                if isinstance(pointer, Slot)
                else int(pointer)
            )

        compute = node.op.compute
        counted = isinstance(compute, Host) and compute.count is not None

        def call(*words: Any) -> None:
            arrays = [
                np.asarray(words[p.slot])
                if isinstance(p, AddressOf)
                else _array_at(resolve(p, words), x)
                for p, x in sources
            ]
            try:
                results = run_reference(node.op, arrays, node.attrs)
            except TracerError:
                if not counted:
                    raise
                # Refused by a test (see `tracer.lowering.checks`), or this is what tests are computed from.
                results = tuple(np.zeros((), y.buffer.type.numpy) for _, y in targets)
            for (p, y), array in zip(targets, results, strict=True):
                _array_at(resolve(p, words), y)[...] = array

        return call


def _used_at(nodes: Sequence[Node]) -> str:
    """Where the user's functions are called, for a message."""
    lines = dict.fromkeys(n.source for n in nodes if n.op.calls_user and n.source)
    return f"\n  used at {', '.join(lines)}" if lines else ""


def _array_at(address: int, layout: Layout) -> np.ndarray[Any, Any]:
    """The elements at an address as an array."""
    dtype = layout.buffer.type.numpy
    shape, strides = layout.strided.shape, layout.strided.strides
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum(min(0, s * (d - 1)) for d, s in zip(shape, strides, strict=True))
    high = sum(max(0, s * (d - 1)) for d, s in zip(shape, strides, strict=True)) + 1
    memory: Any = (ctypes.c_char * ((high - low) * dtype.itemsize)).from_address(
        address + low * dtype.itemsize
    )
    return np.ndarray(
        shape, dtype, memory, -low * dtype.itemsize, tuple(s * dtype.itemsize for s in strides)
    )


def _pack(constants: Sequence[Buffer]) -> np.ndarray[Any, Any]:
    """All constants in one array of bytes, `place` set; aligned to 64."""
    size = 64
    for buffer in constants:
        buffer.place = size
        size += -(-max(buffer.data.nbytes, 1) // 64) * 64
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    memory = raw[start : start + size]
    for buffer in constants:
        memory[buffer.place : buffer.place + buffer.data.nbytes] = np.frombuffer(
            buffer.data.tobytes(), np.uint8
        )
    return memory
