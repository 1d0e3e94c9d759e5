"""The IR of ldexp, x * 2**n: AVX-512's instruction, elsewhere two products. Must not know Numba.

Equal bits: the first product is exact, so the result is rounded once, if it is denormal.
"""

from __future__ import annotations

from llvmlite import ir

from codegen.cpu_features import kernels_have
from codegen.vector.elements import SAME_SIZE, WIDTH
from codegen.vector.emit import emits
from codegen.vector.llvm import (
    INDEX,
    Builder,
    Value,
    constant,
    constants,
    intrinsic,
    shuffle,
    vector,
)

_AS_SET = 4  # rounds by the mode in force: to nearest


@emits("ldexp")
def _ldexp(b: Builder, element: str, x: Value, n: Value) -> Value:
    if not isinstance(x.type, ir.VectorType) or not kernels_have("avx512f"):
        return _by_products(b, element, x, n)
    if element == "f32":
        return _by_instruction(b, "ps", x, n)
    halves = (range(WIDTH // 2), range(WIDTH // 2, WIDTH))
    low, high = (_by_instruction(b, "pd", *(shuffle(b, v, h) for v in (x, n))) for h in halves)
    return b.shuffle_vector(low, high, constants(INDEX, range(WIDTH)))


def _by_instruction(b: Builder, kind: str, x: Value, n: Value) -> Value:
    """Of one register."""
    every = ir.Constant(ir.IntType(x.type.count), -1)
    name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
    return intrinsic(b, name, x.type, x, n, x, every, INDEX(_AS_SET))


def _by_products(b: Builder, element: str, x: Value, n: Value) -> Value:
    """By 2**(n//2), then by the rest of 2**n."""
    mantissa, bias = (23, 127) if element == "f32" else (52, 1023)
    word = SAME_SIZE[element]
    magic = 1.5 * 2.0**mantissa  # n + magic has n in its low bits
    pattern = ((bias + mantissa) << mantissa) | (1 << (mantissa - 1))
    whole = b.bitcast(b.fadd(n, constant(element, magic)), vector(word))
    twice = b.sub(whole, constant(word, pattern - 2 * bias))
    half = b.lshr(twice, constant(word, 1))

    def power(k: Value) -> Value:
        return b.bitcast(b.shl(k, constant(word, mantissa)), vector(element))

    return b.fmul(b.fmul(x, power(half)), power(b.sub(twice, half)))
