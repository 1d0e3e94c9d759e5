"""The fast way into a compiled program: one generated function that checks a call, runs the program and wraps the results.

It covers calls with positional arguments, which may be nested in tuples, lists and dicts. Whatever it does not expect (another
type, an array that is not row-major, state that changed) it leaves to the general way by returning MISS, before anything has
happened. What Python asked of values is one piece of memory, compared between the two parts of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import string_at
from typing import Any

import numpy as np

from codegen.runtime.memory_pool import allocate
from codegen.text.source import FunctionSource
from ops.types import numpy_dtype
from tracer.dispatch.view_updates import set_flag
from tracer.runtime.executable import Executable
from tracer.tensors.modes import MODES
from tracer.tensors.parameter import Parameter
from tracer.tensors.tensor import Array, Tensor, is_plain
from tracer.tracing.arguments.signature import Leaf, history_key
from tracer.tracing.programs.compiled_trace import UNKNOWN, CompiledTrace, SideExit
from tracer.tracing.programs.staged_executable import StagedExecutable
from tracer.tracing.programs.stages import Stage
from tracer.tracing.recording.trace_records import Holder

MISS = object()
Resume = Callable[[tuple[Any, ...], SideExit], Any]
"""Gives the result of a call, of these arguments, that has left a path."""


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


def fast_call_of(compiled: CompiledTrace, resume: Resume) -> Callable[..., Any] | None:
    """The fast way into a program, written when it is first asked for; None if there is none."""
    if compiled.fast_call is UNKNOWN:
        compiled.fast_call = build_fast_call(compiled, resume)
    found: Callable[..., Any] | None = compiled.fast_call
    return found


def build_fast_call(compiled: CompiledTrace, resume: Resume) -> Callable[..., Any] | None:
    """`call(args)`: the result of the call, or MISS. None where arguments are named, or nested in other containers.

    Where a value guard fails, the result is what `resume` gives. `call(args, agreed)` takes the first `agreed` guards as known to
    hold, and gives the `SideExit` itself.
    """
    args, kwargs = compiled.key[0].children()
    recorded = compiled.recorded
    if (
        kwargs.num_leaves
        or not _is_plain_tree(args)
        or recorded.gradients.graph is not None
        or recorded.changed_histories
        or recorded.recorded_changes
        or recorded.outgoing_gradients
        or recorded.result_grads
        or recorded.aliases
        or recorded.placed
    ):
        return None
    executable = compiled.executable
    if any(result.kind == "input" for result in executable.results):
        return None
    writer = _FastCallWriter(compiled)
    writer.arguments()
    writer.state()
    if isinstance(executable, StagedExecutable):
        writer.run_stages(executable, resume)
    else:
        writer.run(executable)
    writer.write_state()
    writer.give_back()
    return writer.function()


class _FastCallWriter:
    """Writes the function, part by part. Variables: x0 ... arguments, p0 ... their addresses, c0 ... addresses and s0 ... numbers
    of the state, b0 ... blocks of results, o0 ... results."""

    def __init__(self, compiled: CompiledTrace) -> None:
        self.compiled, self.recorded = compiled, compiled.recorded
        self.executable, self.leaves = compiled.executable, compiled.signature
        known: dict[str, Any] = {
            "MISS": MISS,
            "Tensor": Tensor,
            "Parameter": Parameter,
            "ndarray": np.ndarray,
            "MODES": MODES,
            "ready": ready,
            "ready_to_write": ready_to_write,
            "array_pointer": array_pointer,
            "array_to_write": array_to_write,
            "set_flag": set_flag,
            "history_key": history_key,
            "allocate": allocate,
            "new": object.__new__,
            "guard": compiled.guard,
            "fn": compiled.fn,
            "keep": self.executable,  # its constants, which the program points to
            "released": compiled.released_node(),
        }
        is_staged = isinstance(self.executable, StagedExecutable)
        self.out = FunctionSource("fast_call", f"args{', agreed=None' if is_staged else ''}", known)
        self.add, self.constant = self.out.line, self.out.constant
        self.words: dict[int, str] = {}  # by number of the program's input
        self.results: dict[int, str] = {}  # by number of its output
        self.written = self.executable.sharing.written
        self.position = self.recorded.input_of_leaf

    def require(self, wrong: str) -> None:
        """Leave the call to the general way if an expression holds."""
        self.out.return_if(wrong, "MISS")

    def holder(self, whose: Holder) -> str:
        """An expression for the Tensor whose gradient is meant."""
        return f"x{whose}" if isinstance(whose, int) else self.constant(whose)

    # ---- before anything happens
    def arguments(self) -> None:
        """Check them and find their addresses."""
        tree = self.compiled.key[0].children()[0]
        self.require(
            f"len(args) != {tree.num_children} or MODES.grad_enabled is not {self.constant(self.compiled.grad_enabled)} "
            "or MODES.anomaly is not None"
        )
        self._unpack(tree, "args", 0)
        for k, leaf in enumerate(self.leaves):
            getattr(self, f"_{leaf.kind}")(k, leaf)
        leaves = (
            "args" if _is_flat(tree) else f"({''.join(f'x{k}, ' for k in range(len(self.leaves)))})"
        )
        self.require(f"guard(fn, {leaves}) is not None")

    def _unpack(self, tree: Any, container: str, leaf: int) -> None:
        """Names for what a container of the arguments holds, `leaf` being its first leaf, and for what that holds in turn."""
        children, names, first = tree.children(), [], []
        for k, child in enumerate(children):
            names.append(f"x{leaf}" if child.is_leaf() else f"{container}_{k}")
            first.append(leaf)
            leaf += child.num_leaves
        if tree.type is dict:
            for key, name in zip(tree.entries(), names, strict=True):
                self.add(f"{name} = {container}.get({self.constant(key)}, MISS)")
                self.require(f"{name} is MISS")
        elif names:
            self.add(f"{', '.join(names)}, = {container}")
        for child, name, number in zip(children, names, first, strict=True):
            if not child.is_leaf():
                kind = child.type.__name__
                self.require(
                    f"{name}.__class__ is not {kind} or len({name}) != {child.num_children}"
                )
                self._unpack(child, name, number)

    def _tensor(self, k: int, leaf: Leaf) -> None:
        x, place = f"x{k}", self.position[k]
        self.require(
            f"({x}.__class__ is not Tensor and {x}.__class__ is not Parameter) or {x}.type is not {self.constant(leaf.type)} "
            f"or {x}._requires_grad is not {self.constant(leaf.requires_grad)} "
            f"or ({x}._view is not None and {x}._flag_now() is not {self.constant(leaf.requires_grad)})"
        )
        if leaf.requires_grad:
            self.require(f"history_key({x}) != {self.constant(leaf.value)}")
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
        self.require(self.out.differs(f"x{k}", leaf.value.value))

    def _alias(self, k: int, leaf: Leaf) -> None:
        self.require(f"x{k} is not x{leaf.value}")

    def _object(self, k: int, leaf: Leaf) -> None:
        self.require(f"x{k} is not {self.constant(leaf.value.value)}")

    def _address(self, name: str, tensor: str, place: int) -> None:
        ready = "ready_to_write" if place in self.written else "ready"
        self._word(name, f"{tensor}._pointer or {ready}({tensor})", place)

    def _array_address(self, name: str, array: str, place: int) -> None:
        ready = "array_to_write" if place in self.written else "array_pointer"
        self._word(name, f"{ready}({array})", place)

    def _word(self, name: str, address: str, place: int) -> None:
        """Give an input of the program its address, which must not be 0."""
        self.words[place] = name
        if place in self.executable.unread:
            self.add(f"{name} = 0")
        else:
            self.add(f"{name} = {address}")
            self.require(f"not {name}")

    def state(self) -> None:
        """Find its addresses and numbers, and check that what the program writes is nobody else's."""
        inputs = self.recorded.inputs
        for number, capture in zip(inputs.captures, self.recorded.captures, strict=True):
            if isinstance(capture.object, np.ndarray):
                self._array_address(f"c{number}", self.constant(capture.object), number)
                continue
            source = self.holder(capture.object)
            if capture.is_grad:
                self.add(f"g{number} = {source}._grad")
                source = f"g{number}"
            self._address(f"c{number}", source, number)
        for number, scalar in zip(inputs.scalars, self.recorded.scalars, strict=True):
            self.add(f"s{number} = {self.constant(scalar.container)}[{scalar.key!r}]")
            self.require(f"s{number}.__class__ is not float")
            self.words[number] = f"s{number}"
        if self.written:
            sharing = self.constant(self.executable.sharing.may_share)
            state = "".join(f"c{k}, " for k in inputs.captures)
            given = [k for k, leaf in enumerate(self.leaves) if leaf.kind in ("tensor", "array")]
            addresses = "".join(f"p{k}, " for k in given)
            numbers = self.constant(tuple(self.position[k] for k in given))
            self.require(f"{sharing}(({state}), {numbers}, ({addresses}))")

    # ---- what happens
    def run(self, executable: Executable) -> None:
        """Call the program."""
        inputs = [self.words[k] for k in range(len(self.words))]
        self._call(executable, inputs, dict(enumerate(range(len(executable.results)))))

    def run_stages(self, executable: StagedExecutable, resume: Resume) -> None:
        """Call the early programs, after each compare what it observed as one piece of memory; call the late program."""
        self.out.known |= {"compiled": self.compiled, "memory_at": string_at, "resume": resume}
        inputs = [self.words[k] for k in range(len(self.words))]
        blocks: list[dict[int, str]] = []

        def with_reads(stage: Stage) -> list[str]:
            return [*inputs, *(f"{blocks[k][place]}.pointer" for k, place in stage.reads)]

        kept = 0
        for number, program in enumerate(executable.early):
            e, outputs = f"e{number}", program.outputs
            self.add(f"{e} = allocate({program.observed_bytes})")
            observed = [*outputs.guards, *program.tests]
            names: dict[int, int | str] = {
                k: f"{e}.pointer + {offset}"
                for k, offset in zip(observed, program.offsets, strict=True)
            }
            names.update(zip(outputs.results, program.stage.results, strict=True))
            for k in outputs.handed_on:
                kept += 1
                names[k] = -kept
            blocks.append(self._call(program.executable, with_reads(program.stage), names))
            expected = self.constant(program.packed(self.compiled.observed))
            early = self.constant(program)
            self.add(f"m = memory_at({e}.pointer, {program.observed_bytes})")
            self.out.open(f"if m != {expected}:")
            self.add(f"t = compiled.side_exit_of({early}, m, agreed or 0)")
            self.out.return_if("t is not None", "resume(args, t) if agreed is None else t")
            self.out.close()
        if executable.late is not None:
            stage = executable.late_stage
            self._call(executable.late, with_reads(stage), dict(enumerate(stage.results)))
        self.add("compiled.runs += 1")

    def _call(
        self, executable: Executable, inputs: list[str], names: Mapping[int, int | str]
    ) -> dict[int, str]:
        """Call a program. `names`: for each result its number, negative if it is none of the function's, or an address that is
        there. Gives the blocks of results by place."""
        call = self.constant(executable.call)
        if executable.check is not None:
            check = self.constant(executable.check.test_words)
            self.add(f"{check}({', '.join(inputs)})")
        outputs: list[str] = []
        blocks: dict[int, str] = {}
        for place, result in enumerate(executable.results):
            name = names[place]
            if isinstance(name, str):
                outputs.append(name)
            elif result.kind == "new":
                block = blocks[place] = f"b{name}" if name >= 0 else f"h{-name}"
                self.add(f"{block} = allocate({int(result.type.size) * result.type.itemsize})")
                outputs.append(f"{block}.pointer")
                if name >= 0:
                    self.results[name] = f"o{name}"
        if executable.workspace:
            self.add(f"w = allocate({executable.workspace})")
            outputs.append("w.pointer")
        else:
            outputs.append("0")
        self.add(f"{call}({', '.join([*inputs, *outputs])})")
        return blocks

    def write_state(self) -> None:
        """Make Tensors of the results, count changes, set gradients."""
        recorded = self.recorded
        flags = {
            leaf.number: leaf.requires_grad for leaf in recorded.returned if leaf.kind == "program"
        }
        for number in sorted({*flags, *recorded.outputs.gradients}):
            o, b = self.results[number], f"b{number}"
            self.add(f"{o} = new(Tensor)")
            type_ = self.constant(self.executable.results[number].type)
            self.add(f"{o}.type = {type_}; {o}._block = {b}; {o}._pointer = {b}.pointer")
            flag = flags.get(number, False)
            own = number in recorded.leaf_results
            history = f"; {o}._grad_fn = released" if flag and not own else ""
            self.add(f"{o}._requires_grad = {self.constant(flag)}; {o}._view = None{history}")
        name = repr(recorded.graph.name)
        for tensor in recorded.mutated:
            tensor.changes()
            self.add(f"c = {self.constant(tensor)}._changes; c[0] += 1; c[1] = {name}")
        for leaf in recorded.mutated_arguments:
            self.add(f"if x{leaf}.__class__ is not ndarray: x{leaf}.count_change({name})")
        for whose, output in recorded.grads:
            grad = "None" if output is None else self.results[output]
            self.add(f"{self.holder(whose)}._grad = {grad}")
        for assign in recorded.assignments:
            self.add(f"{self.constant(assign)}()")
        for whose, new in recorded.new_flags:
            self.add(f"set_flag({self.holder(whose)}, {self.constant(new)})")

    def give_back(self) -> None:
        """Return the results in their tree."""
        parts = []
        for leaf in self.recorded.returned:
            if leaf.kind == "program":
                parts.append(self.results[leaf.number])
            elif leaf.kind == "argument":
                parts.append(f"x{leaf.number}")
            else:
                copied = ".copy()" if leaf.kind == "copy" else ""
                parts.append(f"{self.constant(leaf.object)}{copied}")
        every = f"({', '.join(parts)},)" if parts else "()"
        tree = self.recorded.tree
        if tree.is_leaf():
            self.add(f"return {parts[0]}")
        elif tree.type is tuple and all(c.is_leaf() for c in tree.children()):
            self.add(f"return {every}")
        else:
            self.add(f"return {self.constant(tree)}.unflatten({every})")

    def function(self) -> Callable[..., Any]:
        """What has been written, as a function."""
        return self.out.function("tracer fast call")


def _is_flat(tree: Any) -> bool:
    """Whether the arguments are the leaves."""
    return all(child.is_leaf() for child in tree.children())


def _is_plain_tree(tree: Any) -> bool:
    """Whether all containers are tuples, lists and dicts."""
    return tree.is_leaf() or (
        tree.type in (tuple, list, dict) and all(map(_is_plain_tree, tree.children()))
    )
