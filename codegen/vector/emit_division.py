"""The IR of division with a remainder: floordiv, mod and fmod, which never trap.

Integers up to 32 bits divide in floating point, which is exact for them and fast on vectors; 64-bit
ones divide lane by lane. Floats: the exact remainder is a loop over the lanes' quotients, 52 bits
(23 for f32) at a time. Must not know Numba.
"""

from __future__ import annotations

from codegen.vector.elements import bits, kind
from codegen.vector.emit import compare, emits
from codegen.vector.llvm import LLVM, Builder, Value, constant, named, vector


def _divide_integers(b: Builder, e: str, x: Value, y: Value) -> tuple[Value, Value, Value]:
    """Quotient cut towards 0, remainder, and the divisor used: 1 in place of 0 and of -1 under the
    most negative.
    """
    signed, zero, one = kind(e) == "i", constant(e, 0), constant(e, 1)
    unfit = b.icmp_signed("==", y, zero)
    if signed:
        lowest, minus = constant(e, -(2 ** (bits(e) - 1))), constant(e, -1)
        wraps = b.and_(b.icmp_signed("==", x, lowest), b.icmp_signed("==", y, minus))
        unfit = b.or_(unfit, wraps)
    divisor = b.select(unfit, one, y)
    if bits(e) == 64:
        quotient = (b.sdiv if signed else b.udiv)(x, divisor)
    else:
        real = vector("f64" if bits(e) == 32 else "f32")
        to_real, back = (b.sitofp, b.fptosi) if signed else (b.uitofp, b.fptoui)
        quotient = back(b.fdiv(to_real(x, real), to_real(divisor, real)), vector(e))
    return quotient, b.sub(x, b.mul(quotient, divisor)), divisor


def _floors(b: Builder, e: str, remainder: Value, divisor: Value) -> Value:
    """Where a quotient cut towards 0 is one above the floor."""
    some = b.icmp_signed("!=", remainder, constant(e, 0))
    return b.and_(some, b.icmp_signed("<", b.xor(remainder, divisor), constant(e, 0)))


@emits("floordiv")
def _floordiv(b: Builder, e: str, x: Value, y: Value) -> Value:
    if kind(e) == "f":
        return _divide_floats(b, e, x, y)[0]
    quotient, remainder, divisor = _divide_integers(b, e, x, y)
    if kind(e) == "i":
        lower = b.sub(quotient, constant(e, 1))
        quotient = b.select(_floors(b, e, remainder, divisor), lower, quotient)
    return b.select(b.icmp_signed("==", y, constant(e, 0)), constant(e, 0), quotient)


@emits("mod")
def _mod(b: Builder, e: str, x: Value, y: Value) -> Value:
    if kind(e) == "f":
        return _divide_floats(b, e, x, y)[1]
    _, remainder, divisor = _divide_integers(b, e, x, y)
    if kind(e) == "i":
        higher = b.add(remainder, divisor)
        remainder = b.select(_floors(b, e, remainder, divisor), higher, remainder)
    return remainder


@emits("fmod")
def _fmod(b: Builder, e: str, x: Value, y: Value) -> Value:
    return _float_remainder(b, e, x, y) if kind(e) == "f" else _divide_integers(b, e, x, y)[1]


def _float_remainder(b: Builder, e: str, x: Value, y: Value) -> Value:
    """x - y*trunc(x/y), exactly.

    With q the quotient rounded to the format, rest - q*y is exactly representable, whatever the
    size of q, so one fma takes 52 (23) bits off the quotient; the usual case is one step. A
    quotient that overflows is taken of a larger divisor.
    """
    zero, infinity = constant(e, 0.0), constant(e, float("inf"))
    size = named(b, "fabs", y)
    nonzero = b.fcmp_ordered("!=", size, zero)
    finite = b.fcmp_ordered("<", named(b, "fabs", x), infinity)
    valid = b.and_(b.and_(nonzero, finite), b.fcmp_ordered("==", size, size))

    def unfinished(rest: Value) -> tuple[Value, Value]:
        lanes = b.and_(valid, b.fcmp_ordered(">=", named(b, "fabs", rest), size))
        width = LLVM["bool"]
        packed = b.bitcast(lanes, type(width)(lanes.type.count))
        return lanes, b.icmp_unsigned("!=", packed, packed.type(0))

    start = b.block
    lanes, more = unfinished(x)
    body, done = b.append_basic_block("remainder"), b.append_basic_block("remainder_done")
    b.cbranch(more, body, done)
    b.position_at_end(body)
    rest, active = b.phi(x.type), b.phi(lanes.type)
    rest.add_incoming(x, start)
    active.add_incoming(lanes, start)
    step, divisor = constant(e, 2.0 ** (120 if e == "f32" else 1000)), size
    for _ in range(3 if e == "f32" else 2):
        huge = b.fcmp_ordered("==", named(b, "fabs", b.fdiv(rest, divisor)), infinity)
        divisor = b.select(huge, b.fmul(divisor, step), divisor)
    quotient = named(b, "rint", b.fdiv(rest, divisor))
    next_ = named(b, "fma", b.fneg(quotient), divisor, rest)
    next_ = b.select(active, next_, rest)
    lanes_after, more = unfinished(next_)
    rest.add_incoming(next_, b.block)
    active.add_incoming(lanes_after, b.block)
    b.cbranch(more, body, done)
    end = b.block
    b.position_at_end(done)
    last = b.phi(x.type)
    last.add_incoming(x, start)
    last.add_incoming(next_, end)
    # The rest has any sign; the remainder has that of x.
    other = b.xor(b.fcmp_ordered("<", last, zero), b.fcmp_ordered("<", x, zero))
    other = b.and_(other, b.fcmp_ordered("!=", last, zero))
    mended = b.fadd(last, named(b, "copysign", size, x))
    result = named(b, "copysign", b.select(other, mended, last), x)
    either = b.fadd(x, y)  # a NaN operand, else NaN by inf - inf or 0/0
    undefined = b.select(b.fcmp_unordered("uno", either, either), either, constant(e, float("nan")))
    return b.select(valid, result, undefined)


def _divide_floats(b: Builder, e: str, x: Value, y: Value) -> tuple[Value, Value]:
    """NumPy's floor division and remainder, step by step."""
    zero, one = constant(e, 0.0), constant(e, 1.0)
    cut = _float_remainder(b, e, x, y)
    quotient = b.fdiv(b.fsub(x, cut), y)
    some = b.fcmp_unordered("!=", cut, zero)
    differ = b.xor(b.fcmp_ordered("<", y, zero), b.fcmp_ordered("<", cut, zero))
    lower = b.and_(some, differ)
    remainder = b.select(lower, b.fadd(cut, y), cut)
    remainder = b.select(some, remainder, named(b, "copysign", zero, y))
    quotient = b.select(lower, b.fsub(quotient, one), quotient)
    whole = named(b, "floor", quotient)
    above = b.fcmp_ordered(">", b.fsub(quotient, whole), constant(e, 0.5))
    whole = b.select(above, b.fadd(whole, one), whole)
    ratio = b.fdiv(x, y)
    whole = b.select(compare(b, e, "!=", quotient, zero), whole, named(b, "copysign", zero, ratio))
    by_zero = b.fcmp_ordered("==", y, zero)
    return b.select(by_zero, ratio, whole), b.select(by_zero, cut, remainder)
