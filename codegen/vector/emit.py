"""The IR of each primitive: EMIT[name](builder, element, *values), and `Emitted`, the reading that
writes it.

Straight-line code on `<16 x element>` values; no fast-math flag is ever set. Must not know Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from codegen.vector.elements import ELEMENTS, SAME_SIZE, bits, kind
from codegen.vector.llvm import (
    INDEX,
    INT64,
    Builder,
    Value,
    constant,
    constant_lane,
    intrinsic,
    like,
    named,
    one_lane,
    suffix,
    vector,
)
from codegen.vector.primitives import TABLES
from codegen.vector.readings import Body, Reading, scalar

if TYPE_CHECKING:
    from codegen.vector.primitives import Primitive

Emit = Callable[..., Value]
EMIT: dict[str, Emit] = {}


class Emitted(Reading):
    """While a vector function is written as IR: a builder and an LLVM value."""

    __slots__ = ("builder", "element", "value")

    def __init__(self, builder: Builder, element: str, value: Value) -> None:
        self.builder, self.element, self.value = builder, element, value

    def apply(self, primitive: Primitive, element: str, operands: Sequence[Any]) -> Emitted:
        """The primitive's IR."""
        values = []
        for k, x in enumerate(operands):
            if isinstance(x, Emitted):
                values.append(x.value)
            else:
                target = primitive.operand_element(k, element)
                values.append(constant(target, scalar(target, x).item()))
        value = EMIT[primitive.name](self.builder, element, *values)
        return Emitted(self.builder, primitive.result(element), value)

    def rarely(
        self, body: Body, operands: Sequence[Any], otherwise: Sequence[Any]
    ) -> tuple[Any, ...]:
        """A loop over lanes, entered when any lane of this mask is true: scalar code compiles
        faster than vectors.
        """
        if not isinstance(self.value.type, ir.VectorType):
            return self._branch(body, operands, otherwise)
        b, start, mask = self.builder, self.builder.block, self.value
        loop, done = b.append_basic_block("rare"), b.append_basic_block("rare_done")
        packed = b.bitcast(mask, ir.IntType(mask.type.count))
        b.cbranch(b.icmp_unsigned("!=", packed, packed.type(0)), loop, done)
        b.position_at_end(loop)
        lane = b.phi(INDEX)
        lane.add_incoming(INDEX(0), start)
        running = [b.phi(y.value.type) for y in otherwise]
        for phi, y in zip(running, otherwise, strict=True):
            phi.add_incoming(y.value, start)
        with one_lane():
            scalars = [Emitted(b, x.element, b.extract_element(x.value, lane)) for x in operands]
            made = body(*scalars)
        chosen = b.extract_element(mask, lane)
        after = []
        for phi, x in zip(running, made, strict=True):
            value = b.select(chosen, x.value, b.extract_element(phi, lane))
            after.append(b.insert_element(phi, value, lane))
            phi.add_incoming(after[-1], b.block)
        following = b.add(lane, INDEX(1))
        lane.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, INDEX(mask.type.count)), loop, done)
        end = b.block
        b.position_at_end(done)
        results = []
        for value, y in zip(after, otherwise, strict=True):
            phi = b.phi(value.type)
            phi.add_incoming(y.value, start)
            phi.add_incoming(value, end)
            results.append(Emitted(b, y.element, phi))
        return tuple(results)

    def _branch(
        self, body: Body, operands: Sequence[Any], otherwise: Sequence[Any]
    ) -> tuple[Any, ...]:
        """`rarely` of one lane."""
        b, start = self.builder, self.builder.block
        rare, done = b.append_basic_block("rare"), b.append_basic_block("rare_done")
        b.cbranch(self.value, rare, done)
        b.position_at_end(rare)
        made = body(*operands)
        end = b.block
        b.branch(done)
        b.position_at_end(done)
        results = []
        for x, y in zip(made, otherwise, strict=True):
            phi = b.phi(y.value.type)
            phi.add_incoming(y.value, start)
            phi.add_incoming(x.value, end)
            results.append(Emitted(b, y.element, phi))
        return tuple(results)


def emits(*names: str) -> Callable[[Emit], Emit]:
    """The function is the IR of the named primitives."""

    def add(emit: Emit) -> Emit:
        for name in names:
            EMIT[name] = emit
        return emit

    return add


def _either(
    name: str, floating: str | None, integer: str | None, unsigned: str | None = None
) -> None:
    """One builder method for floats, another for integers (a third for unsigned ones)."""

    def emit(b: Builder, element: str, *values: Value) -> Value:
        method = {"f": floating, "u": unsigned or integer}.get(kind(element), integer)
        assert method is not None
        return getattr(b, method)(*values)

    EMIT[name] = emit


_either("add", "fadd", "add")
_either("sub", "fsub", "sub")
_either("mul", "fmul", "mul")
_either("truediv", "fdiv", None)
_either("neg", "fneg", "neg")
_either("and_", None, "and_")
_either("or_", None, "or_")
_either("xor", None, "xor")
_either("invert", None, "not_")


def compare(b: Builder, element: str, symbol: str, x: Value, y: Value) -> Value:
    """A comparison: unequal to anything is true of NaN, all else false."""
    if kind(element) == "f":
        return b.fcmp_unordered(symbol, x, y) if symbol == "!=" else b.fcmp_ordered(symbol, x, y)
    return (b.icmp_signed if kind(element) == "i" else b.icmp_unsigned)(symbol, x, y)


def _comparison(name: str, symbol: str) -> None:
    EMIT[name] = lambda b, e, x, y: compare(b, e, symbol, x, y)


for _name, _symbol in (
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
    ("eq", "=="),
    ("ne", "!="),
):
    _comparison(_name, _symbol)


def within(element: str, count: Value) -> bool:
    """Whether a shift's count is written out and below the width."""
    literal = constant_lane(count)
    return literal is not None and 0 <= literal < bits(element)


@emits("lshift")
def _shift_left(b: Builder, element: str, x: Value, count: Value) -> Value:
    if within(element, count):
        return b.shl(x, count)
    inside = b.icmp_unsigned("<", count, constant(element, bits(element)))
    return b.select(inside, b.shl(x, count), constant(element, 0))


@emits("rshift")
def _shift_right(b: Builder, element: str, x: Value, count: Value) -> Value:
    if within(element, count):
        return (b.ashr if kind(element) == "i" else b.lshr)(x, count)
    inside = b.icmp_unsigned("<", count, constant(element, bits(element)))
    if kind(element) == "u":
        return b.select(inside, b.lshr(x, count), constant(element, 0))
    return b.ashr(x, b.select(inside, count, constant(element, bits(element) - 1)))


for _name in ("trunc", "floor", "ceil", "rint"):
    EMIT[_name] = lambda b, e, x, name=_name: named(b, name, x)
EMIT["copysign"] = lambda b, e, x, y: named(b, "copysign", x, y)
EMIT["popcount"] = lambda b, e, x: named(b, "ctpop", x)
EMIT["fma"] = lambda b, e, x, y, z: named(b, "fma", x, y, z)
EMIT["sqrt"] = lambda b, e, x: named(b, "sqrt", x)
EMIT["select"] = lambda b, e, mask, x, y: b.select(mask, x, y)


@emits("absolute")
def _absolute(b: Builder, element: str, x: Value) -> Value:
    if kind(element) == "f":
        return named(b, "fabs", x)
    return (
        b.select(compare(b, element, "<", x, constant(element, 0)), b.neg(x), x)
        if kind(element) == "i"
        else x
    )


def extremum(symbol: str) -> Emit:
    """The better operand by `symbol`; NaN wins, and of equal ones the first."""

    def emit(b: Builder, element: str, x: Value, y: Value) -> Value:
        better = b.select(compare(b, element, symbol, y, x), y, x)
        if kind(element) == "f":
            return b.select(b.fcmp_unordered("uno", y, y), y, better)
        return better

    return emit


EMIT["maximum"], EMIT["minimum"] = extremum(">"), extremum("<")


def convert(b: Builder, source: str, target: str, x: Value) -> Value:
    """Lanes of one element as another: floats to integers saturate (NaN gives 0), integers wrap, to
    bool is != 0.
    """
    if source == target:
        return x
    if target == "bool":
        return compare(b, source, "!=", x, constant(source, 0))
    to = vector(target)
    match kind(source), kind(target):
        case "f", "f":
            return b.fpext(x, to) if target == "f64" else b.fptrunc(x, to)
        case "f", sign:
            name = f"llvm.fpto{'si' if sign == 'i' else 'ui'}.sat"
            return intrinsic(b, f"{name}.{suffix(to)}.{suffix(x.type)}", to, x)
        case sign, "f":
            return b.sitofp(x, to) if sign == "i" else b.uitofp(x, to)
    if source == "bool":
        return b.zext(x, to)
    if bits(source) == bits(target):
        return x
    if bits(source) > bits(target):
        return b.trunc(x, to)
    return b.sext(x, to) if kind(source) == "i" else b.zext(x, to)


def _conversion(target: str) -> None:
    EMIT[f"to_{target}"] = lambda b, e, x: convert(b, e, target, x)


for _target in ELEMENTS:
    _conversion(_target)

EMIT["to_bits"] = EMIT["from_bits"] = lambda b, e, x: b.bitcast(x, vector(SAME_SIZE[e]))


@emits("round_f16")
def _round_half(b: Builder, element: str, x: Value) -> Value:
    return b.fpext(b.fptrunc(x, like(x.type, ir.HalfType())), x.type)


def bfloat16_bits(b: Builder, x: Value) -> Value:
    """The bfloat16 nearest to each f32 lane, ties to even, in the low half of i32; NaN stays."""
    pattern = b.bitcast(x, vector("i32"))
    high = b.lshr(pattern, constant("i32", 16))
    odd = b.and_(high, constant("i32", 1))
    rounded = b.lshr(b.add(pattern, b.add(odd, constant("i32", 0x7FFF))), constant("i32", 16))
    return b.select(b.fcmp_unordered("uno", x, x), b.or_(high, constant("i32", 0x40)), rounded)


def from_bfloat16_bits(b: Builder, x: Value) -> Value:
    """The low half of i32 lanes, a bfloat16, as f32 lanes."""
    return b.bitcast(b.shl(x, constant("i32", 16)), vector("f32"))


def lookup(name: str, table: tuple[int, ...]) -> None:
    """table[index] for i64 lanes, the table a constant in the module; the last word for any index
    outside.
    """

    def emit(b: Builder, element: str, index: Value) -> Value:
        place = b.module.globals.get(name)
        if place is None:
            place = ir.GlobalVariable(b.module, ir.ArrayType(INT64, len(table)), name)
            place.initializer = ir.Constant(place.type.pointee, list(table))
            place.global_constant, place.linkage = True, "internal"
        last = constant("i64", len(table) - 1)
        index = b.select(b.icmp_unsigned("<", index, last), index, last)
        if not isinstance(index.type, ir.VectorType):
            return b.load(b.gep(place, [INT64(0), index], inbounds=True))
        lanes = ir.Constant(index.type, ir.Undefined)
        for lane in map(INDEX, range(index.type.count)):
            where = [INT64(0), b.extract_element(index, lane)]
            lanes = b.insert_element(lanes, b.load(b.gep(place, where, inbounds=True)), lane)
        return lanes

    EMIT[name] = emit


for _name, _table in TABLES.items():
    lookup(_name, _table)
EMIT["round_bf16"] = lambda b, e, x: from_bfloat16_bits(b, bfloat16_bits(b, x))
