"""Random programs of views and changes in place, as data that NumPy, tracer and PyTorch can run.

A program starts from leaves and appends one variable, or changes one, at each step. Steps name variables by number; what does
not fit (a shape, a broadcast) was avoided when the program was drawn, by running it on NumPy, the model of its values.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LEAVES = ((3, 4), (4,), (2, 3, 4))  # the last one requires no gradient


@dataclass(frozen=True)
class Step:
    """`kind`: "view", "pure" or "change"; `name`: what is done; `operands`: numbers of variables; `argument`: what it takes."""

    kind: str
    name: str
    operands: tuple[int, ...]
    argument: Any = None
    quiet: bool = False  # under no_grad

    def __str__(self) -> str:
        quiet = " under no_grad" if self.quiet else ""
        return f"{self.name}{self.operands} {'' if self.argument is None else self.argument}{quiet}"


@dataclass(frozen=True)
class Program:
    """Steps on leaves of the shapes LEAVES."""

    seed: int
    steps: tuple[Step, ...]

    @property
    def differs_from_its_limit(self) -> bool:
        """Whether parts are cut out of the gradient, which finite differences cannot see."""
        return any(s.quiet or s.name == "detach" for s in self.steps)

    def __str__(self) -> str:
        first = len(LEAVES)
        lines = []
        for step in self.steps:
            made = ""
            if step.kind != "change":
                made, first = f"v{first} = ", first + 1
            lines.append(f"{made}{step}")
        return f"seed {self.seed}\n" + "\n".join(lines)


def leaves(seed: int) -> list[Array]:
    """The arrays that a program starts from."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.5, 1.5, shape) for shape in LEAVES]


# ---- what can be done ----------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda x, k: x[k] if not isinstance(x, np.ndarray) or ... in k else x[(*k, ...)],
    "reshape": lambda x, k: x.reshape(k),
    "transpose": lambda x, k: x.transpose(k) if isinstance(x, np.ndarray) else x.permute(*k),
    "diagonal": lambda x, k: _diagonal(x, k),
    "unsqueeze": lambda x, k: np.expand_dims(x, k) if isinstance(x, np.ndarray) else x.unsqueeze(k),
    "expand": lambda x, k: np.broadcast_to(x, k) if isinstance(x, np.ndarray) else x.expand(*k),
    "detach": lambda x, k: x[...] if isinstance(x, np.ndarray) else x.detach(),
}


def _diagonal(x: Any, offset: int) -> Any:
    if not isinstance(x, np.ndarray):
        return x.diagonal(offset, 0, 1)
    result = np.diagonal(x, offset, 0, 1)
    result.flags.writeable = x.flags.writeable
    return result


def _numpy(name: str) -> Any:
    return {"neg": np.negative, "abs": np.abs}.get(name, getattr(np, name, None))


LINEAR_UNARY = ("neg",)
LINEAR_BINARY = ("add", "sub")
UNARY = ("sin", "cos", "exp", "tanh", "neg", "sqrt_of_square", "log_of_square", "square")
BINARY = ("add", "sub", "mul", "div_by_square")


def unary(name: str, x: Any) -> Any:
    """A function that is smooth everywhere."""
    if name == "sqrt_of_square":
        positive = x * x + 0.5
        return np.sqrt(positive) if isinstance(x, np.ndarray) else positive.sqrt()
    if name == "log_of_square":
        squared = x * x + 0.5
        return np.log(squared) if isinstance(x, np.ndarray) else squared.log()
    if name == "square":
        return x * x
    if name == "exp":
        smaller = x * 0.1
        return np.exp(smaller) if isinstance(x, np.ndarray) else smaller.exp()
    return _numpy(name)(x) if isinstance(x, np.ndarray) else getattr(x, name)()


def binary(name: str, x: Any, y: Any) -> Any:
    """An operation on two variables."""
    if name == "add":
        return x + y
    if name == "sub":
        return x - y
    if name == "mul":
        return x * y
    return x / (y * y + 1.0)


def change(name: str, x: Any, y: Any, argument: Any) -> None:
    """A change of x in place, by y or by an argument."""
    if name == "assign":
        x[argument] = y
    elif name == "assign_number":
        x[argument] = 0.25
    elif name == "add_part":
        x[argument] += y
    elif name == "scale_part":
        x[argument] *= 0.5
    elif name == "add":
        x += y
    elif name == "sub":
        x -= y
    elif name == "mul":
        x *= y
    elif name == "div":
        x /= y * y + 1.0
    elif isinstance(x, np.ndarray):
        _change_array(name, x, y)
    elif name == "copy":
        x.copy_(y)
    else:
        getattr(x, f"{name}_")(*(() if name not in ("fill", "clamp") else argument))


def _change_array(name: str, x: Array, y: Any) -> None:
    if name == "zero":
        x[...] = 0
    elif name == "fill":
        x[...] = 0.75
    elif name == "copy":
        x[...] = y
    elif name == "clamp":
        x[...] = np.clip(x, -2.0, 2.0)
    else:
        x[...] = _numpy(name)(x)


LINEAR_ALONE = ("zero", "fill", "neg")
LINEAR_BY = ("add", "sub", "copy")
CHANGES_ALONE = ("zero", "fill", "clamp", "sin", "tanh", "neg", "cos")
CHANGES_BY = ("add", "sub", "mul", "div", "copy")


# ---- running -------------------------------------------------------------------------------------


def run(
    program: Program,
    variables: list[Any],
    no_grad: Callable[[], Any],
    refused: Callable[[Step, Exception], None] | None = None,
) -> list[Any]:
    """The variables after all steps. `refused` is told of a step that raised, which is left out then."""
    for step in program.steps:
        for x in variables:
            getattr(x, "grad_fn", None)  # PyTorch takes a changed view for a leaf until it is asked
        try:
            made = apply_step(step, variables, no_grad)
        except Exception as error:
            if refused is None:
                raise
            refused(step, error)
            made = variables[step.operands[0]] * 1.0  # something of that shape, to go on with
        if step.kind != "change":
            variables.append(made)
    return variables


def apply_step(step: Step, variables: list[Any], no_grad: Callable[[], Any]) -> Any:
    """What a step makes, None for a change."""
    if step.quiet:
        with no_grad():
            return _do(step, variables)
    return _do(step, variables)


def _do(step: Step, variables: list[Any]) -> Any:
    made = _done(step, variables)
    if step.kind != "pure":
        return made
    # row-major, as tracer's results are: whether a reshape is a view must not depend on the operands' order
    return (
        np.array(made, order="C")
        if isinstance(made, np.ndarray | np.generic)
        else made.contiguous()
    )


def _done(step: Step, variables: list[Any]) -> Any:
    operands = [variables[k] for k in step.operands]
    if step.kind == "view":
        return VIEWS[step.name](operands[0], step.argument)
    if step.kind == "pure":
        if len(operands) == 1:
            return unary(step.name, operands[0])
        return binary(step.name, *operands)
    other = operands[1] if len(operands) > 1 else None
    change(step.name, operands[0], other, step.argument)
    return None


def loss(variables: list[Any], first: int) -> Any:
    """A number that depends on every variable from `first` on."""
    total: Any = 0.0
    for number, x in enumerate(variables[first:]):
        total = total + (x * x).sum() * (0.5 + 0.1 * number)
    return total


# ---- drawing -------------------------------------------------------------------------------------


class _Random(random.Random):
    curved: float = 1.0  # how often an operation may have a gradient rule that keeps its operands

    def function(self, linear: tuple[str, ...], every: tuple[str, ...]) -> str:
        """The name of an operation."""
        return self.choice(every if self.random() < self.curved else linear)


def draw(seed: int, count: int = 50, smooth: bool = False) -> Program:
    """A program of `count` steps. `smooth`: nothing is cut out of the gradient, and nothing has a kink.

    Two of three programs are mostly linear: hardly any gradient rule needs an operand then that a later step changes.
    """
    rng = _Random(seed)
    rng.curved = 1.0 if seed % 3 == 0 else 0.03
    variables: list[Any] = [a.copy() for a in leaves(seed)]
    program_steps: list[Step] = []
    variables_from = len(variables)
    for number in (
        0,
        1,
    ):  # leaves that require a gradient change in no_grad only: start from copies
        program_steps.append(Step("pure", "add", (number, 1)))
    for step in program_steps:
        variables.append(_do(step, variables))
    while len(program_steps) < count:
        step = _draw_step(rng, variables, variables_from, smooth)
        if step is None:
            continue
        before = [v.copy() for v in variables]
        made = _do(step, variables)
        if any(
            not np.all(np.abs(v) < 1e3)
            for v in (*variables, *((made,) if made is not None else ()))
        ):
            for v, old in zip(variables, before, strict=True):
                if v.flags.writeable:
                    v[...] = old
            continue
        program_steps.append(step)
        if step.kind != "change":
            variables.append(made)
    return Program(seed, tuple(program_steps))


def _draw_step(rng: _Random, variables: list[Any], first: int, smooth: bool) -> Step | None:
    number = rng.randrange(len(variables))
    x = variables[number]
    quiet = not smooth and rng.random() < 0.05
    kind = rng.random()
    if kind < 0.35:
        found = _draw_view(rng, x, smooth)
        return found and Step("view", found[0], (number,), found[1])
    if kind < 0.5:
        if rng.random() < 0.5:
            return Step("pure", rng.function(LINEAR_UNARY, UNARY), (number,), None, quiet)
        other = _fitting(rng, variables, lambda y: _broadcasts(x, y))
        return (
            None
            if other is None
            else Step("pure", rng.function(LINEAR_BINARY, BINARY), (number, other), None, quiet)
        )
    if number < first - 1 and not quiet and rng.random() < 0.9:
        return None  # mostly refused: a leaf that requires a gradient
    return _draw_change(rng, variables, number, smooth, quiet)


def _draw_change(
    rng: _Random, variables: list[Any], number: int, smooth: bool, quiet: bool
) -> Step | None:
    x = variables[number]
    if not x.flags.writeable or x.size == 0:
        return None
    what = rng.random()
    if what < 0.3:
        names = tuple(n for n in CHANGES_ALONE if not (smooth and n == "clamp"))
        name = rng.function(LINEAR_ALONE, names)
        argument = {"fill": (0.75,), "clamp": (-2.0, 2.0)}.get(name)
        return Step("change", name, (number,), argument, quiet)
    if what < 0.6:
        other = _fitting(rng, variables, lambda y: _fits_into(y, x.shape))
        if other is None:
            return None
        return Step("change", rng.function(LINEAR_BY, CHANGES_BY), (number, other), None, quiet)
    if x.ndim == 0:
        return None
    key = _draw_key(rng, x)
    if 0 in x.shape or x[key].size == 0:
        return None
    if what < 0.75:
        return Step("change", rng.choice(("assign_number", "scale_part")), (number,), key, quiet)
    other = _fitting(rng, variables, lambda y: _fits_into(y, x[key].shape))
    return (
        None
        if other is None
        else Step("change", rng.choice(("assign", "add_part")), (number, other), key, quiet)
    )


def _fitting(rng: _Random, variables: list[Any], fits: Callable[[Any], bool]) -> int | None:
    found = [k for k, y in enumerate(variables) if fits(y)]
    return rng.choice(found) if found else None


def _broadcasts(x: Any, y: Any) -> bool:
    try:
        return len(np.broadcast_shapes(x.shape, y.shape)) <= 3 and np.broadcast(x, y).size <= 200
    except ValueError:
        return False


def _fits_into(y: Any, shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(y.shape, shape) == tuple(shape)
    except ValueError:
        return False


def _draw_slice(rng: _Random, size: int) -> slice:
    start = rng.randrange(size)
    return slice(start, rng.randrange(start + 1, size + 1), rng.choice((1, 1, 2, 3)))


def _draw_key(rng: _Random, x: Any) -> Any:
    """Integers, slices with steps, None and `...`; PyTorch has no negative steps."""
    if x.ndim == 0:
        return ...
    parts: list[Any] = []
    for size in x.shape[: rng.randrange(1, x.ndim + 1)]:
        if size == 0:
            parts.append(slice(None))
        else:
            parts.append(
                rng.choice((rng.randrange(-size, size), _draw_slice(rng, size), slice(None)))
            )
    if len(parts) == x.ndim and rng.random() < 0.2:
        parts.insert(rng.randrange(x.ndim + 1), ...)
    return tuple(parts)


def _draw_view(rng: _Random, x: Any, smooth: bool) -> tuple[str, Any] | None:
    names = ["index", "index", "reshape", "transpose", "unsqueeze", "diagonal"]
    names += ["expand"] + ([] if smooth else ["detach"])
    name = rng.choice(names)
    if name == "index":
        return (name, _draw_key(rng, x)) if x.ndim else None
    if name == "reshape":
        options = [(x.size,), (1, x.size), (x.size, 1)]
        options += [(a, x.size // a) for a in (2, 3, 4) if x.size and x.size % a == 0]
        return name, rng.choice(options)
    if name == "transpose":
        order = list(range(x.ndim))
        rng.shuffle(order)
        return (name, tuple(order)) if x.ndim > 1 else None
    if name == "unsqueeze":
        return (name, rng.randrange(x.ndim + 1)) if x.ndim < 3 else None
    if name == "diagonal":
        return (name, rng.choice((-1, 0, 1))) if x.ndim > 1 and min(x.shape[:2]) > 1 else None
    if name == "expand":
        shape = tuple(3 if d == 1 else d for d in x.shape)
        return (name, (2, *shape)) if x.ndim < 3 and x.size <= 12 else None
    return name, None
