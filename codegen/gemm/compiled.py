"""The kernel text compiled: its loops and its parts are one module of LLVM IR. Numba has no part in
it.

The first kernel of an element type takes 0.2 s; through Numba, which would infer the types of loops
that hold nothing but 64-bit words, it takes 0.9.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from codegen.cpu_features import cpu
from codegen.gemm import argument_block, text
from codegen.toolchain import kernel_store
from codegen.toolchain.object_code import ENTRY, KERNEL_SYMBOLS

if TYPE_CHECKING:
    from codegen.gemm.planner import GemmKernel

_FOLDER = Path(__file__).parent


def kernel(which: GemmKernel) -> kernel_store.Kernel:
    """The kernel that a row of a plan calls, compiled or from the cache."""
    name = f"matmul_{which.form}_{which.element.memory}"
    key = f"gemm|{which}|{_sources(_FOLDER, _FOLDER.parent / 'vector')}"
    made = kernel_store.function(key, name, lambda: emit(which), KERNEL_SYMBOLS)
    return replace(made, text=inspect.getsource(text))


@cache
def _sources(*folders: Path) -> str:
    """What object code on disk depends on beside the runtime's own files, or it would outlive a new version of these."""
    digest = hashlib.sha256()
    for path in sorted(p for folder in folders for p in folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def emit(which: GemmKernel) -> str:
    """The LLVM text of a kernel."""
    from llvmlite import ir

    from codegen.gemm.emit_finish import emit_finish
    from codegen.gemm.emit_multiply import emit_multiply
    from codegen.gemm.emit_pack import emit_pack
    from codegen.gemm.emit_row import emit_multiply_row
    from codegen.runtime.int64_compiler import WORD, Primitive, emit_module

    element, tile = which.element, which.tile

    def word(b, args, index):  # type: ignore[no-untyped-def]
        return b.load(b.gep(b.inttoptr(args, WORD.as_pointer()), [index]))

    def scratch(b):  # type: ignore[no-untyped-def]
        with b.goto_entry_block():
            room = b.alloca(ir.IntType(8), size=WORD(argument_block.SCRATCH))
        room.align = 64
        return b.ptrtoint(room, WORD)

    parts = {
        "ROWS": tile.rows,
        "PITCH": tile.pitch,
        "COLUMNS": tile.columns,
        "MEMORY": element.memory_size,
        "LANE": element.lane_size,
        "word": Primitive(word),
        "scratch": Primitive(scratch),
        "pack_rows": Primitive(lambda b, *v: emit_pack(b, element, tile.pitch, v)),
        "pack_columns": Primitive(lambda b, *v: emit_pack(b, element, tile.columns, v)),
        "multiply": Primitive(lambda b, *v: emit_multiply(b, element, tile, v)),
        "multiply_row": Primitive(lambda b, *v: emit_multiply_row(b, element, v)),
        "finish": Primitive(lambda b, *v: emit_finish(b, element, tile, v)),
    }
    module = emit_module(text.reading(which.form, parts), ENTRY)
    name, features = cpu()
    target = f'"target-cpu"="{name}" "target-features"="{features}"'
    # The loops are optimised for size: copies of them cost compile time and gain nothing.
    module = re.sub(r"(?m)^(define (?!internal).*|define .*alwaysinline.*)$", r"\1 optsize", module)
    return re.sub(r"(?m)^(define .*)$", rf"\1 {target}", module)
