"""What running a compiled specification takes: how far the driver counts, how large partial results
are, and the words of its argument block. Knows specifications; no printer, no compiler, no arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from codegen.errors import SpecError
from codegen.spec.kernel_spec import CHUNK, WIDTH, KernelSpec, Schedule

Pointer = TypeVar("Pointer")


def argument_block(
    spec: KernelSpec,
    pointers: Mapping[str, Pointer],
    sizes: Mapping[str, int],
    strides: Mapping[str, Sequence[int]] | None = None,
) -> list[Pointer | int]:
    """The words that a kernel reads: the operands' pointers, the sizes of axes and parts, the
    run-time strides.

    `pointers` by operand, `sizes` by axis or part, `strides` by operand: one for each index
    position, in elements.
    """
    block: list[Pointer | int] = []
    for o in spec.operands:
        if o.name not in pointers:
            raise SpecError(f"kernel {spec.name}: no pointer for operand {o.name}")
        block.append(pointers[o.name])
    block += [int(sizes[name[2:]]) for name in spec.size_names]
    for o in spec.operands:
        if None not in o.strides:
            continue
        given = (strides or {}).get(o.name)
        if given is None:
            raise SpecError(
                f"kernel {spec.name}: operand {o.name} has run-time strides and none were given"
            )
        if len(given) != len(o.strides):
            raise SpecError(
                f"kernel {spec.name}: operand {o.name} has {len(o.strides)} index positions; "
                f"got strides {tuple(given)}"
            )
        block += [int(g) for s, g in zip(o.strides, given, strict=True) if s is None]
    return block


def count(spec: KernelSpec, schedule: Schedule, sizes: Mapping[str, int]) -> int:
    """How many things the driver's range counts: the kernel is to be run on [0, count), in pieces
    of any size.

    In mode "flat" pieces start at multiples of 16.
    """
    rows = _rows(spec, sizes)
    inner = sizes[spec.inner.name] if spec.inner else 1
    match schedule.mode:
        case "rows":
            return rows
        case "flat":
            return inner
        case "split":
            return rows * -(-inner // CHUNK)
        case "columns":
            return -(-rows // CHUNK) * WIDTH
    return -(-inner // schedule.columns) if spec.inner else 1


def partial_size(spec: KernelSpec, schedule: Schedule, sizes: Mapping[str, int]) -> int:
    """Elements of a partial operand: one for each task, times the inner axis for a fold over the
    rows in its loop.
    """
    tasks = count(spec, schedule, sizes)
    return tasks * sizes[spec.inner.name] if schedule.mode == "columns" and spec.inner else tasks


def _rows(spec: KernelSpec, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[axis.name] for axis in spec.rows)
