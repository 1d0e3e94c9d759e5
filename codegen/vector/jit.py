"""Vector values for Numba: its types `Vec` and `Pointer`, and the registration of every name of kernel text.

Importing this file imports Numba and registers. `VEC[element]` and `POINTER[memory element]` are the types of a kernel's
values and arguments. Typing is a table look-up on purpose: compile time is mostly Numba's inference.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from numba.core import types
from numba.core.registry import cpu_target
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from codegen.vector import lanes, memory
from codegen.vector.elements import ELEMENTS, MEMORY_ELEMENTS, OF_MEMORY
from codegen.vector import emit_division as _emit_division  # noqa: F401  fills EMIT
from codegen.vector.emit import EMIT, Emitted
from codegen.vector.emit_lanes import LANES_EMIT, rotate
from codegen.vector.emit_memory import MEMORY_EMIT
from codegen.vector.functions import FUNCTIONS, VectorFunction
from codegen.vector.llvm import INDEX, MEMORY, splat, vector
from codegen.vector.names import CONSTRUCTORS
from codegen.vector.primitives import PRIMITIVES, Primitive
from codegen.vector.readings import OPERATORS


class VecType(types.Type):  # type: ignore[misc]
    """Numba's type of a vector value."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(f"Vec({element})")


class PointerType(types.Type):  # type: ignore[misc]
    """Numba's type of a buffer's address."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(f"Pointer({element})")


@register_model(VecType)
class VecModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, type_: VecType) -> None:
        super().__init__(manager, type_, vector(type_.element))


@register_model(PointerType)
class PointerModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, type_: PointerType) -> None:
        super().__init__(manager, type_, MEMORY[type_.element].as_pointer())


VEC = {e: VecType(e) for e in ELEMENTS}
POINTER = {e: PointerType(e) for e in MEMORY_ELEMENTS}
SCALAR: dict[str, Any] = {
    "bool": types.boolean,
    "f32": types.float32,
    "f64": types.float64,
    **{
        e: getattr(types, ("int" if e[0] == "i" else "uint") + e[1:])
        for e in ELEMENTS
        if e[0] in "iu"
    },
}
SCALAR_ELEMENT = {t: e for e, t in SCALAR.items()}

Typing = Callable[..., Any]
Lowering = Callable[[Any, Any, Any, Any], Any]


class TableFunction(types.Function):  # type: ignore[misc]
    """The type of our functions: a call is typed by one look-up, without Numba's search through templates."""

    def __init__(self, template: Any) -> None:
        super().__init__(template)
        self.typing: Typing = self.templates[0].typing
        self.known: dict[Any, Any] = {}

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        sig = None if kws else self.typing(*args)
        if sig is None:
            return super().get_call_type(context, args, kws)  # fails, with Numba's message
        self._impl_keys[sig.args] = self.typing_key
        return sig


class LaneOperator(TableFunction):
    """The type of one of Python's operators: lanes are typed at once, all else as before."""

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        if any(isinstance(t, VecType | PointerType) for t in args) and (sig := self.typing(*args)):
            self._impl_keys[sig.args] = self.typing_key
            return sig
        if kws or not all(isinstance(t, types.Number) for t in args):
            return types.Function.get_call_type(self, context, args, kws)
        # Index arithmetic: Numba's answer, found once.
        args = tuple(types.unliteral(t) for t in args)
        if args not in self.known:
            self.known[args] = types.Function.get_call_type(self, context, args, kws)
        return self.known[args]

    def augment(self, other: Any) -> Any:
        same = other.typing_key == self.typing_key
        return LaneOperator(self.templates + other.templates) if same else None


register_model(TableFunction)(models.OpaqueModel)
register_model(LaneOperator)(models.OpaqueModel)


def template(key: Any, typing: Typing) -> Any:
    """Numba's form of a typing rule."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        return typing(*args)

    rule = staticmethod(typing)
    return type("Template", (AbstractTemplate,), {"key": key, "generic": generic, "typing": rule})


def register(key: Any, typing: Typing, lower: Lowering, *patterns: tuple[Any, ...]) -> None:
    """Tell Numba of one of our functions: argument types -> signature or None, and its IR."""
    infer_global(key, TableFunction(template(key, typing)))
    for pattern in patterns or ((types.VarArg(types.Any),),):
        lower_builtin(key, *pattern)(lower)


def register_operator(
    key: Any, typing: Typing, lower: Lowering, *patterns: tuple[Any, ...]
) -> None:
    """Tell Numba what one of Python's operators means on lanes, first of all it means."""
    context = cpu_target.typing_context
    others = context._lookup_global(key)
    context._remove_global(key)
    context._insert_global(key, LaneOperator((template(key, typing), *others.templates)))
    for pattern in patterns:
        lower_builtin(key, *pattern)(lower)


# ---- primitives and vector functions ---------------------------------------------------------------------------------
def describe(type_: Any) -> tuple[str, bool] | None:
    """(element, is a vector) of an argument's type; None when it is neither lanes nor a number."""
    if isinstance(type_, VecType):
        return type_.element, True
    if isinstance(type_, types.Number | types.Boolean):
        return SCALAR_ELEMENT.get(types.unliteral(type_), "f64"), False
    return None


def lane_typing(function: Primitive | VectorFunction) -> Typing:
    def typing(*args: Any) -> Any:
        operands = [describe(t) for t in args]
        if not all(operands) or not any(vector for _, vector in operands):  # type: ignore[misc]
            return None
        try:
            element = function.lead(operands)  # type: ignore[arg-type]
        except TypeError:
            return None
        wanted = (
            t if isinstance(t, VecType) else SCALAR[function.operand_element(k, element)]
            for k, t in enumerate(args)
        )
        return signature(VEC[function.result(element)], *wanted)

    return typing


def vectors(builder: Any, sig: Any, args: Sequence[Any]) -> list[Any]:
    return [
        x if isinstance(t, VecType) else splat(builder, x)
        for t, x in zip(sig.args, args, strict=True)
    ]


def lead_element(function: Primitive | VectorFunction, sig: Any) -> str:
    return function.lead([describe(t) for t in sig.args])  # type: ignore[misc]


def primitive_lowering(primitive: Primitive) -> Lowering:
    emit = EMIT[primitive.name]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, lead_element(primitive, sig), *vectors(builder, sig, args))

    return lower


def function_lowering(function: VectorFunction) -> Lowering:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        element = lead_element(function, sig)
        values = (Emitted(builder, element, x) for x in vectors(builder, sig, args))
        return function.bodies[element](*values).value

    return lower


cpu_target.typing_context.refresh()  # so that Python's operators are there
for _name, _primitive in PRIMITIVES.items():
    if _name in OPERATORS:
        number = types.Number
        patterns: list[tuple[Any, ...]] = [(VecType,)]
        if _primitive.arity == 2:
            patterns = [(VecType, VecType), (VecType, number), (number, VecType)]
            patterns += [(VecType, types.Boolean), (types.Boolean, VecType)]
        key = getattr(operator, _name)
        register_operator(key, lane_typing(_primitive), primitive_lowering(_primitive), *patterns)
    else:
        register(_primitive, lane_typing(_primitive), primitive_lowering(_primitive))
for _function in FUNCTIONS.values():
    register(_function, lane_typing(_function), function_lowering(_function))


# ---- memory and lanes ------------------------------------------------------------------------------------------------
# The kinds of parameters: "pointer", "vector" of any element, "lanes" of the pointer's element, "fill" (a scalar of it),
# "mask", "indices" (i64 lanes), "integer" (int64), "scalar" (any number), "double" (float64).
def argument_type(kind: str, type_: Any, element: str | None) -> Any:
    """The type that an argument of this kind is passed as, or None when it does not fit."""
    number = isinstance(type_, types.Number | types.Boolean)
    match kind:
        case "pointer":
            return type_ if isinstance(type_, PointerType) else None
        case "vector":
            return type_ if isinstance(type_, VecType) else None
        case "lanes":
            return type_ if element and type_ is VEC[element] else None
        case "mask":
            return type_ if type_ is VEC["bool"] else None
        case "indices":
            return type_ if type_ is VEC["i64"] else None
        case "fill":
            return SCALAR[element] if element and number else None
        case "integer":
            return types.int64 if isinstance(type_, types.Integer) else None
        case "double":
            return types.float64 if number else None
        case "stack":
            return type_ if type_ is STACK else None
    plain = types.unliteral(type_)
    return plain if plain in SCALAR_ELEMENT else None


STACK = types.CPointer(types.float64)


def table_typing(kinds: tuple[str, ...], result: Callable[[str], Any]) -> Typing:
    def typing(*args: Any) -> Any:
        if len(args) != len(kinds):
            return None
        element = head_element(args)
        wanted = [argument_type(k, t, element) for k, t in zip(kinds, args, strict=True)]
        return (
            None if any(t is None for t in wanted) else signature(result(element or "f64"), *wanted)
        )

    return typing


def head_element(args: Sequence[Any]) -> str | None:
    """The lane element that argument 0 stands for."""
    head = args[0] if args else None
    if isinstance(head, PointerType):
        return OF_MEMORY[head.element]
    return head.element if isinstance(head, VecType) else SCALAR_ELEMENT.get(types.unliteral(head))


def table(
    function: Any, emit: Callable[..., Any], result: Callable[[str], Any], *kinds: str
) -> None:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        head = sig.args[0] if sig.args else None
        element = (
            head.element if isinstance(head, PointerType | VecType) else head_element(sig.args)
        )
        value = emit(builder, element, *args)
        return context.get_dummy_value() if value is None else value

    register(function, table_typing(kinds, result), lower)


def nothing(element: str) -> Any:
    return types.void


def masks(element: str) -> Any:
    return VEC["bool"]


_PARAMETERS = {
    "load": ("pointer", "integer"),
    "store": ("pointer", "integer", "lanes"),
    "gather": ("pointer", "indices"),
    "scatter": ("pointer", "indices", "lanes"),
}
for _access, _kinds in _PARAMETERS.items():
    _stores = _kinds[-1] == "lanes"
    _result = nothing if _stores else VEC.__getitem__
    for _name, _more in (("", ()), ("_part", ("integer",)), ("_masked", ("mask",))):
        _tail = ("lanes",) if _stores else ("fill",) if _name else ()
        _name = _access + _name
        table(getattr(memory, _name), MEMORY_EMIT[_name], _result, *_kinds[:2], *_more, *_tail)
table(memory.load_one, MEMORY_EMIT["load_one"], VEC.__getitem__, "pointer", "integer")
table(memory.store_one, MEMORY_EMIT["store_one"], nothing, "pointer", "integer", "lanes")

for _name, _result, *_kinds in (
    ("full", VEC.__getitem__, "scalar"),
    ("below", masks, "integer"),
    ("lane_index", lambda e: VEC["i64"], "integer"),
    ("first", SCALAR.__getitem__, "vector"),
    *((f"lane_{n}", SCALAR.__getitem__, "vector") for n in ("sum", "product", "max", "min")),
    *((f"lane_{n}", SCALAR.__getitem__, "mask") for n in ("any", "all")),
    ("tree_new", lambda e: STACK),
    *((f"tree_push{n}", nothing, "stack", "integer", "double") for n in ("", "_product")),
    *((f"tree_total{n}", lambda e: types.float64, "stack", "integer") for n in ("", "_product")),
):
    table(getattr(lanes, _name), LANES_EMIT[_name], _result, *_kinds)


# ---- numbers -------------------------------------------------------------------------------------------
def _constructor(constructor: Any) -> None:
    """f32(x), i64(x) ...: Numba's own cast of a number."""
    target = SCALAR[constructor.element]

    def typing(*args: Any) -> Any:
        number = len(args) == 1 and isinstance(args[0], types.Number | types.Boolean)
        return signature(target, types.unliteral(args[0])) if number else None

    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return context.cast(b, args[0], sig.args[0], target)

    register(constructor, typing, lower)


for _constructor_object in CONSTRUCTORS.values():
    _constructor(_constructor_object)


def _rotate_typing(*args: Any) -> Any:
    """The count must be a literal: it becomes a shuffle."""
    if (
        len(args) == 2
        and isinstance(args[0], VecType)
        and isinstance(args[1], types.IntegerLiteral)
    ):
        return signature(args[0], *args)
    return None


register(
    lanes.rotate,
    _rotate_typing,
    lambda c, b, sig, args: rotate(b, sig.args[0].element, args[0], sig.args[1].literal_value),
)


# ---- single elements of a buffer: p[i], p[i] = x ---------------------------------------------------------------------
def _item_typing(p: Any, i: Any) -> Any:
    if isinstance(p, PointerType) and isinstance(i, types.Integer):
        return signature(SCALAR[OF_MEMORY[p.element]], p, types.int64)
    return None


def _set_item_typing(p: Any, i: Any, x: Any) -> Any:
    if (
        isinstance(p, PointerType)
        and isinstance(i, types.Integer)
        and isinstance(x, types.Number | types.Boolean)
    ):
        return signature(types.void, p, types.int64, SCALAR[OF_MEMORY[p.element]])
    return None


def _get_item(context: Any, b: Any, sig: Any, args: Any) -> Any:
    return b.extract_element(MEMORY_EMIT["load_one"](b, sig.args[0].element, *args), INDEX(0))


def _set_item(context: Any, b: Any, sig: Any, args: Any) -> Any:
    p, i, x = args
    MEMORY_EMIT["store_one"](b, sig.args[0].element, p, i, splat(b, x))
    return context.get_dummy_value()


register_operator(operator.getitem, _item_typing, _get_item, (PointerType, types.Integer))
register_operator(
    operator.setitem, _set_item_typing, _set_item, (PointerType, types.Integer, types.Any)
)
