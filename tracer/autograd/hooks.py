"""Functions that run where gradients arrive: at Tensors, at nodes of the history, at leaves; and the handles that take them away.

Knows tables of functions and how their results are checked. Must not know how the walk goes (`engine`) or what modules are.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from ops.errors import ArgumentError, GradError, TraceError
from ops.types import Type, short
from tracer.core.source_lines import located, name_of
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

_ids = itertools.count()


class _Registrations:
    """How often hooks of outside Tensors and of modules were registered or removed: guards look closer when it has changed."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


REGISTRATIONS = _Registrations()


class HookTable(dict[int, Any]):
    """Functions in the order in which they run, each under a number of its own.

    `watched`: it belongs to something outside traces, and compiled programs depend on what it holds.
    """

    __slots__ = ("__weakref__", "watched")

    def __init__(self, entries: Iterable[tuple[int, Any]] = (), watched: bool = False) -> None:
        super().__init__(entries)
        self.watched = watched

    def add(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Register a function, behind the others or before them."""
        handle = RemovableHandle(self, next(_ids))
        if self.watched:
            REGISTRATIONS.count += 1
            MODES.interpreter.hook_registered(handle)
        if prepend:
            others = list(self.items())
            self.clear()
            self[handle.id] = hook
            self.update(others)
        else:
            self[handle.id] = hook
        return handle

    def __reduce__(self) -> tuple[Any, ...]:
        return HookTable, (list(self.items()), self.watched)


class HookIdentity:
    """A hook, equal to one that does the same: a lambda in a loop is made anew at each turn, of the same code and variables."""

    __slots__ = ("hook",)

    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HookIdentity):
            return False
        a, b = self.hook, other.hook
        if not (isinstance(a, FunctionType) and isinstance(b, FunctionType)):
            return bool(a is b or (type(a) is type(b) and a == b))
        return (
            a.__code__ is b.__code__
            and a.__globals__ is b.__globals__
            and _are(a.__closure__ or (), b.__closure__ or ())
            and _are(a.__defaults__ or (), b.__defaults__ or ())
            and _are([*(a.__kwdefaults__ or {}).values()], [*(b.__kwdefaults__ or {}).values()])
        )

    def __hash__(self) -> int:
        return hash(getattr(self.hook, "__code__", type(self.hook)))


def _are(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether these are the same objects."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


class RemovableHandle:
    """Takes a hook away: `remove()`, or the end of a `with` block. Twice does no harm."""

    __slots__ = ("__weakref__", "_table", "id")

    def __init__(self, table: HookTable, number: int) -> None:
        self._table, self.id = weakref.ref(table), number

    @property
    def is_registered(self) -> bool:
        """Whether the hook is still there."""
        table = self._table()
        return table is not None and self.id in table

    def remove(self) -> None:
        """Take the hook away. Raises `TraceError` for a hook from outside while a function is traced."""
        table = self._table()
        if table is None or self.id not in table:
            return
        if table.watched:
            if not MODES.interpreter.hook_removable(self):
                raise located(
                    TraceError(
                        "a hook that was registered outside is removed while a function is traced: the compiled program "
                        "would not repeat it. Remove it outside; the traced function notices"
                    )
                )
            REGISTRATIONS.count += 1
        del table[self.id]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def require_callable(hook: Any) -> None:
    """Raise `ArgumentError` for a hook that cannot be called."""
    if not callable(hook):
        raise located(
            ArgumentError(
                f"a hook is a function, got {type(hook).__name__}; register the function itself, not what it returns"
            )
        )


def refuse_left_over(handles: Sequence[tuple[RemovableHandle, str]]) -> None:
    """Raise `TraceError` if hooks that a trace registered on what lies outside are still there when it ends."""
    for handle, line in handles:
        if handle.is_registered:
            raise TraceError(
                f"a traced function registers a hook, at {line}, on a Tensor or module from outside and leaves it there: "
                "without a trace each call would add one more. Register it once outside (traced functions heed it), remove "
                "it before the function returns, or register it on a result that the function computes"
            )


# ---- hooks of one node ---------------------------------------------------------------------------


class NodeHooks:
    """What is registered at a node of the history.

    `values`: by output number, functions of the gradient of that result. `retained`: results whose `.grad` is kept, after
    those functions. `before`, `after`: functions around the node's own backward.
    """

    __slots__ = ("after", "before", "retained", "values", "watched")

    def __init__(self, watched: bool = False) -> None:
        self.watched = watched
        self.values: dict[int, HookTable] = {}
        self.retained: dict[int, weakref.ref[Tensor]] = {}
        self.before = HookTable(watched=watched)
        self.after = HookTable(watched=watched)

    def table(self, number: int) -> HookTable:
        """The functions of one result's gradient."""
        if number not in self.values:
            self.values[number] = HookTable(watched=self.watched)
        return self.values[number]

    def arrive(
        self, node: Any, gradients: list[Tensor | None], types: Sequence[Type]
    ) -> list[tuple[Tensor, Tensor]]:
        """Run what waits for the gradients of the node's results, which are replaced in the list; (Tensor, gradient) of
        retained ones, unless these have been changed in place and are results of something else now."""
        for number, table in self.values.items():
            gradient = gradients[number]
            if gradient is not None:
                gradients[number] = run_on_gradient(table, gradient, types[number])
        kept = [(reference(), gradients[number]) for number, reference in self.retained.items()]
        return [(t, g) for t, g in kept if t is not None and g is not None and t._grad_fn is node]


def run_on_gradient(table: HookTable, gradient: Tensor, type_: Type) -> Tensor:
    """The gradient after all hooks of a Tensor. Raises `GradError` for a result that cannot stand in its place."""
    for hook in list(table.values()):
        result = hook(gradient)
        if result is not None:
            gradient = _checked(hook, result, type_, "the gradient")
    return gradient


def run_before(
    table: HookTable, gradients: tuple[Tensor | None, ...], types: Sequence[Type | None]
) -> tuple[Tensor | None, ...]:
    """The gradients of a node's results after its hooks."""
    for hook in list(table.values()):
        result = hook(gradients)
        if result is not None:
            gradients = replaced(hook, result, gradients, types, "the gradients of the results")
    return gradients


def run_after(
    table: HookTable,
    gradients: tuple[Tensor | None, ...],
    types: Sequence[Type | None],
    of_results: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of a node's inputs after its hooks."""
    for hook in list(table.values()):
        result = hook(gradients, of_results)
        if result is not None:
            gradients = replaced(hook, result, gradients, types, "the gradients of the inputs")
    return gradients


def replaced(
    hook: Any,
    result: Any,
    old: tuple[Tensor | None, ...],
    types: Sequence[Type | None],
    what: str,
) -> tuple[Tensor | None, ...]:
    """A hook's result in the place of several gradients; a Tensor is a tuple of one. `types`: None where there is no gradient."""
    given = result if isinstance(result, tuple | list) else (result,)
    if len(given) != len(old):
        raise GradError(
            f"the hook {name_of(hook)} must return None or {what}, {len(old)} of them; got {len(given)}"
        )
    return tuple(
        None if g is None or t is None else _checked(hook, g, t, f"{what}, number {k},")
        for k, (g, t) in enumerate(zip(given, types, strict=True))
    )


def _checked(hook: Any, result: Any, type_: Type, what: str) -> Tensor:
    if not isinstance(result, Tensor):
        raise GradError(
            f"the hook {name_of(hook)} must return None or a Tensor {short(type_)} in place of {what}, got "
            f"{type(result).__name__}"
        )
    if result.type.shape != type_.shape or result.type.dtype != type_.dtype:
        raise GradError(
            f"the hook {name_of(hook)} must return {short(type_)} in place of {what}, got {short(result.type)}; a hook may "
            "change values, not shape or element type"
        )
    return result


# ---- leaves --------------------------------------------------------------------------------------


class AccumulateGrad:
    """Where the history ends in a leaf that requires a gradient: what waits there. `variable` is the leaf."""

    __slots__ = ("__weakref__", "_variable", "accumulated", "hooks")

    next_functions: tuple[Any, ...] = ()

    def __init__(self, variable: Tensor, watched: bool) -> None:
        self._variable = weakref.ref(variable)
        self.hooks = NodeHooks(watched)
        self.accumulated = HookTable(watched=watched)

    @property
    def variable(self) -> Tensor | None:
        """The leaf."""
        return self._variable()

    def name(self) -> str:
        """The name of this kind of node."""
        return "AccumulateGrad"

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook((), (gradient,))` runs when the gradient has been added to the leaf's `.grad`."""
        require_callable(hook)
        return self.hooks.after.add(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook((gradient,))` runs before the gradient is added to the leaf's `.grad`; what it returns is added instead."""
        require_callable(hook)
        return self.hooks.before.add(hook)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for the leaf's `.grad`, so that it is written as soon as it is complete."""
        return bool(self.accumulated or self.hooks.after)

    def functions(self) -> list[Any]:
        """All hooks."""
        return [hook for table in self._tables() for hook in table.values()]

    def state(self) -> tuple[Any, ...]:
        """What tells which hooks there are; () for none."""
        tables = self._tables()
        return tuple(tuple(map(HookIdentity, t.values())) for t in tables) if any(tables) else ()

    def _tables(self) -> list[HookTable]:
        hooks = self.hooks
        return [hooks.table(0), hooks.before, hooks.after, self.accumulated]

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


def accumulator_of(leaf: Tensor) -> AccumulateGrad:
    """The end of the history in a leaf; always the same one."""
    found = leaf._accumulator
    if found is None:
        argument = MODES.interpreter.argument_of(leaf)
        if argument is not None and argument is not leaf:
            found = accumulator_of(argument)
        else:
            found = AccumulateGrad(leaf, watched=not leaf.is_symbolic)
        leaf._accumulator = found
    accumulator: AccumulateGrad = found
    return accumulator


def register_on_tensor(tensor: Tensor, hook: Callable[..., Any]) -> RemovableHandle:
    """`Tensor.register_hook`."""
    require_callable(hook)
    if not tensor.requires_grad:
        raise located(
            GradError(
                f"{short(tensor.type)} does not require a gradient, so none will arrive at a hook; set requires_grad first"
            )
        )
    now = tensor._current()
    if now._grad_fn is None:
        return accumulator_of(tensor).hooks.table(0).add(hook)
    table: HookTable = now._grad_fn.waiting().table(now.output_number)
    return table.add(hook)


def register_after_accumulation(tensor: Tensor, hook: Callable[..., Any]) -> RemovableHandle:
    """`Tensor.register_post_accumulate_grad_hook`."""
    require_callable(hook)
    if not tensor.requires_grad or tensor.grad_fn is not None:
        what = (
            "is no leaf, and only leaves accumulate gradients; use register_hook"
            if tensor.grad_fn is not None
            else "does not require a gradient; set requires_grad first"
        )
        raise located(GradError(f"{short(tensor.type)} {what}"))
    return accumulator_of(tensor).accumulated.add(hook)


# ---- what compiled programs depend on ------------------------------------------------------------


def state_of(owner: Any) -> tuple[Any, ...]:
    """What tells which hooks an outside Tensor or a module has; () for none."""
    if isinstance(owner, Tensor):
        return () if owner._accumulator is None else owner._accumulator.state()
    hooks = owner.__dict__.get("_hooks")
    return () if hooks is None else hooks.state()


def functions_of(owner: Any) -> list[Any]:
    """The hooks of an outside Tensor or a module."""
    if isinstance(owner, Tensor):
        return [] if owner._accumulator is None else owner._accumulator.functions()
    hooks = owner.__dict__.get("_hooks")
    return [] if hooks is None else hooks.functions()


class HookWatch:
    """Notices when hooks of certain Tensors and modules are not those of a trace any more. Costs one comparison at a call."""

    __slots__ = ("_owners", "seen")

    def __init__(self, owners: Iterable[Any]) -> None:
        self.seen = REGISTRATIONS.count
        self._owners = [(owner, state_of(owner)) for owner in owners]

    def functions(self) -> list[Any]:
        """The hooks that the trace ran."""
        return [hook for owner, _ in self._owners for hook in functions_of(owner)]

    def changed(self) -> bool:
        """Whether there are others now; called when hooks were registered or removed somewhere."""
        count = REGISTRATIONS.count
        if any(state_of(owner) != state for owner, state in self._owners):
            return True
        self.seen = count
        return False
