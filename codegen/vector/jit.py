"""Registers every name of kernel text with Numba. Importing this file imports Numba.

Each name is a row: what kinds of arguments it takes, what it gives, and the IR that emits it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from numba.core import codegen as _codegen
from numba.core import config as _config

from codegen.cpu_features import numba_compiles_for
from codegen.vector import emit_division as _emit_division  # noqa: F401  fills EMIT
from codegen.vector import emit_scale as _emit_scale  # noqa: F401  fills EMIT
from codegen.vector import lanes, memory
from codegen.vector.elements import OF_MEMORY
from codegen.vector.emit import EMIT, Emitted
from codegen.vector.emit_lanes import LANES_EMIT, rotate
from codegen.vector.emit_memory import MEMORY_EMIT
from codegen.vector.functions import FUNCTIONS, VectorFunction
from codegen.vector.llvm import INDEX, splat
from codegen.vector.names import CONSTRUCTORS
from codegen.vector.numba_types import (
    POINTER,
    SCALAR,
    SCALAR_ELEMENT,
    VEC,
    Lowering,
    PointerType,
    Typing,
    VecType,
    is_number,
    load_operators,
    register,
    register_operator,
    signature,
    types,
)
from codegen.vector.primitives import PRIMITIVES, Primitive
from codegen.vector.readings import OPERATORS

__all__ = ["POINTER", "SCALAR", "VEC", "PointerType", "VecType", "register"]

_numba_config: Any = _config  # Numba annotates neither of these
_numba_codegen: Any = _codegen
Function = Primitive | VectorFunction
Result = Callable[[str], Any]


# ---- primitives and vector functions -------------------------------------------------------------
def _describe(type_: Any) -> tuple[str, bool] | None:
    """(element, is a vector) of an argument's type; None when it is neither lanes nor a number."""
    if isinstance(type_, VecType):
        return type_.element, True
    return (SCALAR_ELEMENT.get(types.unliteral(type_), "f64"), False) if is_number(type_) else None


def lead(function: Function, args: Sequence[Any]) -> str | None:
    """The element that a call works on; None when its arguments do not fit."""
    operands = [found for t in args if (found := _describe(t)) is not None]
    if len(operands) != len(args) or not any(vector for _, vector in operands):
        return None
    try:
        return function.lead(operands)
    except TypeError:
        return None


def lane_typing(function: Function) -> Typing:
    """The typing rule of a function on lanes."""

    def typing(*args: Any) -> Any:
        element = lead(function, args)
        if element is None:
            return None
        wanted = (
            t if isinstance(t, VecType) else SCALAR[function.operand_element(k, element)]
            for k, t in enumerate(args)
        )
        return signature(VEC[function.result(element)], *wanted)

    return typing


def _vectors(builder: Any, sig: Any, args: Sequence[Any]) -> list[Any]:
    """All operands as lanes."""
    pairs = zip(sig.args, args, strict=True)
    return [x if isinstance(t, VecType) else splat(builder, x) for t, x in pairs]


def primitive_lowering(primitive: Primitive) -> Lowering:
    """The IR of a primitive's call."""
    emit = EMIT[primitive.name]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, lead(primitive, sig.args), *_vectors(builder, sig, args))

    return lower


def function_lowering(function: VectorFunction) -> Lowering:
    """The IR of a vector function's call: its body, run on `Emitted` values."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = lead(function, sig.args)
        assert element is not None
        values = (Emitted(builder, element, x) for x in _vectors(builder, sig, args))
        return function.bodies[element](*values).value

    return lower


def _register_lane_functions() -> None:
    numbers = (types.Number, types.Boolean)
    one = [(VecType,)]
    two = [(VecType, VecType), *((VecType, n) for n in numbers), *((n, VecType) for n in numbers)]
    for name, primitive in PRIMITIVES.items():
        typing, lower = lane_typing(primitive), primitive_lowering(primitive)
        if name in OPERATORS:
            patterns = one if primitive.arity == 1 else two
            register_operator(getattr(operator, name), typing, lower, *patterns)
        else:
            register(primitive, typing, lower)
    for function in FUNCTIONS.values():
        register(function, lane_typing(function), function_lowering(function))


# ---- memory and functions across lanes -----------------------------------------------------------
def _argument(kind: str, type_: Any, element: str | None) -> Any:
    """The type that an argument of this kind is passed as, or None when it does not fit.

    Kinds: "pointer"; "vector" of any element; "lanes" of the pointer's element, and "fill", a
    scalar of it; "mask"; "indices", i64 lanes; "integer", int64; "scalar".
    """
    match kind:
        case "pointer":
            return type_ if isinstance(type_, PointerType) else None
        case "vector":
            return type_ if isinstance(type_, VecType) else None
        case "lanes":
            return type_ if element and type_ is VEC[element] else None
        case "fill":
            return SCALAR[element] if element and is_number(type_) else None
        case "mask":
            return type_ if type_ is VEC["bool"] else None
        case "indices":
            return type_ if type_ is VEC["i64"] else None
        case "integer":
            return types.int64 if isinstance(type_, types.Integer) else None
    plain = types.unliteral(type_)
    return plain if plain in SCALAR_ELEMENT else None


def _head(args: Sequence[Any]) -> tuple[str, str]:
    """What argument 0 stands for: the element that IR is emitted for, and that of its lanes."""
    head = args[0] if args else None
    if isinstance(head, PointerType):
        return head.element, OF_MEMORY[head.element]
    if isinstance(head, VecType):
        return head.element, head.element
    element = SCALAR_ELEMENT.get(types.unliteral(head), "f64")
    return element, element


def _row(function: Any, emit: Callable[..., Any], result: Result, *kinds: str) -> None:
    def typing(*args: Any) -> Any:
        if len(args) != len(kinds):
            return None
        _, element = _head(args)
        wanted = [_argument(k, t, element) for k, t in zip(kinds, args, strict=True)]
        return None if None in wanted else signature(result(element), *wanted)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = emit(builder, _head(sig.args)[0], *args)
        return context.get_dummy_value() if value is None else value

    register(function, typing, lower)


def _register_memory() -> None:
    lanes_of, nothing = VEC.__getitem__, lambda element: types.void
    parts = {"": (), "_part": ("integer",), "_masked": ("mask",)}
    for suffix, part in parts.items():
        fill = ("fill",) if suffix else ()
        rows: dict[str, tuple[Result, tuple[str, ...]]] = {
            "load": (lanes_of, ("pointer", "integer", *part, *fill)),
            "gather": (lanes_of, ("pointer", "indices", *part, *fill)),
            "store": (nothing, ("pointer", "integer", *part, "lanes")),
            "scatter": (nothing, ("pointer", "indices", *part, "lanes")),
        }
        for access, (result, kinds) in rows.items():
            name = access + suffix
            _row(getattr(memory, name), MEMORY_EMIT[name], result, *kinds)
    _row(memory.load_one, MEMORY_EMIT["load_one"], lanes_of, "pointer", "integer")
    _row(memory.store_one, MEMORY_EMIT["store_one"], nothing, "pointer", "integer", "lanes")


def _register_lanes() -> None:
    lanes_of, scalar_of = VEC.__getitem__, SCALAR.__getitem__
    rows: dict[str, tuple[Result, tuple[str, ...]]] = {
        "full": (lanes_of, ("scalar",)),
        "below": (lambda e: VEC["bool"], ("integer",)),
        "lane_index": (lambda e: VEC["i64"], ("integer",)),
        "first": (scalar_of, ("vector",)),
        **{f"lane_{n}": (scalar_of, ("vector",)) for n in ("sum", "product", "max", "min")},
        **{f"lane_{n}": (scalar_of, ("mask",)) for n in ("any", "all")},
    }
    for name, (result, kinds) in rows.items():
        _row(getattr(lanes, name), LANES_EMIT[name], result, *kinds)


def _rotate_typing(*args: Any) -> Any:
    """The count must be a literal: it becomes a shuffle."""
    if len(args) != 2 or not isinstance(args[0], VecType):
        return None
    return signature(args[0], *args) if isinstance(args[1], types.IntegerLiteral) else None


def _rotate(context: Any, b: Any, sig: Any, args: Any) -> Any:
    return rotate(b, sig.args[0].element, args[0], sig.args[1].literal_value)


# ---- numbers, indices, single elements of a buffer: p[i], p[i] = x -------------------------------
def _register_constructor(constructor: Any) -> None:
    """f32(x), i64(x) ...: Numba's own cast of a number."""
    target = SCALAR[constructor.element]

    def typing(*args: Any) -> Any:
        fits = len(args) == 1 and is_number(args[0])
        return signature(target, types.unliteral(args[0])) if fits else None

    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return context.cast(b, args[0], sig.args[0], target)

    register(constructor, typing, lower)


def _item_typing(p: Any, i: Any) -> Any:
    if not isinstance(p, PointerType) or not isinstance(i, types.Integer):
        return None
    return signature(SCALAR[OF_MEMORY[p.element]], p, types.int64)


def _set_item_typing(p: Any, i: Any, x: Any) -> Any:
    if not isinstance(p, PointerType) or not isinstance(i, types.Integer) or not is_number(x):
        return None
    return signature(types.void, p, types.int64, SCALAR[OF_MEMORY[p.element]])


def _extremum_typing(*args: Any) -> Any:
    """min and max of two indices."""
    if len(args) == 2 and all(isinstance(t, types.Integer) for t in args):
        return signature(types.int64, types.int64, types.int64)
    return None


def _extremum(symbol: str) -> Lowering:
    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, y = args
        return b.select(b.icmp_signed(symbol, y, x), y, x)

    return lower


def _get_item(context: Any, b: Any, sig: Any, args: Any) -> Any:
    return b.extract_element(MEMORY_EMIT["load_one"](b, sig.args[0].element, *args), INDEX(0))


def _set_item(context: Any, b: Any, sig: Any, args: Any) -> Any:
    p, i, x = args
    MEMORY_EMIT["store_one"](b, sig.args[0].element, p, i, splat(b, x))
    return context.get_dummy_value()


numba_compiles_for(
    _numba_codegen.get_host_cpu_features()
    if _numba_config.CPU_FEATURES is None
    else _numba_config.CPU_FEATURES
)
load_operators()
_register_lane_functions()
_register_memory()
_register_lanes()
register(lanes.rotate, _rotate_typing, _rotate)
for _constructor in CONSTRUCTORS.values():
    _register_constructor(_constructor)
two_integers = (types.Integer, types.Integer)
register_operator(min, _extremum_typing, _extremum("<"), two_integers)
register_operator(max, _extremum_typing, _extremum(">"), two_integers)
register_operator(operator.getitem, _item_typing, _get_item, (PointerType, types.Integer))
register_operator(
    operator.setitem, _set_item_typing, _set_item, (PointerType, types.Integer, types.Any)
)
