"""The check that a compiled program still fits the state that its trace saw, as one generated function.

It runs at every call, so it is straight-line Python: follow each access path, compare by identity, compare scalars by value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracer.autograd.hooks import REGISTRATIONS, HookWatch
from tracer.core.source_lines import name_of
from tracer.random import default_generator
from tracer.tensors.modes import Untracked
from tracer.tensors.tensor import Tensor, intern
from tracer.tracing.recording.trace_records import Holder
from tracer.tracing.recording.trace_result import TraceResult
from tracer.tracing.state.code_reads import Found, reads
from tracer.tracing.state.container_contents import contents_of
from tracer.tracing.state.named_arrays import is_small, lenders
from tracer.tracing.state.object_paths import Path, code_names, find_paths, function_roots
from tracer.tracing.state.value_kinds import SCALARS, is_changeable, is_plain, is_users_object

Guard = Callable[[Any, Sequence[Any]], str | None]


def build_guard(
    fn: Any, recorded: TraceResult, objects: Mapping[str, Any], hooks: Sequence[Any] = ()
) -> tuple[Guard, dict[int, Path], str]:
    """(guard, paths of captured objects by id, source). `guard(fn, leaves)` is None when all holds, else what changed.

    `objects`: arguments that the signature compares by identity, such as modules, under their names; what was read through them
    has a path too. `hooks`: those of arguments.
    """
    plain = fn
    while not isinstance(plain, types.FunctionType) and hasattr(plain, "__func__"):
        plain = plain.__func__
    roots: list[tuple[Any, Path]] = []
    if isinstance(plain, types.FunctionType):
        base = "fn" if plain is fn else "fn.__func__"
        roots = list(function_roots(plain, base))
        if plain is not fn:
            roots.insert(0, (fn.__self__, Path("fn.__self__", "self")))
    else:
        roots = [(fn, Path("fn", ""))]
    constants: dict[str, Any] = {"Tensor": Tensor}
    names_of: dict[str, str] = {}
    for name, item in (*objects.items(), ("generator", default_generator)):
        names_of[name] = f"k{len(constants)}"
        constants[names_of[name]] = item
        roots.append((item, Path(names_of[name], name)))
    captured = [c.object for c in recorded.captures if isinstance(c.object, Tensor)]
    watch = HookWatch([*captured, *recorded.modules])
    constants["watch"], constants["registrations"] = watch, REGISTRATIONS
    for hook in (*hooks, *watch.functions()):
        name = f"k{len(constants)}"
        constants[name] = hook
        roots.append((hook, Path(name, name_of(hook))))
    targets: dict[int, Any] = {id(c.object): c.object for c in recorded.captures}
    targets |= {id(s.container): s.container for s in recorded.scalars}
    targets |= {id(m): m for m in recorded.modules}
    paths = find_paths(roots, targets, plain)
    lines: list[str] = [
        "if watch.seen != registrations.count and watch.changed(): return 'hooks were registered or removed'"
    ]

    def constant(value: Any) -> str:
        name = f"k{len(constants)}"
        constants[name] = value
        return name

    kept: dict[int, str] = {}

    def keep(value: Any) -> str:
        if id(value) not in kept:
            kept[id(value)] = constant(value)
        return kept[id(value)]

    def holder(whose: Holder) -> str:
        return f"leaves[{whose}]" if isinstance(whose, int) else constant(whose)

    told: set[str] = set()

    def same(expression: str, value: Any, what: str) -> None:
        if expression not in told:
            told.add(expression)
            lines.append(f"if {expression} is not {keep(value)}: return {what!r}")

    def equal(expression: str, value: Any, what: str) -> None:
        if value is None or value is True or value is False:
            lines.append(f"if {expression} is not {value!r}: return {what!r}")
            return
        name = constant(value)
        lines.append(f"v = {expression}")
        other = f"repr(v) != repr({name})" if isinstance(value, tuple) else f"v != {name}"
        lines.append(
            f"if v is not {name} and (v.__class__ is not {name}.__class__ or {other}): return {what!r}"
        )

    def typed(expression: str, value: Tensor, name: str) -> None:
        known, flag = constant(value.type), constant(value._requires_grad)
        lines.append(f"v = {expression}")
        lines.append(
            f"if not isinstance(v, Tensor) or v._value is not None or v.type != {known} or v._flag_now() is not {flag}: "
            f"return {f'the type of {name} changed'!r}"
        )

    def content(found: Found) -> None:
        array = found.value
        kind = f"v.__class__ is not {constant(type(array))} or v.dtype != {constant(array.dtype)}"
        lines.append(f"v = {found.expression}")
        lines.append(
            f"if {kind} or v.shape != {array.shape} or v.tobytes() != {constant(array.tobytes())}: "
            f"return {f'the array {found.name} had other elements'!r}"
        )

    # Arrays that tracer's functions read are inputs; what NumPy computes with others is part of the trace.
    read = {id(x) for c in recorded.captures for x in lenders(c.object)}
    given = {name: Found(constants[key], key, name) for name, key in names_of.items()}
    starts: list[tuple[Found, Mapping[str, Found]]] = [(Found(fn, "fn", ""), given)]
    starts += [(Found(m, keep(m), type(m).__name__), {}) for m in recorded.modules]
    starts += [(Found(h, keep(h), name_of(h)), {}) for h in (*hooks, *watch.functions())]
    followed = frozenset(map(id, recorded.followed))
    captures = {id(c.object) for c in recorded.captures}
    for found in reads(starts, keep):
        if found.written or found.cleared or id(found.value) in followed:
            continue  # the last ones are checked below
        if isinstance(found.value, Tensor):
            if id(found.value) in captures or found.value._view is not None:
                same(found.expression, found.value, f"{found.name} was another object")
            else:  # only what everybody sees of it can have been used
                typed(found.expression, found.value, found.name)
            continue
        if found.content:
            contents = contents_of(found.value, followed)
            if contents is not None:
                lines.append(
                    f"if not {constant(contents)}.are_in({found.expression}): "
                    f"return {f'{found.name} had other elements'!r}"
                )
        elif is_plain(found.value):
            equal(found.expression, found.value, f"{found.name} was {found.value!r}")
        elif isinstance(found.value, np.ndarray):
            if id(found.value) not in read and is_small(found.value):
                content(found)
        elif is_users_object(found.value):  # whose attributes are followed by themselves
            kind = constant(type(found.value))
            lines.append(
                f"if {found.expression}.__class__ is not {kind}: return {f'{found.name} was of another class'!r}"
            )
        elif not is_changeable(found.value):
            same(found.expression, found.value, f"{found.name} was another function")
    for module in recorded.modules:
        path = paths.get(id(module))
        if path is not None:
            same(path.expression, module, f"{path.name or 'the module'} was another module")
        name = constant(module.__dict__)
        same(
            f"{name}.get('forward')", module.__dict__.get("forward"), "forward was another function"
        )
        for key, value in module.__dict__.items():
            if isinstance(value, SCALARS):
                equal(
                    f"{name}[{key!r}]",
                    value,
                    f"{path.name if path else type(module).__name__}.{key} was {value!r}",
                )
        for group in ("_parameters", "_buffers", "_modules"):
            members = module.__dict__.get(group)
            if isinstance(members, dict):
                lines.append(
                    f"if len({name}[{group!r}]) != {len(members)}: return {'the members of a module changed'!r}"
                )
                table = constant(members)
                for key, value in members.items():
                    same(
                        f"{table}.get({key!r})",
                        value,
                        f"{path.name + '.' if path else ''}{key} was another object",
                    )
    for container, key, flag in recorded.flags:
        lines.append(
            f"if ({constant(container)}[{key!r}] != 0) is not {flag}: return {f'{key} became {0 if flag else 1}'!r}"
        )
    for capture in recorded.captures:
        if capture.is_grad:
            known = constant(intern(capture.value.type))
            name = holder(capture.object)
            lines.append(
                f"if {name}._grad is None or {name}._grad.type != {known}: return {'a gradient changed'!r}"
            )
            continue
        path = paths.get(id(capture.object))
        if capture.place is not None:
            typed(f"{constant(capture.place)}()", capture.object, path.name if path else "state")
            continue
        if path is not None:
            same(path.expression, capture.object, f"{path.name} was another object")
        if isinstance(capture.object, Tensor):
            name = constant(capture.object)
            known = constant(intern(capture.object.type))
            label = path.name if path else "a captured Tensor"
            # a view's flag follows the base
            now = name if capture.object._view is None else f"{name}._current()"
            mark = capture.object._requires_grad
            expected = keep(mark) if isinstance(mark, Untracked) else repr(mark)
            lines.append(
                f"if {name}.type is not {known} and {name}.type != {known} or {now}._requires_grad is not "
                f"{expected}: return {f'the type of {label} changed'!r}"
            )
        else:
            name = constant(capture.object)
            shape, dtype = constant(capture.object.shape), constant(capture.object.dtype)
            lines.append(
                f"if {name}.shape != {shape} or {name}.dtype != {dtype}: return {'a captured array changed its type'!r}"
            )
    for whose, present in recorded.read_grads:
        test = "is None" if present else "is not None"
        lines.append(
            f"if {holder(whose)}._grad {test}: return {'a gradient that was there is gone, or the other way round'!r}"
        )
    for scalar in recorded.scalars:
        path = paths.get(id(scalar.container))
        if path is not None:
            same(path.expression, scalar.container, f"{path.name} was another object")
        name = constant(scalar.container)
        lines.append(f"v = {name}[{scalar.key!r}]")
        lines.append(
            f"if v.__class__ is not float and not isinstance(v, float): return {f'{scalar.key} is no float'!r}"
        )
    body = "\n        ".join(lines) or "pass"
    source = (
        "def guard(fn, leaves):\n    try:\n        "
        + body
        + "\n    except (KeyError, AttributeError, IndexError, TypeError, ValueError):\n"
        + "        return 'an object that the trace used is gone'\n    return None\n"
    )
    namespace = dict(constants)
    exec(compile(source, "<tracer guard>", "exec"), namespace)
    return namespace["guard"], paths, source


__all__ = ["build_guard", "code_names"]
