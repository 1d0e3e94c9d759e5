"""The fast way into a compiled program: one generated function that checks a call, runs the program and wraps the results.

It covers calls with positional arguments, which may be nested in tuples, lists and dicts. Whatever it does not expect (another
type, an array that is not row-major, state that changed) it leaves to the general way by returning MISS, before anything has
happened. What Python asked of values is one piece of memory, compared between the two parts of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import string_at
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.runtime.memory_pool import allocate
from ops.types import numpy_dtype
from tracer.dispatch.view_updates import set_flag
from tracer.tensors.modes import MODES
from tracer.tensors.parameter import Parameter
from tracer.tensors.tensor import Array, Tensor, is_plain
from tracer.tracing.arguments.signature import arrival_of
from tracer.tracing.programs.staged_executable import EarlyProgram, GuardedExecutable
from tracer.tracing.recording.trace_records import Holder

if TYPE_CHECKING:
    from tracer.runtime.executable import Executable
    from tracer.tracing.arguments.signature import Leaf
    from tracer.tracing.programs.compiled_trace import Entry, Turned
    from tracer.tracing.programs.stages import Stage

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


def build_launch(
    entry: Entry, go_on: Callable[[tuple[Any, ...], Turned], Any]
) -> Callable[..., Any] | None:
    """`launch(args)`: the result of the call, or MISS. None where arguments are named, or nested in other containers.

    Where a question has another outcome than on the entry's path, the result is what `go_on` gives. `launch(args, agreed)` takes
    the first `agreed` outcomes as known, and gives the `Turned` itself.
    """
    args, kwargs = entry.key[0].children()
    if entry.recorded.backward is not None or kwargs.num_leaves or not _is_plain_tree(args):
        return None
    if any(kind == "input" for kind, _, _ in entry.executable.results):
        return None
    recorded = entry.recorded
    if (
        recorded.changed_histories
        or recorded.recorded_changes
        or recorded.onward
        or recorded.result_grads
    ):
        return None
    if entry.recorded.aliases or entry.recorded.placed:
        return None
    writer = _Writer(entry)
    writer.arguments()
    writer.state()
    if isinstance(entry.executable, GuardedExecutable):
        writer.run_guarded(entry.executable, go_on)
    else:
        writer.run(entry.executable)
    writer.write_state()
    writer.give_back()
    return writer.function()


class _Writer:
    """Writes the function, part by part. Variables: x0 ... arguments, p0 ... their addresses, c0 ... addresses and s0 ... numbers
    of the state, b0 ... blocks of results, o0 ... results."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
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
            "set_flag": set_flag,
            "arrival_of": arrival_of,
            "allocate": allocate,
            "new": object.__new__,
            "guard": entry.guard,
            "fn": entry.fn,
            "keep": self.executable,  # its constants, which the program points to
            "released": entry.released_node(),
        }
        self.parameters = "args"
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
        tree = self.entry.key[0].children()[0]
        self.require(
            f"len(args) != {tree.num_children} or MODES.grad_enabled is not {self.constant(self.grad_enabled)} "
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

    def _alias(self, k: int, leaf: Leaf) -> None:
        self.require(f"x{k} is not x{leaf.value}")

    def _object(self, k: int, leaf: Leaf) -> None:
        self.require(f"x{k} is not {self.constant(leaf.value.object)}")

    def _address(self, name: str, tensor: str, place: int) -> None:
        if place in self.executable.unread:
            self.add(f"{name} = 0")
            self.words[place] = name
            return
        self.add(
            f"{name} = {tensor}._pointer or {'ready_to_write' if place in self.written else 'ready'}({tensor})"
        )
        self.require(f"not {name}")
        self.words[place] = name

    def _array_address(self, name: str, array: str, place: int) -> None:
        if place in self.executable.unread:
            self.add(f"{name} = 0")
            self.words[place] = name
            return
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
    def run(self, executable: Executable) -> None:
        """Call the program."""
        inputs = [self.words[k] for k in range(len(self.words))]
        self._call(executable, inputs, range(len(executable.results)))

    def run_guarded(
        self, executable: GuardedExecutable, go_on: Callable[[tuple[Any, ...], Turned], Any]
    ) -> None:
        """Call the early programs, after each compare its outcomes as one piece of memory; call the late program."""
        self.parameters = "args, agreed=None"
        self.constants |= {"entry": self.entry, "memory_at": string_at, "go_on": go_on}
        inputs = [self.words[k] for k in range(len(self.words))]
        blocks: list[dict[int, str]] = []

        def with_reads(stage: Stage) -> list[str]:
            return [*inputs, *(f"{blocks[k][place]}.pointer" for k, place in stage.reads)]

        kept = 0
        for number, program in enumerate(executable.early):
            stage, e = program.stage, f"e{number}"
            self.add(f"{e} = allocate({program.outcome_bytes})")
            places = [f"{e}.pointer + {offset}" for offset in program.offsets]
            guards, tests = places[: len(stage.guards)], places[len(stage.guards) :]
            names: list[int | str] = [*guards, *stage.results]
            for _ in range(len(program.executable.results) - len(names) - len(tests)):
                kept += 1
                names.append(-kept)
            blocks.append(self._call(program.executable, with_reads(stage), [*names, *tests]))
            expected = self.constant(program.packed(self.entry.outcomes))
            turned = self.constant(_turned(self.entry, program))
            self.add(f"m = memory_at({e}.pointer, {program.outcome_bytes})")
            self.add(f"if m != {expected}:")
            self.add(f"    t = {turned}(m, agreed or 0)")
            self.add("    if t is not None: return go_on(args, t) if agreed is None else t")
        if executable.late is not None:
            stage = executable.late_stage
            self._call(executable.late, with_reads(stage), stage.results)
        self.add("entry.runs += 1")

    def _call(
        self, executable: Executable, inputs: list[str], names: Sequence[int | str]
    ) -> dict[int, str]:
        """Call a program. `names`: for each result its number, negative if it is none of the function's, or an address that is
        there. Gives the blocks of results by place."""
        call = f"call{len(self.constants)}"
        self.constants[call] = executable.call
        if executable.check is not None:
            check = self.constant(executable.check.test_words)
            self.add(f"{check}({', '.join(inputs)})")
        outputs: list[str] = []
        blocks: dict[int, str] = {}
        for place, ((kind, _, type_), name) in enumerate(
            zip(executable.results, names, strict=True)
        ):
            if isinstance(name, str):
                outputs.append(name)
            elif kind == "new":
                block = blocks[place] = f"b{name}" if name >= 0 else f"h{-name}"
                self.add(f"{block} = allocate({int(type_.size) * type_.itemsize})")
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
            own = number in recorded.result_leaves
            history = f"; {o}._grad_fn = released" if flag and not own else ""
            self.add(f"{o}._requires_grad = {self.constant(flag)}; {o}._view = None{history}")
        name = repr(recorded.graph.name)
        for tensor in recorded.mutated:
            tensor.changes()
            self.add(f"c = {self.constant(tensor)}._changes; c[0] += 1; c[1] = {name}")
        for leaf in recorded.mutated_arguments:
            self.add(f"if x{leaf}.__class__ is not ndarray: x{leaf}.count_change({name})")
        for holder, grad in grads:
            self.add(f"{holder}._grad = {grad}")
        for assign in recorded.assignments:
            self.add(f"{self.constant(assign)}()")
        for whose, new in recorded.new_flags:
            self.add(f"set_flag({self.holder(whose)}, {self.constant(new)})")

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

    def function(self) -> Callable[..., Any]:
        """What has been written, as a function."""
        source = f"def launch({self.parameters}):\n    " + "\n    ".join(self.lines) + "\n"
        namespace = dict(self.constants)
        exec(compile(source, "<tracer launch>", "exec"), namespace)
        launch: Callable[..., Any] = namespace["launch"]
        return launch


def _turned(entry: Entry, program: EarlyProgram) -> Callable[[bytes, int], Turned | None]:
    """Where a call leaves the entry's path, given the memory of a program's outcomes and how many are known."""

    def turned(memory: bytes, agreed: int) -> Turned | None:
        departure = program.departure(program.unpacked(memory), entry.outcomes, agreed)
        return None if departure is None else entry.turned(departure)

    return turned


def _is_flat(tree: Any) -> bool:
    """Whether the arguments are the leaves."""
    return all(child.is_leaf() for child in tree.children())


def _is_plain_tree(tree: Any) -> bool:
    """Whether all containers are tuples, lists and dicts."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if not node.is_leaf():
            if node.type not in (tuple, list, dict):
                return False
            pending.extend(node.children())
    return True
