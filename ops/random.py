"""Random numbers from a counter: Philox4x32-10, whose state is a value like any other.

A generator's state is uint64[2]: key and offset. Element k of a draw, in row-major order, uses the
four words that the counter offset + k gives under the key, so no element depends on another one, on
threads or on the device. `PhiloxAdvance` moves the offset past a draw. ONNX's random operators are
seeded by attributes, so these have names of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.compute import Attributes, Composite, Scalar
from ops.dims import Dim, product
from ops.errors import ArgumentError, DTypeError, ShapeError
from ops.operator import (
    RANDOM,
    Application,
    ErrorSample,
    Expanded,
    Input,
    Sample,
    Sizes,
    ZeroGradient,
    operator,
)
from ops.reference import as_dtype
from ops.types import FLOATING, Type, dtype_name, short

Array = np.ndarray[Any, Any]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round
WORD = 0xFFFFFFFF
# Bits of a uniform number: as many as the element type has for numbers from 1/2 to 1.
BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def philox4x32(counter: Array, key: tuple[int, int]) -> Array:
    """Four words for each counter (uint32[..., 4], the lowest word first) under a key of two."""
    words = [counter[..., k].astype(np.uint64) for k in range(4)]
    keys = list(key)
    for _ in range(ROUNDS):
        first = words[0] * np.uint64(MULTIPLIERS[0])
        second = words[2] * np.uint64(MULTIPLIERS[1])
        words = [
            (second >> np.uint64(32)) ^ words[1] ^ np.uint64(keys[0]),
            second & np.uint64(WORD),
            (first >> np.uint64(32)) ^ words[3] ^ np.uint64(keys[1]),
            first & np.uint64(WORD),
        ]
        keys = [(k + w) & WORD for k, w in zip(keys, WEYL, strict=True)]
    return np.stack(words, axis=-1).astype(np.uint32)


def draw_words(key: int, offset: int, count: int) -> Array:
    """The words of the first `count` elements of a draw: uint32[count, 4]."""
    with np.errstate(over="ignore"):
        counters = np.arange(count, dtype=np.uint64) + np.uint64(offset)
    low, high = counters & np.uint64(WORD), counters >> np.uint64(32)
    counter = np.stack([low, high, np.zeros_like(low), np.zeros_like(low)], axis=-1)
    return philox4x32(counter, (key & WORD, key >> 32))


def _joined(words: Array, first: int) -> Array:
    """Two neighbouring words as one uint64, the first one in the lower half."""
    low, high = words[..., first].astype(np.uint64), words[..., first + 1].astype(np.uint64)
    return low | high << np.uint64(32)


# ---- bits ----------------------------------------------------------------------------------------


def _bits_type(key: Type, offset: Type, *, shape: Sizes, word: int, bits: int) -> Type:
    for what, t in (("key", key), ("offset", offset)):
        if t.dtype != "uint64" or t.shape != ():
            raise DTypeError(f"the {what} must be one uint64, got {short(t)}")
    _require_sizes(shape)
    if word not in (0, 1, 2, 3) or not 1 <= bits <= 64 or (bits > 32 and word % 2):
        raise ArgumentError(
            "there are words 0 to 3 of 32 bits, and words 0 and 2 of 64; "
            f"got word {word}, {bits} bits"
        )
    return Type("uint32" if bits <= 32 else "uint64", shape)


def _require_sizes(shape: Sizes) -> None:
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ShapeError(f"a size is negative in {tuple(shape)}")


def _bits_text(types: Sequence[Type], result: Type, attrs: Attributes) -> str:
    word, bits = attrs["word"], attrs["bits"]
    half = "philox_low" if word < 2 else "philox_high"
    pair = f"{half}({{1}} + to_u64({{index}}), u64(0), {{0}})"
    if bits > 32:
        return f"{pair} >> u64({64 - bits})"
    if word % 2:
        return f"to_u32({pair} >> u64({64 - bits}))"
    return f"to_u32(({pair} & u64({WORD})) >> u64({32 - bits}))"


def _bits_onnx(g: Any, n: Application) -> Any:
    """The ten rounds as arithmetic on uint64."""

    def number(value: int) -> Any:
        return g.constant(value, "uint64")

    def low(x: Any) -> Any:
        return g.op("BitwiseAnd", x, number(WORD))

    def right(x: Any, count: int) -> Any:
        return g.op("BitShift", x, number(count), direction="RIGHT") if count else x

    def mixed(x: Any, y: Any, z: Any) -> Any:
        return g.op("BitwiseXor", g.op("BitwiseXor", x, y), z)

    key, offset = n.inputs
    line = g.op("Range", g.scalar(0), g.size(product(n.attrs.shape)), g.scalar(1))
    counter = g.op("Add", g.cast(line, "uint64"), offset)
    words = [low(counter), right(counter, 32), number(0), number(0)]
    keys = [low(key), right(key, 32)]
    for k in range(ROUNDS):
        if k:
            keys = [low(g.op("Add", x, number(w))) for x, w in zip(keys, WEYL, strict=True)]
        first = g.op("Mul", words[0], number(MULTIPLIERS[0]))
        second = g.op("Mul", words[2], number(MULTIPLIERS[1]))
        words = [
            mixed(right(second, 32), words[1], keys[0]),
            low(second),
            mixed(right(first, 32), words[3], keys[1]),
            low(first),
        ]
    word, bits = n.attrs.word, n.attrs.bits
    if bits <= 32:
        found = g.cast(right(words[word], 32 - bits), "uint32")
    else:
        upper = g.op("BitShift", words[word + 1], number(32), direction="LEFT")
        found = right(g.op("BitwiseOr", words[word], upper), 64 - bits)
    return g.op("Reshape", found, g.shape(n.attrs.shape), allowzero=1)


_KEY = Input((), "uint64", values=(0x9E3779B97F4A7C15,))
_OFFSETS = (
    Input((), "uint64", values=(0,)),
    Input((), "uint64", values=(2**32 - 5,)),
    Input((), "uint64", values=(2**64 - 5,)),
)
_UINT64 = Type("uint64")


@operator(
    "PhiloxBits",
    type_rule=_bits_type,
    compute=Scalar(_bits_text, effort="high"),
    vjp=ZeroGradient(),
    onnx=_bits_onnx,
    samples=(
        Sample((_KEY, _OFFSETS[0]), {"shape": (3, 17), "word": 0, "bits": 32}),
        Sample((_KEY, _OFFSETS[1]), {"shape": (40,), "word": 1, "bits": 24}),
        Sample((_KEY, _OFFSETS[2]), {"shape": (20,), "word": 2, "bits": 11}),
        Sample((_KEY, _OFFSETS[0]), {"shape": (2, 3, 4), "word": 3, "bits": 1}),
        Sample((_KEY, _OFFSETS[1]), {"shape": (33,), "word": 0, "bits": 64}),
        Sample((_KEY, _OFFSETS[2]), {"shape": (33,), "word": 2, "bits": 53}),
        Sample((_KEY, _OFFSETS[0]), {"shape": (), "word": 0, "bits": 32}),
        Sample((_KEY, _OFFSETS[0]), {"shape": (0, 3), "word": 0, "bits": 32}),
    ),
    errors=(
        ErrorSample(
            (_UINT64, Type("int64")),
            DTypeError,
            "one uint64",
            {"shape": (2,), "word": 0, "bits": 32},
        ),
        ErrorSample(
            (_UINT64, _UINT64),
            ArgumentError,
            "words 0 to 3",
            {"shape": (2,), "word": 4, "bits": 32},
        ),
        ErrorSample(
            (_UINT64, _UINT64),
            ArgumentError,
            "words 0 and 2",
            {"shape": (2,), "word": 1, "bits": 53},
        ),
        ErrorSample(
            (_UINT64, _UINT64), ShapeError, "negative", {"shape": (-2,), "word": 0, "bits": 32}
        ),
    ),
    dtypes=("uint64",),
    effect=RANDOM,
)
def philox_bits(key: Array, offset: Array, *, shape: Sizes, word: int, bits: int) -> Array:
    """The upper `bits` bits of one of each element's words.

    These are words 0 to 3 of 32 bits; for more bits words 0 and 1, or 2 and 3, are one of 64.
    """
    sizes = tuple(int(d) for d in shape)
    words = draw_words(int(key), int(offset), int(np.prod(sizes, dtype=np.int64)))
    if bits <= 32:
        return (words[:, word] >> np.uint32(32 - bits)).reshape(sizes)
    return (_joined(words, word) >> np.uint64(64 - bits)).reshape(sizes)


# ---- numbers -------------------------------------------------------------------------------------


def _require_state(state: Type) -> None:
    if state.dtype != "uint64" or state.shape != (2,):
        raise DTypeError(f"a generator's state is uint64[2], key and offset; got {short(state)}")


def _number_type(state: Type, *, shape: Sizes, dtype: str) -> Type:
    _require_state(state)
    _require_sizes(shape)
    if dtype_name(dtype) not in FLOATING:
        raise DTypeError(f"random numbers are floating, got dtype {dtype}; cast the result")
    return Type(dtype_name(dtype), shape)


def _element(g: Any, state: Any, k: int) -> Any:
    return g.reshape(g.Slice(state, starts=(k,), ends=(k + 1,), axes=(0,), steps=(1,)), ())


def _bits(g: Any, n: Application, word: int, bits: int, dtype: str) -> Any:
    """Random bits as whole numbers of a floating type, rounded if there are more than it has."""
    key, offset = _element(g, n.x, 0), _element(g, n.x, 1)
    return g.cast(g.PhiloxBits(key, offset, shape=n.attrs.shape, word=word, bits=bits), dtype)


def _uniform_rule(g: Any, n: Application) -> Any:
    dtype = dtype_name(n.attrs.dtype)
    whole = _bits(g, n, 0, BITS[dtype], dtype)
    return g.Mul(whole, g.like(2.0 ** -BITS[dtype], whole))


_STATE = Input((2,), "uint64", values=(1234567890123456789, 2**32 - 7))
_NUMBERS = (
    *(Sample((_STATE,), {"shape": (3, 37), "dtype": d}) for d in FLOATING),
    Sample((_STATE,), {"shape": ()}),
    Sample((_STATE,), {"shape": (0, 2)}),
    Sample((Input((2,), "uint64", values=(5, 0)),), {"shape": (1000,)}),
)
_NUMBER_ERRORS = (
    ErrorSample((Type("uint64", (3,)),), DTypeError, "uint64[2]", {"shape": (2,)}),
    ErrorSample((Type("int64", (2,)),), DTypeError, "uint64[2]", {"shape": (2,)}),
    ErrorSample(
        (Type("uint64", (2,)),), DTypeError, "are floating", {"shape": (2,), "dtype": "int32"}
    ),
    ErrorSample((Type("uint64", (2,)),), ShapeError, "negative", {"shape": (-1,)}),
)


@operator(
    "PhiloxUniform",
    type_rule=_number_type,
    compute=Composite(_uniform_rule),
    vjp=ZeroGradient(),
    onnx=Expanded(),
    samples=_NUMBERS,
    errors=_NUMBER_ERRORS,
    dtypes=("uint64",),
    effect=RANDOM,
)
def philox_uniform(state: Array, *, shape: Sizes, dtype: str = "float32") -> Array:
    """Numbers from 0 to below 1, each as likely as any other.

    They are multiples of 2**-24 in float32, 2**-53 in float64, 2**-11 in float16, 2**-8 in
    bfloat16.
    """
    sizes = tuple(int(d) for d in shape)
    words = draw_words(int(state[0]), int(state[1]), int(np.prod(sizes, dtype=np.int64)))
    if dtype == "float64":
        whole = _joined(words, 0) >> np.uint64(11)
    else:
        whole = words[:, 0].astype(np.uint64) >> np.uint64(32 - BITS[dtype])
    exact = whole.astype(np.float64) / 2.0 ** BITS[dtype]
    return as_dtype(exact, dtype).reshape(sizes)


def _normal_rule(g: Any, n: Application) -> Any:
    """Box and Muller's sqrt(-2 log u) cos(2 pi v).

    u goes from 2**-33 to 1 (in float64 from 2**-54), v from 0 to below 1.
    """
    dtype = dtype_name(n.attrs.dtype)
    wide = "float64" if dtype == "float64" else "float32"
    many, few = (53, 53) if wide == "float64" else (32, 24)
    whole = _bits(g, n, 0, many, wide)
    u = g.Mul(g.Add(whole, g.like(0.5, whole)), g.like(2.0**-many, whole))
    turn = _bits(g, n, 2, few, wide)
    angle = g.Mul(turn, g.like(2 * np.pi * 2.0**-few, turn))
    radius = g.Sqrt(g.Mul(g.Log(u), g.like(-2, u)))
    return g.cast(g.Mul(radius, g.Cos(angle)), dtype)


@operator(
    "PhiloxNormal",
    type_rule=_number_type,
    compute=Composite(_normal_rule),
    vjp=ZeroGradient(),
    onnx=Expanded(),
    samples=_NUMBERS,
    errors=_NUMBER_ERRORS,
    dtypes=("uint64",),
    ulp=8,
    effect=RANDOM,
)
def philox_normal(state: Array, *, shape: Sizes, dtype: str = "float32") -> Array:
    """Numbers with the standard normal distribution, at most 6.8 in float32, 8.7 in float64.

    Half types are computed in float32 and rounded.
    """
    sizes = tuple(int(d) for d in shape)
    words = draw_words(int(state[0]), int(state[1]), int(np.prod(sizes, dtype=np.int64)))
    # What is rounded before logarithm and cosine is rounded here too; these are taken in float64.
    u: Array
    if dtype == "float64":
        u = ((_joined(words, 0) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        turn = (_joined(words, 2) >> np.uint64(11)).astype(np.float64)
        angle = turn * (2 * np.pi * 2.0**-53)
    else:
        single = np.float32
        u = (words[:, 0].astype(single) + single(0.5)) * single(2.0**-32)
        turn = (words[:, 2] >> np.uint32(8)).astype(single)
        angle = (turn * single(2 * np.pi * 2.0**-24)).astype(np.float64)
    result = np.sqrt(-2 * np.log(u.astype(np.float64))) * np.cos(angle)
    return as_dtype(result, dtype).reshape(sizes)


# ---- state ---------------------------------------------------------------------------------------


def _advance_type(state: Type, *, count: int | Dim) -> Type:
    _require_state(state)
    if isinstance(count, int) and count < 0:
        raise ArgumentError(f"count must be at least 0, got {count}")
    return Type("uint64", (2,))


def _advance_rule(g: Any, n: Application) -> Any:
    step = g.Mul(g.Iota(shape=(2,), axis=0, dtype="uint64"), g.size(n.attrs.count, "uint64"))
    return g.Add(n.x, step)


@operator(
    "PhiloxAdvance",
    type_rule=_advance_type,
    compute=Composite(_advance_rule),
    vjp=ZeroGradient(),
    onnx=Expanded(),
    samples=(
        Sample((_STATE,), {"count": 111}),
        Sample((_STATE,), {"count": 0}),
        Sample((Input((2,), "uint64", values=(2**63 + 3, 2**64 - 2)),), {"count": 5}),
    ),
    errors=(
        ErrorSample((Type("uint64", (3,)),), DTypeError, "uint64[2]", {"count": 1}),
        ErrorSample((Type("uint64", (2,)),), ArgumentError, "at least 0", {"count": -1}),
    ),
    dtypes=("uint64",),
    effect=RANDOM,
)
def philox_advance(state: Array, *, count: int | Dim) -> Array:
    """The state after a draw of `count` elements: the offset moved on, modulo 2**64."""
    return np.array([int(state[0]), (int(state[1]) + int(count)) % 2**64], np.uint64)
