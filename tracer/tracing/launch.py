"""The fast way into a compiled program: one generated function that checks a call, runs the program and wraps the results.

It covers calls with flat positional arguments. Whatever it does not expect (another type, an array that is not row-major, a failed
guard) it leaves to the general way by returning MISS, before anything has happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.memory import allocate
from ops.types import numpy_dtype
from tracer.autograd.history import CompiledNode
from tracer.modes import MODES
from tracer.nn.parameter import Parameter
from tracer.recording import Holder
from tracer.tensor import Array, Tensor, is_plain

if TYPE_CHECKING:
    from tracer.tracing.entry import Entry

MISS = object()


def ready(tensor: Tensor) -> int:
    """The address of a Tensor's elements if programs can read them as they lie, else 0."""
    array = tensor._array
    return tensor.pointer if array is not None and is_plain(array) else 0


def ready_to_write(tensor: Tensor) -> int:
    """The address of a Tensor's elements if programs can change them as they lie, else 0."""
    array = tensor._array
    return tensor.pointer if array is not None and array.flags.writeable and is_plain(array) else 0


def array_pointer(array: Array) -> int:
    """The same for an array that is read."""
    pointer: int = array.__array_interface__["data"][0] if is_plain(array) else 0
    return pointer


def array_to_write(array: Array) -> int:
    """The same for an array that is changed."""
    return array_pointer(array) if array.flags.writeable else 0


def build_launch(entry: Entry, tree: Any) -> Callable[[tuple[Any, ...]], Any] | None:
    """`launch(args)`: the result of the call, or MISS. None where the arguments are nested or named."""
    recorded, executable = entry.recorded, entry.executable
    leaves = entry.signature
    if recorded.backward is not None or not _is_flat(tree, len(leaves)):
        return None
    constants: dict[str, Any] = {
        "MISS": MISS,
        "Tensor": Tensor,
        "Parameter": Parameter,
        "ndarray": np.ndarray,
        "MODES": MODES,
        "ready": ready,
        "ready_to_write": ready_to_write,
        "array_pointer": array_pointer,
        "array_to_write": array_to_write,
        "allocate": allocate,
        "new": object.__new__,
        "guard": entry.guard,
        "fn": entry.fn,
        "call": executable._call,
        "keep": executable,  # its constants, which the program points to
        "released": CompiledNode.released_node(recorded.graph.name),
    }
    lines: list[str] = []

    def constant(value: Any) -> str:
        name = f"k{len(constants)}"
        constants[name] = value
        return name

    def holder(whose: Holder) -> str:
        return f"x{whose}" if isinstance(whose, int) else constant(whose)

    names = [f"x{k}" for k in range(len(leaves))]
    lines.append(f"if len(args) != {len(leaves)} or MODES.grad_enabled is not {entry.grad_enabled}: return MISS")
    if names:
        lines.append(f"{', '.join(names)}, = args")
    words: dict[int, str] = {}
    written = executable.sharing.written
    base = len(recorded.captures) + len(recorded.scalars)
    position = {leaf: base + k for k, leaf in enumerate(recorded.argument_leaves)}
    for k, (leaf, x) in enumerate(zip(leaves, names, strict=True)):
        if leaf.kind == "tensor":
            kind = constant(leaf.type)
            lines.append(
                f"if ({x}.__class__ is not Tensor and {x}.__class__ is not Parameter) or {x}.type is not {kind} "
                f"or {x}._requires_grad is not {leaf.requires_grad}: return MISS"
            )
            lines.append(f"p{k} = {x}._pointer or {'ready_to_write' if position[k] in written else 'ready'}({x})")
            lines.append(f"if not p{k}: return MISS")
            words[position[k]] = f"p{k}"
        elif leaf.kind == "array":
            assert leaf.type is not None
            dtype, shape = constant(numpy_dtype(leaf.type.dtype)), constant(leaf.type.shape)
            lines.append(f"if {x}.__class__ is not ndarray or {x}.dtype is not {dtype} or {x}.shape != {shape}: return MISS")
            lines.append(f"p{k} = {'array_to_write' if position[k] in written else 'array_pointer'}({x})")
            lines.append(f"if not p{k}: return MISS")
            words[position[k]] = f"p{k}"
        elif leaf.kind == "float":
            lines.append(f"if {x}.__class__ is not float: return MISS")
            words[position[k]] = x
        elif leaf.kind == "static":
            value = leaf.value.value
            if value is None or value is True or value is False:
                lines.append(f"if {x} is not {value!r}: return MISS")
            elif isinstance(value, float | complex):  # -0.0 is another value than 0.0
                kept = f"{constant(type(value))} or repr({x}) != {constant(repr(value))}"
                lines.append(f"if {x}.__class__ is not {kept}: return MISS")
            else:
                name = constant(value)
                lines.append(f"if {x}.__class__ is not {name}.__class__ or {x} != {name}: return MISS")
        else:
            lines.append(f"if {x} is not {constant(leaf.value.object)}: return MISS")
    lines.append("if guard(fn, args) is not None: return MISS")
    for number, capture in enumerate(recorded.captures):
        if isinstance(capture.object, np.ndarray):
            lines.append(f"c{number} = {'array_to_write' if number in written else 'array_pointer'}({constant(capture.object)})")
            lines.append(f"if not c{number}: return MISS")
        else:
            source = holder(capture.object)
            if capture.is_grad:
                lines.append(f"g{number} = {source}._grad")
                source = f"g{number}"
            lines.append(f"c{number} = {source}._pointer or {'ready_to_write' if number in written else 'ready'}({source})")
            lines.append(f"if not c{number}: return MISS")
        words[number] = f"c{number}"
    for number, scalar in enumerate(recorded.scalars):
        lines.append(f"s{number} = {constant(scalar.container)}[{scalar.key!r}]")
        lines.append(f"if s{number}.__class__ is not float: return MISS")
        words[len(recorded.captures) + number] = f"s{number}"
    if written:
        constants["sharing"] = executable.sharing.may_share
        state = "".join(f"c{k}, " for k in range(len(recorded.captures)))
        given = [k for k, leaf in enumerate(leaves) if leaf.kind in ("tensor", "array")]
        arguments = "".join(f"p{k}, " for k in given)
        numbers = constant(tuple(position[k] for k in given))
        lines.append(f"if sharing(({state}), {numbers}, ({arguments})): return MISS")
    inputs = [words[k] for k in range(base + len(recorded.argument_leaves))]
    if executable._check is not None:
        constants["check"] = executable._check.test_words
        lines.append(f"check({', '.join(inputs)})")
    results: dict[int, str] = {}
    outputs: list[str] = []
    for number, (kind, _, type_) in enumerate(executable._results):
        if kind == "new":
            lines.append(f"b{number} = allocate({int(type_.size) * type_.itemsize})")
            outputs.append(f"b{number}.pointer")
            results[number] = f"o{number}"
        elif kind == "input":
            return None
    if executable._workspace:
        lines.append(f"w = allocate({executable._workspace})")
        outputs.append("w.pointer")
    else:
        outputs.append("0")
    lines.append(f"call({', '.join([*inputs, *outputs])})")
    wanted = {o.number for o in recorded.outputs if o.kind == "program"}
    first_grad = recorded.result_count + len(recorded.mutated) + len(recorded.mutated_arguments)
    grads: list[tuple[str, int | None]] = []
    for whose, present in recorded.grads:
        grads.append((holder(whose), first_grad if present else None))
        if present:
            wanted.add(first_grad)
            first_grad += 1
    needs_grad = {o.number for o in recorded.outputs if o.kind == "program" and o.requires_grad}
    for number in sorted(wanted):
        if number not in results:
            return None
        type_ = constant(executable._results[number][2])
        o = results[number]
        lines.append(f"{o} = new(Tensor)")
        lines.append(f"{o}.type = {type_}; {o}._block = b{number}; {o}._pointer = b{number}.pointer")
        if number in needs_grad:
            lines.append(f"{o}._requires_grad = True; {o}.grad_fn = released")
        else:
            lines.append(f"{o}._requires_grad = False")
    for tensor in recorded.mutated:
        lines.append(f"{constant(tensor)}._version += 1")
    for leaf in recorded.mutated_arguments:
        lines.append(f"if x{leaf}.__class__ is not ndarray: x{leaf}._version += 1")
    for whose_grad, number_or_none in grads:
        lines.append(f"{whose_grad}._grad = {'None' if number_or_none is None else results[number_or_none]}")
    parts = []
    for output in recorded.outputs:
        if output.kind == "program":
            parts.append(results[output.number])
        elif output.kind == "argument":
            parts.append(f"x{output.number}")
        else:
            parts.append(constant(output.object))
    shape = _result_shape(recorded.tree)
    if shape == "leaf":
        lines.append(f"return {parts[0]}")
    elif shape == "tuple":
        lines.append(f"return ({', '.join(parts)},)" if parts else "return ()")
    else:
        unflatten = constant(recorded.tree)
        lines.append(f"return {unflatten}.unflatten(({', '.join(parts)},))" if parts else f"return {unflatten}.unflatten(())")
    source = "def launch(args):\n    " + "\n    ".join(lines) + "\n"
    namespace = dict(constants)
    exec(compile(source, "<tracer launch>", "exec"), namespace)
    launch: Callable[[tuple[Any, ...]], Any] = namespace["launch"]
    return launch


def _is_flat(tree: Any, count: int) -> bool:
    """Whether the arguments are `count` positional leaves."""
    args, kwargs = tree.children()
    return args.num_leaves == count and kwargs.num_leaves == 0 and all(c.is_leaf() for c in args.children())


def _result_shape(tree: Any) -> str:
    if tree.is_leaf():
        return "leaf"
    if tree.type is tuple and all(c.is_leaf() for c in tree.children()):
        return "tuple"
    return "tree"
