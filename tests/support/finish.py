"""The kernels that finish a fold whose partial results lie in memory: specifications like any
other, made here.

A fold over the rows (mode "columns") leaves one row of states for each lane of each chunk of 4096
rows, a fold in mode "split" one state for each row and chunk. Finishing combines them in the
contract's order and applies the folding's last text. Where more is to be done with the results,
write a `Combine` into that kernel instead: it needs no kernel of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from codegen.spec.analysis import lane_element
from codegen.spec.kernel_spec import (
    Axis,
    Combine,
    Folding,
    KernelSpec,
    Operand,
    Schedule,
    Stage,
    Store,
)
from codegen.vector import DTYPE

FINISH_SCHEDULE = Schedule(mode="flat", tail="masked")


def finish_spec(
    folding: Folding, mode: Literal["columns", "split"], dtypes: Sequence[str], name: str = "finish"
) -> KernelSpec:
    """One position for each result: the inner axis of a "columns" kernel, the rows of a "split"
    one.

    Operands: `partial_<state>` for each state, `out0`, `out1` ... of `dtypes`, all contiguous.
    Axes: `r`, the positions, and `k`, the size of the axis that was folded. So the argument block
    is the partials' pointers, the results' pointers, the number of positions, the folded size. To
    be run with FINISH_SCHEDULE.
    """
    partials = tuple(
        Operand(
            f"partial_{state}", DTYPE[lane_element(dtype)].__name__.rstrip("_"), (1,), "partial"
        )
        for state, dtype in folding.state
    )
    outs = tuple(Operand(f"out{i}", dtype, (1,), "out") for i, dtype in enumerate(dtypes))
    values = tuple(f"v{i}" for i in range(len(outs)))
    combine = Combine(values, tuple(dtypes), folding, tuple(o.name for o in partials), mode, "k")
    stores = tuple(Store(o.name, ("r",), v) for o, v in zip(outs, values, strict=True))
    axes = (Axis("r", "inner"), Axis("k", "reduced"))
    return KernelSpec(name, axes, partials + outs, (Stage(("r",), (combine, *stores)),))
