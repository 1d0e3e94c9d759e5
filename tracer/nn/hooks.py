"""Hooks of modules: functions that run before and after `forward`, and where gradients leave and enter a module.

Knows how a call of `forward` is wrapped. Must not know parameters, buffers or submodules.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ops.errors import ArgumentError, GradError
from ops.types import Type, short
from tracer.autograd.argument_trees import flatten, unflatten
from tracer.autograd.gradient_node import GradientNode, edge_of
from tracer.autograd.hooks import (
    HookIdentity,
    HookTable,
    RemovableHandle,
    replaced,
    require_callable,
)
from tracer.core.source_lines import located, name_of
from tracer.dispatch.view_updates import frozen
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Gradients = tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class ForwardHook:
    """A function around `forward`. `always`: it also runs when `forward` raises."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always: bool = False


class ModuleHooks:
    """The hooks of one module."""

    __slots__ = ("after", "before", "gradients_in", "gradients_out")

    def __init__(self) -> None:
        self.before = HookTable(watched=True)  # of ForwardHook
        self.after = HookTable(watched=True)
        self.gradients_out = HookTable(watched=True)  # of functions
        self.gradients_in = HookTable(watched=True)

    def _tables(self) -> tuple[HookTable, ...]:
        return self.before, self.after, self.gradients_out, self.gradients_in

    def state(self) -> tuple[Any, ...]:
        """What tells which hooks there are; () for none."""
        forward = [
            tuple((HookIdentity(e.function), e.with_kwargs, e.always) for e in table.values())
            for table in (self.before, self.after)
        ]
        backward = [
            tuple(map(HookIdentity, table.values()))
            for table in (self.gradients_out, self.gradients_in)
        ]
        return (*forward, *backward) if any(self._tables()) else ()

    def functions(self) -> list[Any]:
        """All hooks."""
        return [
            entry.function if isinstance(entry, ForwardHook) else entry
            for table in self._tables()
            for entry in table.values()
        ]


class HookedModule:
    """The part of `Module` that registers hooks and runs them."""

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """`hook(module, args)` runs before `forward`; arguments that it returns stand in for the old ones.

        A value that is no tuple is the only argument. `with_kwargs`: `hook(module, args, kwargs)`, which returns None or
        (args, kwargs). `prepend`: it runs before the hooks that are there.
        """
        require_callable(hook)
        return self._waiting().before.add(ForwardHook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """`hook(module, args, result)` runs after `forward`; what it returns stands in for the result.

        `with_kwargs`: `hook(module, args, kwargs, result)`. `always_call`: it runs, with None for a result, also when `forward`
        raises.
        """
        require_callable(hook)
        return self._waiting().after.add(ForwardHook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` runs when the gradients of the module's inputs are known.

        Both are tuples: of the positional arguments and of the results, with None for what requires no gradient and for results
        that got none. A tuple that it returns stands in for `grad_input`.
        """
        require_callable(hook)
        return self._waiting().gradients_in.add(hook, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """`hook(module, grad_output)` runs when the gradients of the module's results are known.

        A tuple that it returns stands in for them.
        """
        require_callable(hook)
        return self._waiting().gradients_out.add(hook, prepend)

    def _waiting(self) -> ModuleHooks:
        found: ModuleHooks | None = self.__dict__.get("_hooks")
        if found is None:
            found = self.__dict__["_hooks"] = ModuleHooks()
        return found


def call_with_hooks(
    module: Any, hooks: ModuleHooks, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`module.forward` between the module's hooks."""
    ran: set[int] = set()
    result: Any = None
    try:
        for entry in list(hooks.before.values()):
            args, kwargs = _arguments(module, entry, args, kwargs)
        passing: _Passing | None = None
        passed: list[Tensor] = []
        if MODES.grad_enabled and (hooks.gradients_out or hooks.gradients_in):
            passing = _Passing(module, hooks)
            args, passed = passing.enter(args)
        marks = [_mark(x) for x in passed]
        result = module.forward(*args, **kwargs)
        _refuse_changes(passed, marks, module)
        for number, entry in list(hooks.after.items()):
            ran.add(number)
            result = _after(module, entry, args, kwargs, result)
        return result if passing is None else passing.leave(result)
    except Exception:
        for number, entry in list(hooks.after.items()):
            if entry.always and number not in ran:
                _after_failure(module, entry, args, kwargs, result)
        raise


def _arguments(
    module: Any, entry: ForwardHook, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not entry.with_kwargs:
        result = entry.function(module, args)
        if result is not None:
            args = result if isinstance(result, tuple) else (result,)
        return args, kwargs
    result = entry.function(module, args, kwargs)
    if result is None:
        return args, kwargs
    if not (
        isinstance(result, tuple)
        and len(result) == 2
        and isinstance(result[0], tuple)
        and isinstance(result[1], dict)
    ):
        raise located(
            ArgumentError(
                f"the hook {name_of(entry.function)} must return None or a tuple (args, kwargs) of a tuple and a dict, got "
                f"{type(result).__name__}"
            )
        )
    return result


def _after(
    module: Any, entry: ForwardHook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Any:
    if entry.with_kwargs:
        new = entry.function(module, args, kwargs, result)
    else:
        new = entry.function(module, args, result)
    return result if new is None else new


def _after_failure(
    module: Any, entry: ForwardHook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> None:
    """A hook that runs in any case: its own failure must not hide the first one."""
    try:
        _after(module, entry, args, kwargs, result)
    except Exception as error:
        warnings.warn(
            f"the hook {name_of(entry.function)} raised {type(error).__name__} while another error was on its way: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


# ---- gradients -----------------------------------------------------------------------------------


class Passage(GradientNode):
    """The history of Tensors that pass together and unchanged, so that hooks meet all their gradients at once."""

    __slots__ = ("label",)

    def __init__(self, tensors: Sequence[Tensor], label: str) -> None:
        types = tuple(x.type for x in tensors)
        super().__init__(tuple(map(edge_of, tensors)), types, types)
        self.label = label

    def name(self) -> str:
        """The name of the module, and which of its sides this is."""
        return f"{self.label}Backward"

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """The same cotangents."""
        return cotangents


@dataclass(frozen=True, slots=True)
class _Side:
    """Where Tensors enter or leave a module: the types of those that require gradients, None for other leaves.

    It does not hold the Tensors, whose history leads to it.
    """

    types: tuple[Type | None, ...]

    def all(self, gradients: Gradients) -> Gradients:
        """The gradients of the Tensors with None for the other leaves."""
        given = iter(gradients)
        return tuple(None if t is None else next(given) for t in self.types)

    def own(self, gradients: Gradients) -> Gradients:
        """The other way round."""
        return tuple(g for g, t in zip(gradients, self.types, strict=True) if t is not None)


def _pass(leaves: Sequence[Any], label: str) -> tuple[_Side, list[Any], list[Tensor]]:
    """A side, the leaves behind it, and those among them that have passed it."""
    types = tuple(x.type if isinstance(x, Tensor) and x.requires_grad else None for x in leaves)
    tensors = [x for x, t in zip(leaves, types, strict=True) if t is not None]
    node = Passage(tensors, label) if tensors else None
    passed = [frozen(x) for x in tensors]
    for number, x in enumerate(passed):
        x._requires_grad, x._grad_fn, x.output_number = True, node, number
    behind = iter(passed)
    return (
        _Side(types),
        [x if t is None else next(behind) for x, t in zip(leaves, types, strict=True)],
        passed,
    )


class _Passing:
    """One call of a module whose gradients hooks wait for."""

    def __init__(self, module: Any, hooks: ModuleHooks) -> None:
        self.module, self.name = module, type(module).__name__
        self.out_hooks = tuple(hooks.gradients_out.values())
        self.in_hooks = tuple(hooks.gradients_in.values())
        self.gradients: Gradients | None = None

    def enter(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Tensor]]:
        """The arguments, through the near side; and those Tensors among them that have passed it."""
        leaves, tree = flatten(args)
        self.near, leaves, passed = _pass(leaves, f"{self.name}.input")
        if passed and passed[0]._grad_fn is not None and self.in_hooks:
            passed[0]._grad_fn.waiting().after.add(self._gradients_of_inputs)
        result: tuple[Any, ...] = unflatten(tree, leaves)
        return result, passed

    def leave(self, result: Any) -> Any:
        """The result, through the far side."""
        leaves, tree = flatten(result)
        self.far, leaves, passed = _pass(leaves, f"{self.name}.output")
        if not passed:
            return result
        assert passed[0]._grad_fn is not None
        passed[0]._grad_fn.waiting().before.add(self._gradients_of_results)
        return unflatten(tree, leaves)

    def _gradients_of_results(self, gradients: Gradients) -> Gradients:
        everything = self.far.all(gradients)
        for hook in self.out_hooks:
            new = hook(self.module, everything)
            if new is not None:
                everything = replaced(
                    hook, new, everything, self.far.types, "the gradients of the module's results"
                )
        self.gradients = everything
        if all(t is None for t in self.near.types):
            self._without_inputs(everything)
        return self.far.own(everything)

    def _gradients_of_inputs(self, gradients: Gradients, _: Gradients) -> Gradients:
        if self.gradients is None:
            return gradients
        everything, of_results = self.near.all(gradients), self.gradients
        self.gradients = None
        for hook in self.in_hooks:
            new = hook(self.module, everything, of_results)
            if new is not None:
                everything = replaced(
                    hook, new, everything, self.near.types, "the gradients of the module's inputs"
                )
        return self.near.own(everything)

    def _without_inputs(self, of_results: Gradients) -> None:
        """No input requires a gradient: hooks run when the gradients of the results are known."""
        nothing: Gradients = (None,) * len(self.near.types)
        for hook in self.in_hooks:
            new = hook(self.module, nothing, of_results)
            given = new if isinstance(new, tuple | list) else (new,)
            if any(g is not None for g in given):
                raise GradError(
                    f"the hook {name_of(hook)} returned gradients of the inputs of {self.name}, none of which requires one; "
                    "return None"
                )


def _refuse_changes(passed: Sequence[Tensor], marks: Sequence[Any], module: Any) -> None:
    """Raise `GradError` if `forward` changed an argument in place: the Tensor behind it would not know."""
    for x, mark in zip(passed, marks, strict=True):
        now = _mark(x)
        if now is not mark and now != mark:
            raise located(
                GradError(
                    f"{type(module).__name__} changes its argument {short(x.type)} in place and has backward hooks, which would "
                    "miss the change; let it change a copy (x.clone()), or remove the hooks"
                )
            )


def _mark(x: Tensor) -> Any:
    """What is another one after a change in place."""
    return MODES.interpreter.version_of(x)
