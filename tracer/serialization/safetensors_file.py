"""The safetensors format: arrays by name in one file, with strings beside them.

The library `safetensors` reads and writes the bytes; nothing in such a file is code. Added here: a
checksum among the strings, without which a flipped bit in the data would go unnoticed, and files
written beside their place and moved there: all or nothing. What the arrays are for is
`tracer.checkpoint`'s business.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from ops.errors import ArgumentError, CheckpointError
from ops.types import dtype_name, numpy_dtype

Array = np.ndarray[Any, Any]
Path = str | os.PathLike[str]

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
_METADATA, _CHECKSUM = "__metadata__", "tracer.checksum"


class _FormatError(Exception):
    """What is wrong with a file."""


# ---- writing -------------------------------------------------------------------------------------


def write_file(arrays: Mapping[str, Array], path: Path, metadata: Mapping[str, str]) -> None:
    """Write arrays and strings; a file that is there is replaced when the new one is complete.

    Raises `ArgumentError` for names and strings that the format cannot hold, `CheckpointError` if
    the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save

    strings = {k: v for k, v in metadata.items() if k != _CHECKSUM}  # of the file it came from
    strings[_CHECKSUM] = _checksum(arrays, strings)
    whole = {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in arrays.items()}
    try:
        data = save(whole, strings)
    except SafetensorError as error:
        raise ArgumentError(f"the names and strings do not fit the format: {error}") from None
    _replace(os.fspath(path), data)


def checked_names(arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Raise `ArgumentError` for names and strings that the format cannot hold."""
    for what in (*arrays, *metadata, *metadata.values()):
        if not isinstance(what, str):
            raise ArgumentError(f"names and metadata are strings, got {what!r:.60}")
        try:
            what.encode()
        except UnicodeEncodeError:
            raise ArgumentError(f"{what!r:.60} cannot be written as UTF-8") from None
    if _METADATA in arrays:
        raise ArgumentError(f"no array can have the name {_METADATA}: the format uses it")


def _checksum(arrays: Mapping[str, Array], strings: Mapping[str, str]) -> str:
    """A hash of everything that a file says."""
    names = sorted(arrays)
    said = [[n, dtype_name(arrays[n].dtype), list(arrays[n].shape)] for n in names]
    digest = hashlib.blake2b(json.dumps([said, sorted(strings.items())]).encode(), digest_size=16)
    for name in names:
        digest.update(_bytes(arrays[name]))
    return digest.hexdigest()


def _bytes(array: Array) -> memoryview:
    """An array's elements in order, without a copy where they lie so."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _replace(path: str, data: bytes) -> None:
    """Write a file beside its place and move it there."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".{os.path.basename(target)[:80]}.{secrets.token_hex(6)}")
    try:
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from None


# ---- reading -------------------------------------------------------------------------------------


def read_file(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and strings of a file. Raises `CheckpointError` if it is missing or damaged."""
    from safetensors import SafetensorError, deserialize

    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        entries: Any = deserialize(raw)  # type: ignore[no-untyped-call]
        arrays = {n: _array(n, entry) for n, entry in entries}
        metadata = _metadata(raw)
        expected = metadata.pop(_CHECKSUM, None)
        if expected is not None and _checksum(arrays, metadata) != expected:
            raise _FormatError(
                "its checksum does not fit: it is damaged, or another program changed it and kept "
                "the old checksum"
            )
    except (SafetensorError, _FormatError) as error:
        raise CheckpointError(f"{name} is no valid safetensors file: {error}") from None
    return arrays, metadata


def _metadata(raw: bytes) -> dict[str, str]:
    """The strings of a file that the library has accepted."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise _FormatError("a name comes twice in its header")
        return result

    length = int.from_bytes(raw[:8], "little")
    try:
        header = json.loads(raw[8 : 8 + length].decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise _FormatError("its header is no JSON") from None
    found = header.get(_METADATA) or {}
    return {str(k): str(v) for k, v in found.items()}


def _array(name: str, entry: Mapping[str, Any]) -> Array:
    """A copy of one entry's data."""
    dtype = _DTYPES.get(entry["dtype"])
    shown = f"{name!r:.80}"
    if dtype is None:
        raise _FormatError(f"{shown} has the element type {entry['dtype']}, which is not supported")
    data = np.frombuffer(bytearray(entry["data"]), np.uint8)
    if dtype == "bool" and data.size and data.max() > 1:
        raise _FormatError(f"{shown} holds bools that are neither 0 nor 1")
    try:
        return data.view(numpy_dtype(dtype)).reshape(entry["shape"])
    except (ValueError, OverflowError):
        raise _FormatError(f"{shown} has the shape {entry['shape']!r:.80}") from None
