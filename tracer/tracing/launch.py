"""The fast way into a compiled program: one generated function that checks a call, runs the program and wraps the results.

It covers calls with flat positional arguments. Whatever it does not expect (another type, an array that is not row-major, a
failed guard) it leaves to the general way by returning MISS, before anything has happened.
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
from tracer.tracing.signature import arrival_of

if TYPE_CHECKING:
    from tracer.tracing.entry import Entry
    from tracer.tracing.signature import Leaf

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
    if entry.recorded.backward is not None or not _is_flat(tree, len(entry.signature)):
        return None
    if any(kind == "input" for kind, _, _ in entry.executable.results):
        return None
    writer = _Writer(entry)
    writer.arguments()
    writer.state()
    writer.run()
    writer.write_state()
    writer.give_back()
    return writer.function()


class _Writer:
    """Writes the function, part by part. Variables: x0 ... arguments, p0 ... their addresses, c0 ... addresses and s0 ... numbers
    of the state, b0 ... blocks of results, o0 ... results."""

    def __init__(self, entry: Entry) -> None:
        self.recorded, self.executable, self.leaves = (
            entry.recorded,
            entry.executable,
            entry.signature,
        )
        self.grad_enabled = entry.grad_enabled
        self.constants: dict[str, Any] = {
            "MISS": MISS,
            "Tensor": Tensor,
            "Parameter": Parameter,
            "ndarray": np.ndarray,
            "MODES": MODES,
            "ready": ready,
            "ready_to_write": ready_to_write,
            "array_pointer": array_pointer,
            "array_to_write": array_to_write,
            "arrival_of": arrival_of,
            "allocate": allocate,
            "new": object.__new__,
            "guard": entry.guard,
            "fn": entry.fn,
            "call": self.executable.call,
            "keep": self.executable,  # its constants, which the program points to
            "released": CompiledNode.released_node(self.recorded.graph.name),
        }
        self.lines: list[str] = []
        self.words: dict[int, str] = {}  # by number of the program's input
        self.results: dict[int, str] = {}  # by number of its output
        self.written = self.executable.sharing.written
        base = len(self.recorded.captures) + len(self.recorded.scalars)
        self.position = {leaf: base + k for k, leaf in enumerate(self.recorded.argument_leaves)}

    def add(self, line: str) -> None:
        """One more line."""
        self.lines.append(line)

    def require(self, wrong: str) -> None:
        """Leave the call to the general way if an expression holds."""
        self.add(f"if {wrong}: return MISS")

    def constant(self, value: Any) -> str:
        """An expression for a value."""
        if value is True or value is False:
            return repr(value)
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def holder(self, whose: Holder) -> str:
        """An expression for the Tensor whose gradient is meant."""
        return f"x{whose}" if isinstance(whose, int) else self.constant(whose)

    # ---- before anything happens
    def arguments(self) -> None:
        """Check them and find their addresses."""
        self.require(
            f"len(args) != {len(self.leaves)} or MODES.grad_enabled is not {self.constant(self.grad_enabled)}"
        )
        if self.leaves:
            self.add(f"{', '.join(f'x{k}' for k in range(len(self.leaves)))}, = args")
        for k, leaf in enumerate(self.leaves):
            getattr(self, f"_{leaf.kind}")(k, leaf)
        self.require("guard(fn, args) is not None")

    def _tensor(self, k: int, leaf: Leaf) -> None:
        x, place = f"x{k}", self.position[k]
        self.require(
            f"({x}.__class__ is not Tensor and {x}.__class__ is not Parameter) or {x}.type is not {self.constant(leaf.type)} "
            f"or {x}._requires_grad is not {self.constant(leaf.requires_grad)}"
        )
        if leaf.requires_grad:
            self.require(f"arrival_of({x}) != {self.constant(leaf.value)}")
        self._address(f"p{k}", x, place)

    def _array(self, k: int, leaf: Leaf) -> None:
        assert leaf.type is not None
        x, place = f"x{k}", self.position[k]
        dtype, shape = self.constant(numpy_dtype(leaf.type.dtype)), self.constant(leaf.type.shape)
        self.require(
            f"{x}.__class__ is not ndarray or {x}.dtype is not {dtype} or {x}.shape != {shape}"
        )
        self._array_address(f"p{k}", x, place)

    def _float(self, k: int, leaf: Leaf) -> None:
        self.require(f"x{k}.__class__ is not float")
        self.words[self.position[k]] = f"x{k}"

    def _static(self, k: int, leaf: Leaf) -> None:
        x, value = f"x{k}", leaf.value.value
        if value is None or value is True or value is False:
            self.require(f"{x} is not {value!r}")
        elif isinstance(value, float | complex):  # -0.0 is another value than 0.0
            self.require(
                f"{x}.__class__ is not {self.constant(type(value))} or repr({x}) != {self.constant(repr(value))}"
            )
        else:
            name = self.constant(value)
            self.require(f"{x}.__class__ is not {name}.__class__ or {x} != {name}")

    def _object(self, k: int, leaf: Leaf) -> None:
        self.require(f"x{k} is not {self.constant(leaf.value.object)}")

    def _address(self, name: str, tensor: str, place: int) -> None:
        self.add(
            f"{name} = {tensor}._pointer or {'ready_to_write' if place in self.written else 'ready'}({tensor})"
        )
        self.require(f"not {name}")
        self.words[place] = name

    def _array_address(self, name: str, array: str, place: int) -> None:
        self.add(
            f"{name} = {'array_to_write' if place in self.written else 'array_pointer'}({array})"
        )
        self.require(f"not {name}")
        self.words[place] = name

    def state(self) -> None:
        """Find its addresses and numbers, and check that what the program writes is nobody else's."""
        for number, capture in enumerate(self.recorded.captures):
            if isinstance(capture.object, np.ndarray):
                self._array_address(f"c{number}", self.constant(capture.object), number)
                continue
            source = self.holder(capture.object)
            if capture.is_grad:
                self.add(f"g{number} = {source}._grad")
                source = f"g{number}"
            self._address(f"c{number}", source, number)
        for number, scalar in enumerate(self.recorded.scalars):
            self.add(f"s{number} = {self.constant(scalar.container)}[{scalar.key!r}]")
            self.require(f"s{number}.__class__ is not float")
            self.words[len(self.recorded.captures) + number] = f"s{number}"
        if self.written:
            self.constants["sharing"] = self.executable.sharing.may_share
            state = "".join(f"c{k}, " for k in range(len(self.recorded.captures)))
            given = [k for k, leaf in enumerate(self.leaves) if leaf.kind in ("tensor", "array")]
            addresses = "".join(f"p{k}, " for k in given)
            numbers = self.constant(tuple(self.position[k] for k in given))
            self.require(f"sharing(({state}), {numbers}, ({addresses}))")

    # ---- what happens
    def run(self) -> None:
        """Call the program."""
        inputs = [self.words[k] for k in range(len(self.words))]
        if self.executable.check is not None:
            self.constants["check"] = self.executable.check.test_words
            self.add(f"check({', '.join(inputs)})")
        outputs = []
        for number, (kind, _, type_) in enumerate(self.executable.results):
            if kind == "new":
                self.add(f"b{number} = allocate({int(type_.size) * type_.itemsize})")
                outputs.append(f"b{number}.pointer")
                self.results[number] = f"o{number}"
        if self.executable.workspace:
            self.add(f"w = allocate({self.executable.workspace})")
            outputs.append("w.pointer")
        else:
            outputs.append("0")
        self.add(f"call({', '.join([*inputs, *outputs])})")

    def write_state(self) -> None:
        """Make Tensors of the results, count changes, set gradients."""
        recorded = self.recorded
        number = recorded.result_count + len(recorded.mutated) + len(recorded.mutated_arguments)
        wanted = {o.number for o in recorded.outputs if o.kind == "program"}
        grads: list[tuple[str, str]] = []
        for whose, present in recorded.grads:
            grads.append((self.holder(whose), self.results[number] if present else "None"))
            if present:
                wanted.add(number)
                number += 1
        flags = {o.number: o.requires_grad for o in recorded.outputs if o.kind == "program"}
        for number in sorted(wanted):
            o, b = self.results[number], f"b{number}"
            self.add(f"{o} = new(Tensor)")
            type_ = self.constant(self.executable.results[number][2])
            self.add(f"{o}.type = {type_}; {o}._block = {b}; {o}._pointer = {b}.pointer")
            flag = flags.get(number, False)
            history = f"; {o}.grad_fn = released" if flag else ""
            self.add(f"{o}._requires_grad = {self.constant(flag)}{history}")
        for tensor in recorded.mutated:
            self.add(f"{self.constant(tensor.changes())}[0] += 1")
        for leaf in recorded.mutated_arguments:
            self.add(f"if x{leaf}.__class__ is not ndarray: x{leaf}._version += 1")
        for holder, grad in grads:
            self.add(f"{holder}._grad = {grad}")
        for whose, new in recorded.new_flags:
            self.add(f"{self.holder(whose)}._requires_grad = {self.constant(new)}")

    def give_back(self) -> None:
        """Return the results in their tree."""
        parts = []
        for output in self.recorded.outputs:
            if output.kind == "program":
                parts.append(self.results[output.number])
            elif output.kind == "argument":
                parts.append(f"x{output.number}")
            else:
                copied = ".copy()" if output.kind == "copy" else ""
                parts.append(f"{self.constant(output.object)}{copied}")
        every = f"({', '.join(parts)},)" if parts else "()"
        tree = self.recorded.tree
        if tree.is_leaf():
            self.add(f"return {parts[0]}")
        elif tree.type is tuple and all(c.is_leaf() for c in tree.children()):
            self.add(f"return {every}")
        else:
            self.add(f"return {self.constant(tree)}.unflatten({every})")

    def function(self) -> Callable[[tuple[Any, ...]], Any]:
        """What has been written, as a function."""
        source = "def launch(args):\n    " + "\n    ".join(self.lines) + "\n"
        namespace = dict(self.constants)
        exec(compile(source, "<tracer launch>", "exec"), namespace)
        launch: Callable[[tuple[Any, ...]], Any] = namespace["launch"]
        return launch


def _is_flat(tree: Any, count: int) -> bool:
    """Whether the arguments are `count` positional leaves."""
    args, kwargs = tree.children()
    return (
        args.num_leaves == count
        and kwargs.num_leaves == 0
        and all(c.is_leaf() for c in args.children())
    )
