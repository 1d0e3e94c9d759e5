"""Matrix products in NumPy that do not depend on the machine: the rule whose bits kernels have, and how
far from it the same product may be when its terms are added in another order.

NumPy's own products are those of its BLAS, which adds in the order that suits the CPU it runs on: near
a result of 0, where large terms cancel, two machines' are thousands of units in the last place apart.
So the operator's reference, which is NumPy's product, is compared by the size of the terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.gemm.problem import k_blocks
from codegen.vector.exact import exact_fma
from ops.types import dtype_name

Array = np.ndarray[Any, Any]

# Of half the distance of a number to the next one: relative to the number, and where that has ended.
_ROUNDING = {
    "float16": (2.0**-11, 2.0**-25),
    "bfloat16": (2.0**-8, 2.0**-134),
    "float32": (2.0**-24, 2.0**-150),
    "float64": (2.0**-53, 0.0),  # 2**-1075, which is no number
}
_LARGEST = {"float16": 65504.0, "float64": float(np.finfo(np.float64).max)}
_LARGEST |= dict.fromkeys(("bfloat16", "float32"), float(np.finfo(np.float32).max))


def product_by_rule(x: Array, y: Array) -> Array:
    """The rule: blocks of k, each a chain of multiply-adds from zero, added in order; rounded once at
    the end. Of integers and bools NumPy's own product, which no order changes.
    """
    with np.errstate(all="ignore"):
        if x.dtype.kind in "iub":
            return np.asarray(np.matmul(x, y))
        wide = np.float64 if x.dtype == np.float64 else np.float32
        a, b = x.astype(wide), y.astype(wide)
        k = a.shape[-1]
        length, count = k_blocks(k)
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        total = np.zeros((*batch, a.shape[-2], b.shape[-1]), wide)
        for block in range(count):
            chain = np.zeros_like(total)
            for i in range(block * length, min(k, (block + 1) * length)):
                chain = exact_fma(a[..., :, i, None], b[..., i, None, :], chain)
            total = total + chain if block else chain
        return np.asarray(total.astype(x.dtype))


def within_rounding(found: Array, wanted: Array, x: Array, y: Array) -> bool:
    """Whether two arrays may both be the product of x and y, its terms added in some order each.

    A sum of k products, in any order and with or without fused multiply-adds, is off by at most
    k*u/(1 - k*u) times the sum of the products' absolute values, u being the accumulator's half unit
    (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); then half types are rounded
    once. So two of them are off by twice that from each other, whatever cancels. Where the sizes come
    near the largest number, an order may overflow and another not: nothing can be said there.
    """
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind in "iub":
        return bool(np.array_equal(found, wanted))
    name = dtype_name(found.dtype)
    accumulator = _ROUNDING["float64" if name == "float64" else "float32"][0]
    terms = x.shape[-1] + 1  # one more, for what is computed here
    bound = terms * accumulator / (1 - terms * accumulator)
    if name in ("float16", "bfloat16"):
        bound += _ROUNDING[name][0]
    with np.errstate(all="ignore"):
        size = np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64))
        unclear = ~(size < _LARGEST[name] / 4)
        off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        return bool(np.all(unclear | (off <= 2 * (bound * size + terms * _ROUNDING[name][1]))))
