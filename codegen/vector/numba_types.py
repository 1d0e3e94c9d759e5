"""Numba's types for kernel text, and how a name of it is told to Numba.

`VEC[element]` and `POINTER[memory element]` are the types of a kernel's values and buffers. Typing
a call is one look-up, on purpose: Numba's search through templates is most of what a small kernel
costs to compile. Knows Numba and LLVM's types; the names themselves are in `jit.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import extending
from numba.core import types as _types
from numba.core.registry import cpu_target
from numba.core.typing import templates

from codegen.vector.elements import ELEMENTS, MEMORY_ELEMENTS
from codegen.vector.llvm import MEMORY, vector

# Numba annotates little of this.
types: Any = _types
signature: Any = templates.signature
models: Any = extending.models
register_model: Any = extending.register_model
lower_builtin: Any = extending.lower_builtin
infer_global: Any = templates.infer_global

Typing = Callable[..., Any]  # argument types -> a signature, or None where they do not fit
Lowering = Callable[[Any, Any, Any, Any], Any]  # context, builder, signature, values -> value


# ---- types ---------------------------------------------------------------------------------------
class VecType(_types.Type):
    """Numba's type of a vector value."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(f"Vec({element})")


class PointerType(_types.Type):
    """Numba's type of a buffer's address."""

    def __init__(self, element: str) -> None:
        self.element = element
        super().__init__(f"Pointer({element})")


def _vec_model(manager: Any, type_: VecType) -> Any:
    return models.PrimitiveModel(manager, type_, vector(type_.element))


def _pointer_model(manager: Any, type_: PointerType) -> Any:
    return models.PrimitiveModel(manager, type_, MEMORY[type_.element].as_pointer())


register_model(VecType)(_vec_model)
register_model(PointerType)(_pointer_model)

VEC = {e: VecType(e) for e in ELEMENTS}
POINTER = {e: PointerType(e) for e in MEMORY_ELEMENTS}
SCALAR: dict[str, Any] = {
    "bool": types.boolean,
    "f32": types.float32,
    "f64": types.float64,
    **{e: getattr(types, f"int{e[1:]}") for e in ELEMENTS if e[0] == "i"},
    **{e: getattr(types, f"uint{e[1:]}") for e in ELEMENTS if e[0] == "u"},
}
SCALAR_ELEMENT = {t: e for e, t in SCALAR.items()}


def is_number(type_: Any) -> bool:
    """Whether a type is that of a scalar number or bool."""
    return isinstance(type_, types.Number | types.Boolean)


# ---- functions -----------------------------------------------------------------------------------
class TableFunction(_types.Function):
    """The type of one of our functions."""

    def __init__(self, rules: Any) -> None:
        super().__init__(rules)
        mine: Any = self
        self.typing: Typing = mine.templates[0].typing
        self.known: dict[Any, Any] = {}

    def found(self, sig: Any) -> Any:
        """The signature, remembered as Numba wants it."""
        mine: Any = self
        mine._impl_keys[sig.args] = mine.typing_key
        return sig

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """The signature of a call."""
        sig = None if kws else self.typing(*args)
        if sig is None:
            return self.search(context, args, kws)  # fails, with Numba's message
        return self.found(sig)

    def search(self, context: Any, args: Any, kws: Any) -> Any:
        """Numba's own way to a signature."""
        return super().get_call_type(context, args, kws)


class LaneOperator(TableFunction):
    """The type of one of Python's operators: lanes are typed at once, all else as before."""

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """The signature of a call."""
        sig = None if kws else self.typing(*args)
        if sig is not None:
            return self.found(sig)
        if kws or not all(isinstance(t, types.Number) for t in args):
            return self.search(context, args, kws)
        # Index arithmetic: Numba's answer, found once.
        plain = tuple(types.unliteral(t) for t in args)
        if plain not in self.known:
            self.known[plain] = self.search(context, plain, kws)
        return self.known[plain]

    def augment(self, other: Any) -> Any:
        """With templates that were registered later."""
        mine: Any = self
        same = other.typing_key == mine.typing_key
        return LaneOperator(mine.templates + other.templates) if same else None


register_model(TableFunction)(models.OpaqueModel)
register_model(LaneOperator)(models.OpaqueModel)


def _template(key: Any, typing: Typing) -> Any:
    """Numba's form of a typing rule."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        return typing(*args)

    members = {"key": key, "generic": generic, "typing": staticmethod(typing)}
    return type("Template", (templates.AbstractTemplate,), members)


def register(key: Any, typing: Typing, lower: Lowering, *patterns: tuple[Any, ...]) -> None:
    """Tell Numba of one of our functions: its typing rule and its IR."""
    infer_global(key, TableFunction(_template(key, typing)))
    for pattern in patterns or ((types.VarArg(types.Any),),):
        lower_builtin(key, *pattern)(lower)


def register_operator(
    key: Any, typing: Typing, lower: Lowering, *patterns: tuple[Any, ...]
) -> None:
    """Tell Numba what one of Python's operators means on lanes, before all else it means."""
    ours = _template(key, typing)
    OPERATOR_TYPES[key] = lambda others: LaneOperator((ours, *others.templates))
    context: Any = cpu_target.typing_context
    others = context._lookup_global(key)
    context._remove_global(key)
    context._insert_global(key, OPERATOR_TYPES[key](others))
    for pattern in patterns:
        lower_builtin(key, *pattern)(lower)


# Operator -> its type in a context, from its type there so far.
OPERATOR_TYPES: dict[Any, Callable[[Any], LaneOperator]] = {}


def load_operators() -> None:
    """Make sure that Numba knows its own meanings of the operators before ours are put first."""
    context: Any = cpu_target.typing_context
    context.refresh()
