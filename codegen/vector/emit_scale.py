"""The IR of scalb, x * 2**n: AVX-512's instruction, elsewhere two products. Equal bits: both round
once, where a result is denormal. Must not know Numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from codegen.target import register_bytes
from codegen.vector.elements import SAME_SIZE, WIDTH, bits
from codegen.vector.emit import emits
from codegen.vector.llvm import INDEX, Builder, Value, constant, intrinsic, shuffle, vector

_REGISTER = 512  # bits
_AS_SET = 4  # rounds by the mode in force: to nearest


@emits("scalb")
def _scalb(b: Builder, element: str, x: Value, n: Value) -> Value:
    if register_bytes() * 8 == _REGISTER and isinstance(x.type, ir.VectorType):
        return _by_instruction(b, element, x, n)
    return _by_products(b, element, x, n)


def _by_instruction(b: Builder, element: str, x: Value, n: Value) -> Value:
    count = _REGISTER // bits(element)
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if element == 'f32' else 'pd'}.512"
    every = ir.Constant(ir.IntType(count), -1)
    parts = []
    for start in range(0, WIDTH, count):
        lanes = range(start, start + count)
        y, power = (x, n) if count == WIDTH else (shuffle(b, v, lanes) for v in (x, n))
        parts.append(intrinsic(b, name, y.type, y, power, y, every, INDEX(_AS_SET)))
    if len(parts) == 1:
        return parts[0]
    order: Any = ir.Constant(ir.VectorType(INDEX, WIDTH), list(range(WIDTH)))
    return b.shuffle_vector(*parts, order)


def _by_products(b: Builder, element: str, x: Value, n: Value) -> Value:
    """By 2**(n//2), which is exact, then by the rest of 2**n."""
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
