"""What a printer needs to know of a kernel specification, found once and checked: lane elements,
and what varies between lanes.

Knows the specification only: no target, no text of loops. A faulty specification raises
`SpecError`, which says where.
"""

from __future__ import annotations

import keyword
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from codegen.errors import SpecError, Unsupported
from codegen.spec.kernel_spec import (
    Combine,
    Fold,
    Folding,
    Index,
    KernelSpec,
    Let,
    Load,
    Schedule,
    Stage,
    Statement,
    Store,
)
from codegen.text.scalar_text import Scalar, expression
from codegen.text.source import identifiers
from codegen.user_functions.lane_function import lane_function
from codegen.vector.elements import DTYPE, LANE_ELEMENT, MEMORY_ELEMENT
from codegen.vector.intrinsics import JIT_NAMES

# What the printers call their own variables, beside <operand>_..., n_<axis>, <result>_<state>.
RESERVED = frozenset(
    (
        *("lo", "hi", "args", "row", "rest", "task", "block", "position", "first_row", "last_row"),
        *("begin", "end", "stop", "whole", "chunk", "chunk_end", "chunks", "number", "part"),
        *("parts", "pending", "level", "turned", "lane", "lanes", "left", "live"),
        *("distance", "cuda"),
    )
)


def lane_element(dtype: str) -> str:
    """The lane element of NumPy's name of a dtype, or of a lane element itself."""
    if dtype in DTYPE:
        return dtype
    if dtype not in LANE_ELEMENT:
        raise SpecError(f"unknown dtype {dtype!r}; known are {', '.join(LANE_ELEMENT)}")
    return LANE_ELEMENT[dtype]


def memory_element(dtype: str) -> str:
    """The memory element of NumPy's name of a dtype, or of a memory element itself."""
    if dtype in DTYPE or dtype in ("f16", "bf16"):
        return dtype
    if dtype not in MEMORY_ELEMENT:
        raise SpecError(f"unknown dtype {dtype!r}; known are {', '.join(MEMORY_ELEMENT)}")
    return MEMORY_ELEMENT[dtype]


def function_name(spec: KernelSpec) -> str:
    """The name of the printed function: the spec's, unless it means something in kernel text."""
    taken = spec.name in JIT_NAMES or spec.name in RESERVED
    return f"{spec.name}_kernel" if taken else spec.name


@dataclass
class Analysis:
    """Facts about a spec under a schedule.

    `elements`: the lane element of each value. `varying`: values whose lanes differ. `homes`: the
    number of the stage whose loop gives a value, None for values of a row.
    """

    spec: KernelSpec
    schedule: Schedule
    elements: dict[str, str] = field(default_factory=dict)
    varying: set[str] = field(default_factory=set)
    homes: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.spec
        self.rows = tuple(a.name for a in spec.rows)
        self.inner = spec.inner.name if spec.inner else None
        self.parts = spec.inner.parts if spec.inner else ()
        self.operands = {o.name: o for o in spec.operands}
        self.sizes = frozenset(spec.size_names)
        self.functions = {f.name: lane_function(f) for f in spec.functions}
        self._check_names()
        number = 0
        stages = []
        for self._stage, stage in enumerate(spec.stages):
            stages.append((stage, number))
            if stage.over not in ((), (self.inner,)):
                raise self._error(
                    f"a stage is over () or the inner axis ({self.inner},); got {stage.over}"
                )
            for statement in stage.body:
                self._visit(stage, statement, number)
                number += 1
        self.stages = tuple(stages)  # each with the number of its first statement
        self._check_mode()

    # ---- questions -------------------------------------------------------------------------------
    def is_value(self, name: str) -> bool:
        """Whether an index is a value (a gather), not an axis or a part of one."""
        return name in self.elements

    def folds(self, stage: Stage) -> list[Fold]:
        """Its folds over the inner axis."""
        return [s for s in stage.body if isinstance(s, Fold) and s.over != "rows"]

    def row_folds(self, stage: Stage) -> list[Fold]:
        """Its folds over the rows."""
        return [s for s in stage.body if isinstance(s, Fold) and s.over == "rows"]

    # ---- checks ----------------------------------------------------------------------------------
    def _error(self, text: str) -> SpecError:
        return SpecError(f"kernel {self.spec.name}: {text}")

    def _check_names(self) -> None:
        spec = self.spec
        if not spec.name.isidentifier() or keyword.iskeyword(spec.name):
            raise self._error(f"{spec.name!r} cannot be the name of a function")
        names = [o.name for o in spec.operands]
        names += [n for a in spec.axes for n in (a.name, *a.parts)]
        names += [f.name for f in spec.functions]
        for name in names:
            self._check_name(name)
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            raise self._error(f"{', '.join(sorted(twice))} names two things")
        kinds = [a.kind for a in spec.axes]
        if kinds.count("inner") > 1 or (
            "inner" in kinds and "row" in kinds[kinds.index("inner") :]
        ):
            raise self._error("axes are rows first, then at most one inner axis")
        for o in spec.operands:
            memory_element(o.dtype)

    def _check_name(self, name: str) -> None:
        if (
            not name.isidentifier()
            or keyword.iskeyword(name)
            or name in RESERVED
            or name in JIT_NAMES
        ):
            raise self._error(f"{name!r} cannot be a name in kernel text")

    def _check_mode(self) -> None:
        mode, spec = self.schedule.mode, self.spec
        loops = [s for s in spec.stages if s.over]
        folds = [f for s in loops for f in self.folds(s)]
        if any(map(self.row_folds, spec.stages)) and mode != "columns":
            raise self._error("a fold over the rows needs Schedule(mode='columns')")
        if mode in ("flat", "split") and self.inner is None:
            raise self._error(f"mode {mode!r} needs an inner axis")
        if mode == "flat" and (self.rows or folds):
            raise self._error("mode 'flat' is for a spec without row axes and without folds")
        repeated = mode in ("flat", "split") or (mode == "scatter" and self.inner is not None)
        if repeated or self.schedule.swap:
            once = [s for stage in spec.stages if not stage.over for s in stage.body]
            if any(isinstance(s, Store) and s.mode == "add" for s in once):
                raise self._error(
                    "a store that adds, outside the loop, would add once for each piece of the row"
                )
        if mode == "scatter" and folds:
            raise self._error("mode 'scatter' works on blocks of the inner axis: no folds over it")
        if mode == "split":
            for fold in folds:
                self._check_partials(fold.dsts, fold.folding)
        if self.schedule.swap and (
            mode != "rows" or folds or len(loops) != 1 or spec.stages[-1] is not loops[0]
        ):
            raise self._error(
                "swap is for mode 'rows' with one loop over the inner axis, last, and no folds"
            )

    def _check_partials(
        self, dsts: tuple[str, ...], folding: Folding, roles: tuple[str, ...] = ("partial",)
    ) -> None:
        if len(dsts) != len(folding.state):
            raise self._error(
                f"folding {folding.name} has {len(folding.state)} states; got partials {dsts}"
            )
        for name, (state, element) in zip(dsts, folding.state, strict=True):
            o = self.operands.get(name)
            if o is None or o.role not in roles:
                raise self._error(f"{name!r} should be an operand of role 'partial'")
            if memory_element(o.dtype) != lane_element(element):
                raise self._error(
                    f"state {state} of {folding.name} is {element}; partial {name} is {o.dtype}"
                )

    # ---- one statement ---------------------------------------------------------------------------
    def _visit(self, stage: Stage, s: Statement, number: int) -> None:
        where = f"statement {number} ({type(s).__name__})"
        if isinstance(s, Load):
            self._index(s.operand, s.index, stage, where)
            if s.valid is not None and (self._value(s.valid, where) != "bool" or s.fill is None):
                raise self._error(f"{where}: valid is a boolean value and needs a fill")
            names = {*s.index, *([s.valid] if s.valid else [])}
            self._define(s.dst, self.operands[s.operand].dtype, self._varies(names, stage), where)
        elif isinstance(s, Let):
            names = identifiers(s.text) & self.elements.keys()
            for name in names:
                self._value(name, where)
            found = self._typed(s.text, self.elements, self.sizes, where)
            if found not in (None, lane_element(s.dtype)):
                raise self._error(f"{where}: {s.text!r} gives {found}, not {s.dtype}")
            self._define(s.dst, s.dtype, bool(stage.over) and bool(names & self.varying), where)
        elif isinstance(s, Index):
            known = {*self.rows, *self.parts, "*"} | ({self.inner} if self.inner else set())
            if s.axis not in known:
                raise self._error(f"{where}: no axis {s.axis!r}")
            if not stage.over and s.axis in {self.inner, *self.parts}:
                raise self._error(f"{where}: position along {s.axis} outside its loop")
            self._define(s.dst, "int64", self._varies({s.axis}, stage), where)
        elif isinstance(s, Combine):
            self._check_partials(s.partials, s.folding, ("in", "partial"))
            for dst, dtype in zip(s.dsts, s.dtypes, strict=True):
                self._define(dst, dtype, bool(stage.over), where)
            if not any(a.kind == "reduced" and a.name == s.reduced for a in self.spec.axes):
                raise self._error(f"{where}: {s.reduced!r} should be an axis of kind 'reduced'")
        elif isinstance(s, Store):
            self._index(s.operand, s.index, stage, where)
            self._value(s.value, where)
        else:
            self._fold(s, stage, where)

    def _fold(self, s: Fold, stage: Stage, where: str) -> None:
        f = s.folding
        for name in s.args:
            if name.isidentifier() and name not in ("True", "False"):
                self._value(name, where)
        if not f.exact and len(f.state) != 1:
            raise self._error(
                f"{where}: a folding that rounds has one state; {f.name} has {len(f.state)}"
            )
        if s.over == "rows":
            self._check_partials(s.dsts, f)
        elif s.over != self.inner or not stage.over:
            raise self._error(
                f"{where}: folds over the inner axis in its loop, or over 'rows'; got {s.over!r}"
            )
        elif self.schedule.mode != "split":
            if len(s.dsts) != len(f.finish):
                raise self._error(
                    f"{where}: {f.name} gives {len(f.finish)} results; got names {s.dsts}"
                )
            for dst, text in zip(s.dsts, f.finish, strict=True):
                self._define(dst, self._finished(f, text, where), False, where, folded=True)

    def _finished(self, f: Folding, text: str, where: str) -> str:
        """The lane element of a finish text."""
        states = {name: lane_element(dtype) for name, dtype in f.state}
        found = self._typed(text, states, (), f"{where}: finish of {f.name}")
        if found is None:
            raise self._error(f"{where}: finish {text!r} of {f.name} names no state")
        return found

    def _typed(
        self, text: str, elements: Mapping[str, str], sizes: Collection[str], where: str
    ) -> str | None:
        """The lane element of a text; None when it names sizes and numbers only, or lanes."""
        try:
            value = expression(text, elements, sizes, {}, self.functions)
        except Unsupported:
            return None
        except (TypeError, NameError, SyntaxError) as error:
            raise self._error(f"{where}: {text!r}: {error}") from error
        return value.element if isinstance(value, Scalar) else None

    def _index(self, operand: str, index: tuple[str, ...], stage: Stage, where: str) -> None:
        o = self.operands.get(operand)
        if o is None:
            raise self._error(f"{where}: no operand {operand!r}")
        if len(index) != len(o.strides):
            raise self._error(
                f"{where}: {operand} has {len(o.strides)} index positions; got {index}"
            )
        for name in index:
            if name in {self.inner, *self.parts}:
                if not stage.over:
                    raise self._error(f"{where}: index {name!r} outside the loop over it")
            elif name not in self.rows and self._value(name, where)[0] not in "iu":
                raise self._error(f"{where}: index {name!r} is no axis and no integer value")

    def _varies(self, names: set[str], stage: Stage) -> bool:
        lanes = {*self.varying, *self.parts} | ({self.inner, "*"} if self.inner else set())
        return bool(stage.over) and bool(names & lanes)

    def _value(self, name: str, where: str) -> str:
        if name not in self.elements:
            raise self._error(f"{where}: no value {name!r} has been given before")
        if self.homes[name] not in (None, self._stage):
            raise self._error(
                f"{where}: {name!r} is a value of the loop of stage {self.homes[name]}"
            )
        return self.elements[name]

    def _define(
        self, name: str, dtype: str, varying: bool, where: str, folded: bool = False
    ) -> None:
        """Note a new value. `folded`: a loop gives it, but it is one of the row."""
        row = folded or not self.spec.stages[self._stage].over
        self._check_name(name)
        if name in self.operands or name in self.sizes or f"n_{name}" in self.sizes:
            raise self._error(f"{where}: {name!r} is already an operand, an axis or a size")
        element = lane_element(dtype)
        if self.elements.setdefault(name, element) != element:
            raise self._error(
                f"{where}: {name!r} is {self.elements[name]} before and {element} here"
            )
        self.homes[name] = None if row else self._stage
        if varying:
            self.varying.add(name)
