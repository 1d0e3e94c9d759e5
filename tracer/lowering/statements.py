"""The statements that compute the steps of a kernel: operators' texts filled in, gathers, folds, positions.

Knows names, accesses and axes. Must not know in which pass a statement stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from codegen.spec.kernel_spec import Combine, Fold, Index, Let, Load, Statement
from ops.compute import Folding, Gather, Reduction
from ops.reductions import lane
from ops.types import Type
from tracer.ir.graph import Value
from tracer.lowering.accesses import Accesses, OperandAccess, scalar_text
from tracer.lowering.axes import Atom, Dims
from tracer.lowering.groups import PartialFold, Step
from tracer.lowering.iteration import Iteration
from tracer.lowering.layout import Buffer

LANE_DTYPES = {"f32": "float32", "f64": "float64", "bool": "bool"} | {
    f"{k}{n}": f"{'u' if k == 'u' else ''}int{n}" for k in "iu" for n in (8, 16, 32, 64)
}
_ROUND = {"float16": "round_f16", "bfloat16": "round_bf16"}


class Statements:
    """Writes statements. `names` of the values that the kernel makes; `numbers(n)`: a buffer that holds an int64;
    `partials`: of the folds that other kernels finish, by step."""

    def __init__(
        self,
        accesses: Accesses,
        iteration: Iteration,
        names: dict[Value, str],
        literal: Callable[[Value], Any],
        numbers: Callable[[int], Buffer],
        partials: Mapping[Step, PartialFold],
    ) -> None:
        self._accesses, self._iteration, self.names = accesses, iteration, names
        self._literal, self._numbers, self._partials = literal, numbers, partials
        self._positions: dict[tuple[tuple[Atom, int], ...], str] = {}

    def begin_loop(self) -> None:
        """A loop over the inner axis begins: what the last one knew of positions there is gone."""
        self._positions = {k: n for k, n in self._positions.items() if n.startswith("row_")}

    def argument(self, v: Value, dims: Dims | None) -> str:
        """The name or literal under which a text finds a value."""
        if v in self.names:
            return self.names[v]
        literal = self._literal(v)
        if literal is not None:
            return self._text_of(literal, v)
        assert dims is not None
        return self._accesses.loads[(v, dims)]

    def _vector(self, v: Value, name: str, body: list[Statement]) -> str:
        """The name of a vector value that holds a literal."""
        body.append(Let(name, self._accesses.dtype(v), self._text_of(self._literal(v), v)))
        return name

    def of(self, step: Step, level: str) -> list[Statement]:
        """What computes the step's value, its loads done."""
        v = step.node.outputs[0]
        name, compute = self.names[v], step.node.op.compute
        if step.kind == "view":
            return self._same(v, self.argument(step.inputs[0], step.operands[0]))
        if step.kind == "finish":
            return self._combine(step)
        if step.kind == "point":
            return self._point(step)
        if isinstance(compute, Gather):
            return self._gather(step, level)
        body: list[Statement] = []
        keys: dict[str, str] = {}
        for what, strides in self._accesses.position_strides.get(step, {}).items():
            keys[what] = self._position(strides, level, body)
        arguments = [self.argument(x, d) for x, d in zip(step.inputs, step.operands, strict=True)]
        if all(self._literal(x) is not None and x not in self.names for x in step.inputs):
            # Text on literals alone would be Python's: ~True is -2.
            arguments = [self._vector(x, f"{name}_{k}", body) for k, x in enumerate(step.inputs)]
        out = v.type
        first = step.inputs[0].type.dtype if step.inputs else out.dtype
        text = scalar_text(step).format(*arguments, T=lane(first), R=lane(out.dtype), **keys)
        if text in arguments:
            return body + self._same(v, text)
        rounding = None if v in self._accesses.moved else _ROUND.get(out.dtype)
        if rounding:
            text = f"{rounding}({text})"
        body.append(Let(name, self._accesses.dtype(v), text))
        return body

    def _same(self, v: Value, argument: str) -> list[Statement]:
        """v is what the argument is: known by its name from now on, unless it has memory of its own."""
        if (
            v in self._accesses.stores
            or not argument.isidentifier()
            or argument in ("True", "False")
        ):
            return [Let(self.names[v], self._accesses.dtype(v), argument)]
        self.names[v] = argument
        return []

    def _position(self, strides: dict[Atom, int], level: str, body: list[Statement]) -> str:
        """The name of an int64 value: the position that the strides describe."""
        key = tuple(sorted(strides.items(), key=lambda item: id(item[0])))
        if key in self._positions:
            return self._positions[key]
        access = OperandAccess("", "int64", strides, "in", Buffer(Type("int64"), "constant"))
        names, steps = self._iteration.index(access)
        prefix = "row_" if level == "row" else ""
        terms: list[str] = []
        for axis, stride in zip(names, steps, strict=True):
            name = f"{prefix}i{len(self._positions)}_{len(terms)}"
            body.append(Index(name, axis))
            if stride != 1:
                number = self._accesses.add("int64", {}, "in", self._numbers(stride), 0)
                loaded = f"{prefix}n{len(self._positions)}_{len(terms)}"
                body.append(Load(loaded, number.name, ()))
                terms.append(f"{name} * {loaded}")
            else:
                terms.append(name)
        result = f"{prefix}i{len(self._positions)}"
        body.append(Let(result, "int64", " + ".join(terms) or "i64(0)"))
        self._positions[key] = result
        return result

    def _number(self, value: int, body: list[Statement]) -> str:
        access = self._accesses.add("int64", {}, "in", self._numbers(value), 0)
        name = f"c{access.name}"
        body.append(Load(name, access.name, ()))
        return name

    def _gather(self, step: Step, level: str) -> list[Statement]:
        access, indices = self._accesses.gathers[step]
        compute = step.node.op.compute
        assert isinstance(compute, Gather)
        v, data = step.node.outputs[0], step.inputs[0].type
        body: list[Statement] = []
        checks: list[str] = []
        for k, index in enumerate(indices):
            size = int(data.shape[k])
            if index.operand is not None:
                which = step.inputs[index.operand]
                raw = self.argument(which, step.operands[index.operand])
                if self._literal(which) is not None and which not in self.names:
                    raw = self._vector(which, f"{access.name}_{k}_raw", body)
                limit = self._number(size, body)
                wide = f"to_i64({raw})"
                name = f"{access.name}_{k}"
                body.append(Let(f"{name}_w", "int64", wide))
                body.append(
                    Let(name, "int64", f"select({name}_w < i64(0), {name}_w + {limit}, {name}_w)")
                )
                checks.append(f"({name} >= i64(0)) & ({name} < {limit})")
            elif compute.fill is not None and index.axis is not None:
                strides = self._accesses.position_strides[step][f"axis{index.axis}"]
                position = self._position(strides, level, body) if strides else "i64(0)"
                limit, offset = self._number(size, body), self._number(index.offset, body)
                name = f"{access.name}_{k}"
                body.append(Let(name, "int64", f"{position} + {offset}"))
                checks.append(f"({name} >= i64(0)) & ({name} < {limit})")
        valid = fill = None
        if checks:
            valid = f"{access.name}_valid"
            body.append(Let(valid, "bool", " & ".join(f"({c})" for c in checks)))
            value = step.node.attrs[compute.fill] if compute.fill is not None else 0
            fill = self._text_of(value, v)
        body.append(Load(self.names[v], access.name, self._iteration.index(access)[0], valid, fill))
        return body

    def _folding(self, step: Step) -> Folding:
        compute = step.node.op.compute
        assert isinstance(compute, Reduction)
        folding = compute.folding(step.node.inputs[0].type, step.node.outputs[0].type)
        rounding = _ROUND.get(step.node.outputs[0].type.dtype)
        if rounding:
            folding = replace(folding, finish=tuple(f"{rounding}({t})" for t in folding.finish))
        return folding

    def _point(self, step: Step) -> list[Statement]:
        """A fold over one element: its init, one step, its finish."""
        folding = self._folding(step)
        name = self.names[step.node.outputs[0]]
        body: list[Statement] = []
        which = step.inputs[0]
        argument = self.argument(which, step.operands[0])
        if self._literal(which) is not None and which not in self.names:
            argument = self._vector(which, f"{name}_x", body)
        arguments = (argument, "i64(0)")
        states = {state: f"{name}_{state}" for state, _ in folding.state}

        def renamed(text: str, suffix: str) -> str:
            pattern = r"\b(" + "|".join(states) + r")\b"
            return re.sub(pattern, lambda m: states[m[0]] + suffix, text).format(*arguments)

        for (state, kind), init in zip(folding.state, folding.init, strict=True):
            literal = init if kind == "bool" else f"{kind}({init})"
            body.append(
                Let(
                    f"{states[state]}_0",
                    LANE_DTYPES[kind],
                    f"select({argument} == {argument}, {literal}, {literal})",
                )
            )
        for (state, kind), text in zip(folding.state, folding.step, strict=True):
            body.append(Let(f"{states[state]}_1", LANE_DTYPES[kind], renamed(text, "_0")))
        body.append(Let(name, step.node.outputs[0].type.dtype, renamed(folding.finish[-1], "_1")))
        return body

    def fold(self, step: Step) -> list[Statement]:
        """The fold of a step, in the loop over what it folds."""
        body: list[Statement] = []
        arguments = [self.argument(step.inputs[0], step.operands[0])]
        compute = step.node.op.compute
        assert isinstance(compute, Reduction)
        if compute.positions:
            arguments.append(
                self._position(self._accesses.position_strides[step]["index"], "inner", body)
            )
        folding = self._folding(step)
        if step.kind == "row":
            dsts = tuple(
                self.names[step.node.outputs[0]]
                if k == len(folding.finish) - 1
                else f"{self.names[step.node.outputs[0]]}_{k}"
                for k in range(len(folding.finish))
            )
            body.append(Fold(dsts, folding, tuple(arguments), "r"))
            return body
        names = tuple(a.name for a in self._accesses.partials[step])
        body.append(
            Fold(names, folding, tuple(arguments), "rows" if step.kind == "column" else "r")
        )
        return body

    def _combine(self, step: Step) -> list[Statement]:
        assert step.fold is not None
        folding = self._folding(step.fold)
        partial = self._partials[step.fold]
        return [
            Combine(
                (self.names[step.node.outputs[0]],),
                (step.node.outputs[0].type.dtype,),
                folding,
                tuple(a.name for a in self._accesses.partials[step]),
                partial.mode,
                f"k{partial.count}",
            )
        ]

    def _text_of(self, value: Any, v: Value) -> str:
        """A literal of a value's type."""
        if v in self._accesses.moved:
            bits = np.asarray(value).astype(v.type.numpy).reshape(1).view(f"u{v.type.itemsize}")[0]
            return _literal_text(bits, self._accesses.dtype(v))
        return _literal_text(value, v.type.dtype)


def _literal_text(value: Any, dtype: str) -> str:
    """A typed literal of kernel text."""
    name = lane(dtype)
    if dtype == "bool":
        return "True" if value else "False"
    if name[0] == "f":
        number = float(value)
        if number != number:
            return f"{name}(nan)"
        if number in (float("inf"), float("-inf")):
            return f"{name}({'-' if number < 0 else ''}inf)"
        return f"{name}({number!r})"
    return f"{name}({int(value)})"
