"""Saving: weights as safetensors, and a whole training run in one file.

A checkpoint is a safetensors file: arrays by name, everything else as JSON in its header. Nothing
in it is code, so a file from anywhere is read safely.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ops.errors import ArgumentError, CheckpointError, DTypeError, ShapeError
from ops.types import Type
from tracer.functions.public import public
from tracer.functions.state_values import array_of_value, write
from tracer.random import Generator, default_generator
from tracer.serialization.safetensors_file import Array, Path, checked_names, read_file, write_file
from tracer.tensors.modes import outside_traces
from tracer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tracer.nn.module import Module
    from tracer.optim.optimizer import Optimizer

_FORMAT = "tracer-checkpoint-1"
_STATE = Type("uint64", (2,))


@public
def save_file(
    tensors: Mapping[str, Any], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write Tensors or arrays by name, and strings beside them, as a safetensors file.

    The file appears complete or not at all. Raises `CheckpointError` if it cannot be written,
    `ArgumentError` for what is no Tensor or array, or no string.

    >>> tracer.save_file({"w": tracer.ones(2)}, "w.safetensors", metadata={"made by": "hand"})
    """
    outside_traces("a file is written")
    if not isinstance(tensors, Mapping):
        raise ArgumentError(f"save_file takes a dict of arrays, got {type(tensors).__name__}")
    strings = dict(metadata or {})
    checked_names(tensors, strings)
    write_file({n: array_of_value(n, t) for n, t in tensors.items()}, path, strings)


@public
def load_file(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file: Tensors by name.

    Raises `CheckpointError` for a file that is missing or damaged.

    >>> tracer.save_file({"w": np.ones(2, np.float32)}, "w.safetensors")
    >>> tracer.load_file("w.safetensors")
    {'w': tensor([1., 1.])}
    """
    return {name: Tensor.of_array(array) for name, array in read_file(path)[0].items()}


@public
def save_checkpoint(
    path: Path,
    model: Module,
    optimizer: Optimizer | None = None,
    generator: Generator | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a whole training run; with `load_checkpoint` it goes on as if it had not stopped.

    Saved are parameters and persistent buffers, the optimiser's state and options, and the state
    of the random generator (the default one unless another is given), to the bit. Gradients are
    not: save after a step. `extra`: anything that JSON holds, such as the epoch or a scheduler's
    `state_dict()`.

    The file appears complete or not at all. Raises `CheckpointError` if it cannot be written,
    `ArgumentError` for what cannot be saved.

    >>> model = tracer.nn.Linear(2, 1)
    >>> optimizer = tracer.optim.Adam(model.parameters())
    >>> tracer.save_checkpoint("run.ckpt", model, optimizer, extra={"epoch": 3})
    """
    outside_traces("a checkpoint is written")
    if extra is not None and not isinstance(extra, Mapping):
        raise ArgumentError(f"extra is a dict of what JSON holds, got {extra!r:.60}")
    header: dict[str, Any] = {"extra": dict(extra or {})}
    _check(model, optimizer, generator)
    tensors: dict[str, Any] = {f"model.{n}": t for n, t in model.state_dict().items()}
    if optimizer is not None:
        state = optimizer.state_dict()
        for number, members in state["state"].items():
            tensors |= {f"optimizer.{number}.{name}": t for name, t in members.items()}
        header["optimizer"] = type(optimizer).__name__
        header["param_groups"] = state["param_groups"]
    tensors["generator"] = (generator or default_generator).get_state()
    try:
        text = json.dumps(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"extra and options must be what JSON holds: {error}") from None
    save_file(tensors, path, {"format": _FORMAT, "run": text})


def _check(model: Any, optimizer: Any, generator: Any) -> None:
    """Raise `ArgumentError` unless these are what they are called."""
    from tracer.nn import Module
    from tracer.optim import Optimizer

    wanted = (
        (model, Module, "the model is a Module"),
        (optimizer, Optimizer | None, "the optimiser is one of tracer.optim, or None"),
        (generator, Generator | None, "the generator is a tracer.Generator, or None"),
    )
    for given, kind, text in wanted:
        if not isinstance(given, kind):
            raise ArgumentError(
                f"{text}, got {type(given).__name__}; other things that JSON holds go into extra"
            )


@public
def load_checkpoint(
    path: Path,
    model: Module,
    optimizer: Optimizer | None = None,
    generator: Generator | None = None,
) -> dict[str, Any]:
    """Restore what `save_checkpoint` wrote, all or nothing; returns `extra`.

    Without `optimizer` the optimiser's part of the file is left alone.

    Raises `CheckpointError` for a file that is missing, damaged or no checkpoint; `ArgumentError`,
    `ShapeError` or `DTypeError` when it does not fit the model or the optimiser.

    >>> model = tracer.nn.Linear(2, 1)
    >>> tracer.save_checkpoint("run.ckpt", model, extra={"epoch": 3})
    >>> tracer.load_checkpoint("run.ckpt", model)
    {'epoch': 3}
    """
    outside_traces("a checkpoint is loaded")
    _check(model, optimizer, generator)
    name = os.fspath(path)
    arrays, metadata = read_file(path)
    if metadata.get("format") != _FORMAT:
        raise CheckpointError(f"{name} is no checkpoint of a training run; for weights: load_file")
    header, weights, states = _sorted_out(name, arrays, metadata)
    commit: Callable[[], None] | None = None
    try:
        _, pairs = model._match(weights, strict=True, copy=False)
        if optimizer is not None:
            commit = _of_optimizer(optimizer, header, states)
    except (ArgumentError, DTypeError, ShapeError) as error:
        text = str(error).partition("\n  at ")[0]  # the line is added once more
        raise type(error)(f"{name}: {text}") from None
    write(pairs)
    if commit is not None:
        commit()
    (generator or default_generator).set_state(arrays["generator"])
    extra: dict[str, Any] = header["extra"]
    return extra


def _sorted_out(
    name: str, arrays: Mapping[str, Array], metadata: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Array], dict[int, dict[str, Array]]]:
    """Header, weights, and the optimiser's states by number."""
    try:
        header = json.loads(metadata["run"])
        if type(header["extra"]) is not dict:
            raise TypeError
    except (KeyError, ValueError, TypeError, RecursionError):
        raise CheckpointError(f"{name}: what it says of the run cannot be read") from None
    if "generator" not in arrays or Type.of(arrays["generator"]) != _STATE:
        raise CheckpointError(f"{name}: the random generator's state is missing")
    weights: dict[str, Array] = {}
    states: dict[int, dict[str, Array]] = {}
    for key, array in arrays.items():
        kind, _, rest = key.partition(".")
        number, _, member = rest.partition(".")
        if kind == "model" and rest:
            weights[rest] = array
        elif kind == "optimizer" and number.isdecimal() and len(number) < 10 and member:
            states.setdefault(int(number), {})[member] = array
        elif key != "generator":
            raise CheckpointError(f"{name}: {key!r:.80} is no part of a training run")
    return header, weights, states


def _of_optimizer(
    optimizer: Optimizer, header: Mapping[str, Any], states: Mapping[int, Mapping[str, Array]]
) -> Callable[[], None]:
    saved, own = header.get("optimizer"), type(optimizer).__name__
    if saved != own:
        raise ArgumentError(
            f"it was saved with the optimiser {saved!r:.40}, to be loaded into {own}"
        )
    return optimizer._match(
        {"state": states, "param_groups": header.get("param_groups")}, copy=False
    )


__all__ = ["load_checkpoint", "load_file", "save_checkpoint", "save_file"]
