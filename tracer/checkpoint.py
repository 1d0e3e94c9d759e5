"""Saving: weights as safetensors, and a whole training run in one file.

A checkpoint is a safetensors file: arrays by name, everything else as JSON in its header. Nothing in it is code, so a file from
anywhere is read safely. Files are written beside their place and moved there: all or nothing.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ops.errors import ArgumentError, CheckpointError
from ops.types import Type
from tracer.random import Generator, default_generator
from tracer.tensor import Tensor

if TYPE_CHECKING:
    from tracer.nn.module import Module
    from tracer.optim.optimizer import Optimizer

_FORMAT = "tracer-checkpoint-1"


def save_file(tensors: Mapping[str, Any], path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays by name as a safetensors file. Raises `CheckpointError` if it cannot be written."""
    from safetensors import serialize

    data = {
        name: {"dtype": array.dtype.name, "shape": list(array.shape), "data": array.tobytes()}
        for name, array in ((n, np.ascontiguousarray(_array(t)).reshape(np.shape(t))) for n, t in tensors.items())
    }
    _write(serialize(data, dict(metadata) if metadata else None), path)


def load_file(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a safetensors file: Tensors by name. Raises `CheckpointError` for a file that is missing or damaged."""
    return _read(path)[0]


def save_checkpoint(
    path: str | os.PathLike[str],
    model: Module,
    optimizer: Optimizer | None = None,
    generator: Generator | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write a whole training run: parameters and buffers, the optimiser's state and options, the random generator's state.

    `generator`: the default one unless given. `extra`: anything that JSON holds, such as the epoch. With `load_checkpoint`
    training goes on bit for bit as if it had not stopped.
    """
    tensors: dict[str, Any] = {f"model.{n}": t for n, t in model.state_dict().items()}
    header: dict[str, Any] = {"extra": dict(extra or {})}
    if optimizer is not None:
        state = optimizer.state_dict()
        for number, members in state["state"].items():
            for name, t in members.items():
                tensors[f"optimizer.{number}.{name}"] = t
        header["param_groups"] = state["param_groups"]
        header["optimizer"] = type(optimizer).__name__
    tensors["generator"] = (generator or default_generator).get_state()
    try:
        text = json.dumps(header)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"extra and the optimiser's options must be what JSON holds: {error}") from None
    save_file(tensors, path, {"format": _FORMAT, "tracer": text})


def load_checkpoint(
    path: str | os.PathLike[str],
    model: Module,
    optimizer: Optimizer | None = None,
    generator: Generator | None = None,
) -> dict[str, Any]:
    """Restore what `save_checkpoint` wrote, all or nothing; returns `extra`.

    Raises `CheckpointError` for a file that is missing, damaged or of another kind, `ArgumentError` or `ShapeError` when it does
    not fit the model or optimiser.
    """
    tensors, metadata = _read(path)
    if metadata.get("format") != _FORMAT:
        raise CheckpointError(f"{os.fspath(path)} is no checkpoint of this library; for plain weights use load_file")
    try:
        header = json.loads(metadata["tracer"])
        extra = dict(header["extra"])
    except (KeyError, ValueError, TypeError, RecursionError):
        raise CheckpointError(f"{os.fspath(path)}: the header is damaged") from None
    weights = {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}
    before = {n: np.array(t.array) for n, t in model.state_dict().items()}
    if optimizer is not None and header.get("optimizer") != type(optimizer).__name__:
        raise ArgumentError(f"the checkpoint was written with {header.get('optimizer')}, not {type(optimizer).__name__}")
    generator_state = tensors.get("generator")
    if generator_state is None or generator_state.type != Type("uint64", (2,)):
        raise CheckpointError(f"{os.fspath(path)}: the generator's state is missing")
    model.load_state_dict(weights)
    if optimizer is not None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, t in tensors.items():
            kind, _, rest = name.partition(".")
            number, _, member = rest.partition(".")
            if kind == "optimizer" and number.isdigit():
                state.setdefault(int(number), {})[member] = t
        try:
            optimizer.load_state_dict({"state": state, "param_groups": header["param_groups"]})
        except (KeyError, TypeError, ArgumentError) as error:
            model.load_state_dict(before)
            raise ArgumentError(f"{os.fspath(path)} does not fit the optimiser: {error}") from None
    (generator or default_generator).set_state(generator_state)
    return extra


def _array(x: Any) -> np.ndarray[Any, Any]:
    return x._data() if isinstance(x, Tensor) else np.asarray(x)


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import SafetensorError, deserialize

    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise CheckpointError(f"{os.fspath(path)} cannot be read: {error.strerror or error}") from None
    result: dict[str, Tensor] = {}
    try:
        for name, view in deserialize(raw):
            dtype = _DTYPES[view["dtype"]]
            array = np.frombuffer(view["data"], Type(dtype).numpy).reshape(view["shape"]).copy()
            result[name] = Tensor.of_array(array)
        length = int.from_bytes(raw[:8], "little")
        metadata = json.loads(raw[8 : 8 + length]).get("__metadata__", {})
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{os.fspath(path)} is no valid safetensors file: {error}") from None
    return result, metadata


_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


def _write(data: bytes, path: str | os.PathLike[str]) -> None:
    """All of the file or nothing."""
    target = os.fspath(path)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=".tracer-", dir=os.path.dirname(os.path.abspath(target)))
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise CheckpointError(f"{target} cannot be written: {error.strerror or error}") from None


__all__ = ["load_checkpoint", "load_file", "save_checkpoint", "save_file"]

