"""Two ways of running graphs without compiling anything, which give the bits that compiled programs must give.

`exact_values` goes node by node: kernel text is read as NumPy, sums are taken in the order of the
numerics contract, matrix products as chains of multiply-adds. It knows nothing of fusion and memory.
`PlainProgram` is a lowered program whose kernels are run un-jitted, on buffers that are exactly as
large as they should be, in pieces of random size in random order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from codegen.cpu import compile as kernels
from codegen.runtime import AddressOf, Slot
from codegen.spec.kernel_spec import KernelSpec, Schedule
from codegen.vector import DTYPE, LANE_ELEMENT, NAMES, Lanes
from codegen.vector.intrinsics import Buffer as Pointer
from ops.compute import Contraction, Scalar
from ops.operator import run_reference
from ops.types import dtype_name, numpy_dtype
from tests.support import execute_gemm as execute
from tests.support.accuracy import difference_in_ulp
from tests.support.plain_gemm import Memory, plain
from tests.support.products import product_by_rule, within_rounding
from tracer.ir.graph import Graph, Node, Value
from tracer.lowering.assemble import Lowering
from tracer.lowering.layout import Buffer, Layout
from tracer.lowering.libraries import LibraryCall
from tracer.lowering.program import Planned
from tracer.passes import run as run_passes

Array = np.ndarray[Any, Any]


def same_bits(found: Array, expected: Array) -> bool:
    """Equal types, shapes and bits; any NaN equals any NaN."""
    return difference_in_ulp(np.asarray(found), np.asarray(expected)) == 0


# ---- node by node --------------------------------------------------------------------------------
class _Wide(Lanes):
    """Lanes as many as a value has elements, so that a text is read once for all."""

    __slots__ = ()

    def apply(self, primitive: Any, element: str, operands: Sequence[Any]) -> _Wide:
        from codegen.vector.readings import scalar

        values = [
            x.array if isinstance(x, Lanes) else scalar(primitive.operand_element(k, element), x)
            for k, x in enumerate(operands)
        ]
        with np.errstate(all="ignore"):
            return _Wide(np.broadcast_to(primitive.meaning(*values), self.array.shape))

    def rarely(
        self, body: Any, operands: Sequence[Any], otherwise: Sequence[Any]
    ) -> tuple[Any, ...]:
        if not self.array.any():
            return tuple(otherwise)
        pairs = zip(body(*operands), otherwise, strict=True)
        return tuple(_Wide(np.where(self.array, x.array, y.array)) for x, y in pairs)


def _lanes(array: Array, shape: tuple[int, ...]) -> _Wide:
    element = LANE_ELEMENT[dtype_name(array.dtype)]
    return _Wide(np.broadcast_to(array, shape).astype(DTYPE[element]).reshape(-1))


def _scalar(node: Node, arrays: Sequence[Array]) -> Array:
    compute, out = node.op.compute, node.output.type
    assert isinstance(compute, Scalar)
    shape: tuple[int, ...] = tuple(map(int, out.shape))
    types = [v.type for v in node.inputs]
    text = compute.text if isinstance(compute.text, str) else compute.text(types, out, node.attrs)
    operands = {f"x{k}": _lanes(a, shape) for k, a in enumerate(arrays)}
    positions = dict(zip((f"axis{k}" for k in range(len(shape))), np.indices(shape), strict=True))
    positions["index"] = np.arange(int(out.size)).reshape(shape)
    operands |= {name: _lanes(p.astype(np.int64), shape) for name, p in positions.items()}
    names = [f"x{k}" for k in range(len(arrays))]
    source = text.format(
        *names,
        T=LANE_ELEMENT[(types[0] if types else out).dtype],
        R=LANE_ELEMENT[out.dtype],
        **{name: name for name in positions},
    )
    with np.errstate(all="ignore"):
        found = eval(_code(source), NAMES, operands)
        array = found.array if isinstance(found, Lanes) else np.full(int(out.size), found)
        return np.asarray(array.astype(out.numpy)).reshape(shape)


@cache
def _code(source: str) -> Any:
    return compile(source, "<kernel text>", "eval")


def exact_node(node: Node, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """What a compiled program computes for one node that is no composite, to the bit."""
    if isinstance(node.op.compute, Scalar):
        return (_scalar(node, arrays),)
    if isinstance(node.op.compute, Contraction):
        return (product_by_rule(*arrays),)
    return run_reference(node.op, list(arrays), node.attrs)


def exact_values(graph: Graph, arrays: Sequence[Any], check: bool = True) -> dict[Value, Array]:
    """Every value of a graph without composites. `check`: each against its operator's reference."""
    known: dict[Value, Array] = {
        v: np.asarray(a, v.type.numpy) for v, a in zip(graph.inputs, arrays, strict=True)
    }
    for node in graph.nodes:
        operands = [known[v] for v in node.inputs]
        results = exact_node(node, operands)
        if check:
            _near_reference(node, operands, results)
        known.update(zip(node.outputs, results, strict=True))
    return known


def _near_reference(node: Node, operands: list[Array], results: Sequence[Array]) -> None:
    """A node's exact results are within its declared error of the independent reference."""
    expected = run_reference(node.op, operands, node.attrs)
    for found, wanted in zip(results, expected, strict=True):
        assert found.shape == wanted.shape and found.dtype == wanted.dtype, node
        if isinstance(node.op.compute, Contraction):
            assert within_rounding(found, wanted, *operands), (node, operands, found, wanted)
            continue
        off = difference_in_ulp(found, wanted)
        if node.op.name == "LogAddExp":  # near 0 the error is relative to the operands
            off = min(off, _relative_to_operands(found, wanted, operands))
        assert off <= node.op.ulp, (node, node.attrs, operands, found, wanted, off)


def _relative_to_operands(found: Array, wanted: Array, operands: list[Array]) -> float:
    """The largest difference in units in the last place of the largest operand."""
    with np.errstate(all="ignore"):
        unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
        sizes = [np.abs(a.astype(np.float64)) for a in (wanted, *operands)]
        size = np.maximum(sizes[0], np.maximum(sizes[1], sizes[2]))
        off = np.abs(found.astype(np.float64) - wanted.astype(np.float64)) / size
        off = np.where((found == wanted) | ((found != found) & (wanted != wanted)), 0, off)
        return float((off / unit[dtype_name(found.dtype)]).max(initial=0))


# ---- a lowered program, un-jitted ----------------------------------------------------------------
@cache
def _function(key: str, spec: KernelSpec, schedule: Schedule) -> Any:
    return kernels.unjitted(spec, schedule)


class PlainLowering(Lowering):
    """A lowering that compiles nothing."""

    def _compile(self) -> Any:
        return None


class PlainProgram:
    """A graph lowered and run un-jitted. Called like an Executable, with arrays; updated ones are written in place."""

    def __init__(
        self, graph: Graph, updates: Mapping[int, int] | None = None, seed: int = 0
    ) -> None:
        self.updates = dict(updates or {})
        self.graph = run_passes(graph)
        self.lowering = PlainLowering(self.graph, self.updates)
        self.random = random.Random(seed)

    def __call__(self, arrays: Sequence[Any]) -> list[Array]:
        low = self.lowering
        self.inputs = [
            np.array([a], np.float64) if v.type.weak else a
            for v, a in zip(self.graph.inputs, arrays, strict=True)
        ]
        for v, a in zip(self.graph.inputs, self.inputs, strict=True):
            assert v.type.weak or (a.flags.c_contiguous and a.dtype == v.type.numpy), v.type
        self.outputs = {
            number: _garbage(buffer.nbytes)
            for number, buffer in enumerate(low.places.output_buffers)
            if buffer is not None
        }
        self.work = _garbage(low.workspace)
        self.constants = low.memory.constants.copy()
        for planned in low.planned:
            self._run(planned)
        assert np.array_equal(self.constants, low.memory.constants), "a constant was written"
        results = []
        for number, v in enumerate(self.graph.outputs):
            if number in self.updates:
                results.append(arrays[self.updates[number]])
            elif number in self.outputs:
                raw = self.outputs[number][: int(v.type.size) * v.type.itemsize]
                results.append(raw.view(v.type.numpy).reshape(v.type.shape))  # type: ignore[arg-type]
            else:
                results.append(np.asarray(arrays[self.graph.inputs.index(v)], v.type.numpy))
        return results

    def _memory(self, buffer: Buffer) -> Array:
        """A buffer's elements, flat, and nothing beside them."""
        dtype = np.dtype(np.float64) if buffer.type.weak else buffer.type.numpy
        if buffer.kind == "input":
            return self.inputs[buffer.number].reshape(-1)
        if buffer.kind == "output":
            return self.outputs[buffer.number][: buffer.nbytes].view(dtype)
        raw = self.work if buffer.kind == "work" else self.constants
        assert buffer.place + buffer.nbytes <= raw.nbytes
        return raw[buffer.place : buffer.place + buffer.nbytes].view(dtype)

    def _run(self, planned: Planned) -> None:
        if planned.bound is not None:
            bound = planned.bound
            pointers = {
                # a kernel that only moves elements sees them as unsigned integers of their size
                o.name: Pointer(self._memory(buffer).view(numpy_dtype(o.dtype)), offset)
                for o, (buffer, offset) in zip(bound.spec.operands, bound.operands, strict=True)
            }
            block = kernels.argument_block(bound.spec, pointers, bound.sizes, bound.strides)
            function = _function(repr((bound.spec, bound.schedule)), bound.spec, bound.schedule)
            count = kernels.count(bound.spec, bound.schedule, bound.sizes)
            for lo, hi in self._pieces(count, bound.schedule.mode):
                function(lo, hi, block)
        elif planned.host is not None:
            self._host(planned.host)
        else:
            assert planned.library is not None
            self._matmul(planned.library)

    def _pieces(self, count: int, mode: str) -> list[tuple[int, int]]:
        """[0, count) cut in one of the ways that the driver may, in any order."""
        step = 16 if mode == "flat" else 1
        chunk = step * self.random.choice((1, 2, 1 << 20))
        pieces = [(lo, min(count, lo + chunk)) for lo in range(0, count, chunk)]
        self.random.shuffle(pieces)
        return pieces

    def _matmul(self, call: LibraryCall) -> None:
        plan, layouts, work = call.plan, call.operands, call.workspace
        arrays = {name: self._memory(layout.buffer) for name, layout in layouts.items()}
        places = {
            name: a.ctypes.data + layouts[name].strided.offset * a.itemsize
            for name, a in arrays.items()
        }
        arrays["workspace"] = self.work[work.place : work.place + plan.workspace]
        places["workspace"] = arrays["workspace"].ctypes.data
        memory = Memory(*(a for a in arrays.values() if a.size))
        execute.run(plan, places, lambda which: plain(which, memory))

    def _host(self, host: tuple[Node, list[Layout], list[Layout]]) -> None:
        low = self.lowering
        words: list[Any] = [a.ctypes.data for a in self.inputs]
        words += [self.outputs[number].ctypes.data for number in low.output_slots]
        words.append(self.work.ctypes.data)
        low.memory.host_function(*host)(*words)


def _garbage(nbytes: int) -> Array:
    """Aligned memory that holds what nobody wants to read."""
    raw = np.full(nbytes + 64, 0xA7, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


__all__ = ["AddressOf", "PlainProgram", "Slot", "exact_node", "exact_values", "same_bits"]
