"""The safetensors format: arrays by name in one file, with strings beside them.

Eight bytes for the length of the header, the header as JSON (for each name element type, shape and
place of the data), the data. Nothing in it is code. Knows the format and the file system; what the
arrays are for is `tracer.checkpoint`'s business.

A file that is written here carries a checksum among its strings, and is refused when it does not
fit. Files are written beside their place and moved there: all or nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from typing import Any, BinaryIO

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
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_METADATA, _CHECKSUM = "__metadata__", "tracer.checksum"
_LONGEST_HEADER = 100_000_000  # the format's limit
_MOST_AXES = 64  # NumPy's limit


class _FormatError(Exception):
    """What is wrong with a file."""


# ---- writing -------------------------------------------------------------------------------------


def write_file(arrays: Mapping[str, Array], path: Path, metadata: Mapping[str, str]) -> None:
    """Write arrays and strings; a file that is there is replaced when the new one is complete.

    Raises `ArgumentError` for names and strings that the format cannot hold, `CheckpointError` if
    the file cannot be written.
    """
    names = sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n))  # keeps data aligned
    strings = {k: v for k, v in metadata.items() if k != _CHECKSUM}  # of the file it came from
    header: dict[str, Any] = {_METADATA: strings}
    offset = 0
    for name in names:
        array = arrays[name]
        header[name] = {
            "dtype": _NAMES[dtype_name(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    digest = _digest(header)
    for name in names:
        digest.update(_bytes(arrays[name]))
    header[_METADATA][_CHECKSUM] = digest.hexdigest()
    text = _text(header)
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST_HEADER:
        raise ArgumentError(f"the names and strings take {len(text):,} bytes, the format has 10**8")
    chunks = [len(text).to_bytes(8, "little"), text, *(_bytes(arrays[n]) for n in names)]
    _replace(os.fspath(path), chunks)


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


def _text(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def _digest(header: Mapping[str, Any]) -> Any:
    """A hash that has taken in what a header says; the data follow."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16)


def _bytes(array: Array) -> memoryview:
    """An array's elements in order, without a copy where they lie so."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _replace(path: str, chunks: list[Any]) -> None:
    """Write a file beside its place and move it there."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".{os.path.basename(target)[:80]}.{secrets.token_hex(6)}")
    try:
        try:
            with open(temporary, "xb") as file:
                for chunk in chunks:
                    file.write(chunk)
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
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read: {error.strerror or error}") from None
    except _FormatError as error:
        raise CheckpointError(f"{name} is no valid safetensors file: {error}") from None


def _read(file: BinaryIO, size: int) -> tuple[dict[str, Array], dict[str, str]]:
    start = file.read(8)
    if len(start) < 8:
        raise _FormatError(f"it has only {len(start)} bytes")
    length = int.from_bytes(start, "little")
    if length > min(size - 8, _LONGEST_HEADER):
        raise _FormatError(f"its header should have {length:,} bytes, the file has {size:,}")
    header = _parsed(file.read(length))
    metadata = header.get(_METADATA, {})
    if type(metadata) is not dict or not all(type(v) is str for v in metadata.values()):
        raise _FormatError("its metadata are not strings")
    places = {name: _place(name, entry) for name, entry in header.items() if name != _METADATA}
    end = 0
    for name in sorted(places, key=lambda n: (places[n][2], places[n][3])):
        _, _, begin, finish = places[name]
        if begin != end:
            raise _FormatError(f"the data of {name!r:.80} begin at {begin:,}, expected {end:,}")
        end = finish
    if end != size - 8 - length:
        raise _FormatError(f"it has {size - 8 - length:,} bytes of data, its header names {end:,}")
    expected = metadata.pop(_CHECKSUM, None)
    digest = _digest(header)
    arrays: dict[str, Array] = {}
    for name in sorted(places, key=lambda n: (places[n][2], places[n][3])):
        arrays[name] = _array(file, name, *places[name][:2])
        if expected is not None:
            digest.update(_bytes(arrays[name]))
    if expected is not None and digest.hexdigest() != expected:
        raise _FormatError(
            "its checksum does not fit: it is damaged, or another program changed it and kept the "
            "old checksum"
        )
    return {name: arrays[name] for name in places}, metadata


def _parsed(text: bytes) -> dict[str, Any]:
    """The header's JSON."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise _FormatError("a name comes twice in its header")
        return result

    try:
        header = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise _FormatError("its header is no JSON") from None
    if type(header) is not dict:
        raise _FormatError("its header is no JSON object")
    return header


def _place(name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Element type, shape, first byte and end of an entry of the header."""
    shown = f"{name!r:.80}"
    if type(entry) is not dict or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _FormatError(f"the entry {shown} is not of the form dtype, shape, data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if type(dtype) is not str or dtype not in _DTYPES:
        raise _FormatError(f"{shown} has the element type {dtype!r:.40}, which is not supported")
    if not _are_sizes(shape) or len(shape) > _MOST_AXES:
        raise _FormatError(f"{shown} has the shape {shape!r:.80}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise _FormatError(f"{shown} has the data_offsets {offsets!r:.80}")
    bytes_ = math.prod(shape) * numpy_dtype(_DTYPES[dtype]).itemsize
    if offsets[1] - offsets[0] != bytes_:
        raise _FormatError(f"{shown} needs {bytes_:,} bytes, its data_offsets are {offsets}")
    return _DTYPES[dtype], tuple(shape), offsets[0], offsets[1]


def _are_sizes(x: Any) -> bool:
    return type(x) is list and all(type(d) is int and 0 <= d < 1 << 62 for d in x)


def _array(file: BinaryIO, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """The next array of the data."""
    try:
        array = np.empty(shape, numpy_dtype(dtype))
    except ValueError:
        raise _FormatError(f"{name!r:.80} has the shape {shape!r:.80}") from None
    data = array.reshape(-1).view(np.uint8)
    if file.readinto(data.data) != data.size:  # type: ignore[attr-defined]
        raise _FormatError("it became shorter while it was read")
    if dtype == "bool" and data.size and data.max() > 1:
        raise _FormatError(f"{name!r:.80} holds bools that are neither 0 nor 1")
    return array
