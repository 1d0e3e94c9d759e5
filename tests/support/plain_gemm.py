"""The parts of matrix multiplication in NumPy: what they mean, for tests and the debugger. Nothing
is compiled.

Works on the same argument blocks and addresses as the compiled parts, and reads and writes nothing
outside the memory that it was told of. `scratch` is full of ones, which are NaN, so that what was
never written is noticed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from codegen.gemm import argument_block, text
from codegen.gemm.planner import GemmKernel
from codegen.vector.elements import DTYPE, WIDTH
from codegen.vector.exact import exact_fma

Array = npt.NDArray[Any]

_MEMORY: dict[str, Any] = DTYPE | {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


class Memory:
    """The address ranges that may be touched."""

    def __init__(self, *arrays: Array) -> None:
        self._ranges = [np.lib.array_utils.byte_bounds(array) for array in arrays]
        self._scratch = np.empty(argument_block.SCRATCH + 64, np.uint8)
        self._ranges.append(np.lib.array_utils.byte_bounds(self._scratch))

    def scratch(self) -> int:
        """The stack of a task."""
        self._scratch[:] = 255
        return -(-self._scratch.ctypes.data // 64) * 64

    def view(
        self, address: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Array:
        """Memory as an array; raises IndexError where part of it was not told of."""
        dtype = np.dtype(dtype)
        if 0 in shape:
            return np.empty(shape, dtype)
        spans = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
        low = address + sum(min(span, 0) for span in spans)
        high = address + sum(max(span, 0) for span in spans) + dtype.itemsize
        if not any(start <= low and high <= end for start, end in self._ranges):
            raise IndexError(f"{low:#x} to {high:#x} belongs to no operand")
        buffer = (ctypes.c_char * (high - low)).from_address(low)
        return np.ndarray(shape, dtype, buffer, address - low, strides)


def plain(which: GemmKernel, memory: Memory) -> Callable[[int, int, int], object]:
    """The kernel as a Python function."""
    element, tile = which.element, which.tile
    stored, lane = _MEMORY[element.memory], DTYPE[element.lane]
    size, view = element.lane_size, memory.view

    def lanes(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        return view(address, stored, shape, strides).astype(lane)

    def add_product(x: Array, y: Array, total: Array) -> Array:
        if element.arithmetic == "fma":
            return np.asarray(exact_fma(x, y, total), lane)
        return total + x * y if element.arithmetic == "ring" else total | (x & y)

    def add(x: Array, y: Array) -> Array:
        return x | y if element.arithmetic == "boolean" else x + y

    def chains(a: Array, b: Array) -> Array:
        """Chains over k: a is (rows, k), b is (k, columns)."""
        total = np.zeros((a.shape[0], b.shape[1]), lane)
        for k in range(a.shape[1]):
            total = add_product(a[:, k, None], b[k], total)
        return total

    def add_total(total: Array, target: Array, first: bool) -> None:
        target[...] = total if first else add(target, total)

    def pack(width: int) -> Callable[..., None]:
        def part(
            source: int, outer_stride: int, k_stride: int, outer: int, k: int, target: int
        ) -> None:
            to = view(target, lane, (k, outer), (width * size, size))
            to[...] = lanes(source, (k, outer), (k_stride, outer_stride))

        return part

    def multiply(
        k: int,
        a: int,
        row: int,
        a_step: int,
        b: int,
        b_step: int,
        columns: int,
        tile_: int,
        first: bool,
    ) -> None:
        wide = tile.columns if columns > WIDTH else WIDTH
        left = view(a, lane, (tile.rows, k), (row, a_step))
        right = view(b, lane, (k, wide), (b_step, size))
        to = view(tile_, lane, (tile.rows, wide), (tile.columns * size, size))
        add_total(chains(left, right), to, first)

    def multiply_row(
        k: int,
        a: int,
        a_step: int,
        b: int,
        row: int,
        column: int,
        columns: int,
        sums: int,
        totals: int,
        first: bool,
    ) -> None:
        total = chains(lanes(a, (1, k), (0, a_step)), lanes(b, (k, columns), (row, column)))
        add_total(total[0], view(totals, lane, (columns,), (size,)), first)

    def finish(sums: int, c: int, stride: int, rows: int, columns: int, accumulate: int) -> None:
        shape = (rows, columns)
        total = view(sums, lane, shape, (tile.columns * size, size)).astype(stored)
        to = view(c, stored, shape, (stride, element.memory_size))
        to[...] = add(to, total) if accumulate else total

    parts = {
        "ROWS": tile.rows,
        "PITCH": tile.pitch,
        "COLUMNS": tile.columns,
        "MEMORY": element.memory_size,
        "LANE": size,
        "word": lambda args, index: int(ctypes.c_int64.from_address(args + 8 * index).value),
        "scratch": memory.scratch,
        "pack_rows": pack(tile.pitch),
        "pack_columns": pack(tile.columns),
        "multiply": multiply,
        "multiply_row": multiply_row,
        "finish": finish,
    }
    function = text.reading(which.form, parts)

    def kernel(lo: int, hi: int, args: int) -> None:
        with np.errstate(all="ignore"):
            function(lo, hi, args)

    return kernel
