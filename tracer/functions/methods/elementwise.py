"""Methods of Tensor that work element by element, and conversions, under PyTorch's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.errors import ArgumentError
from ops.types import dtype_name, is_floating
from tracer.dispatch.view_updates import write
from tracer.functions import activation, arithmetic, creation, logic, reductions, transcendental
from tracer.functions.creation import Shape, as_tensor, cast, copied
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor


class Elementwise:
    """Arithmetic, comparison, logic and the functions of one element."""

    __slots__ = ()

    abs = absolute = arithmetic.abs
    acos = arccos = transcendental.acos
    acosh = arccosh = transcendental.acosh
    asin = arcsin = transcendental.asin
    asinh = arcsinh = transcendental.asinh
    atan = arctan = transcendental.atan
    atan2 = arctan2 = transcendental.atan2
    atanh = arctanh = transcendental.atanh
    bitwise_and = logic.bitwise_and
    bitwise_left_shift = logic.bitwise_left_shift
    bitwise_not = logic.bitwise_invert
    bitwise_or = logic.bitwise_or
    bitwise_right_shift = logic.bitwise_right_shift
    bitwise_xor = logic.bitwise_xor
    ceil = arithmetic.ceil
    clamp = clip = arithmetic.clip
    copysign = arithmetic.copysign
    cos = transcendental.cos
    cosh = transcendental.cosh
    eq = logic.equal
    erf = transcendental.erf
    erfc = transcendental.erfc
    exp = transcendental.exp
    exp2 = transcendental.exp2
    expm1 = transcendental.expm1
    floor = arithmetic.floor
    floor_divide = arithmetic.floor_divide
    fmod = arithmetic.fmod
    ge = greater_equal = logic.greater_equal
    gt = greater = logic.greater
    hypot = arithmetic.hypot
    isclose = logic.isclose
    isfinite = logic.isfinite
    isinf = logic.isinf
    isnan = logic.isnan
    le = less_equal = logic.less_equal
    lerp = arithmetic.lerp
    log = transcendental.log
    log10 = transcendental.log10
    log1p = transcendental.log1p
    log2 = transcendental.log2
    logaddexp = transcendental.logaddexp
    xlogy = transcendental.xlogy
    logical_and = logic.logical_and
    logical_not = logic.logical_not
    logical_or = logic.logical_or
    logical_xor = logic.logical_xor
    lt = less = logic.less
    maximum = arithmetic.maximum
    minimum = arithmetic.minimum
    mul = multiply = arithmetic.multiply
    nan_to_num = logic.nan_to_num
    ne = not_equal = logic.not_equal
    neg = negative = arithmetic.negative
    positive = arithmetic.positive
    pow = arithmetic.pow
    reciprocal = arithmetic.reciprocal
    relu = activation.relu
    remainder = arithmetic.remainder
    round = arithmetic.round
    rsqrt = arithmetic.rsqrt
    sigmoid = activation.sigmoid
    sign = arithmetic.sign
    signbit = logic.signbit
    sin = transcendental.sin
    sinh = transcendental.sinh
    sqrt = arithmetic.sqrt
    square = arithmetic.square
    tan = transcendental.tan
    tanh = transcendental.tanh
    trunc = fix = arithmetic.trunc

    def add(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Self + alpha * other."""
        return arithmetic.add(self, _times(alpha, other))

    def sub(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """Self - alpha * other."""
        return arithmetic.subtract(self, _times(alpha, other))

    subtract = sub

    @public
    def div(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """Self / other; rounding_mode "floor" or "trunc" rounds the quotient and keeps integers."""
        if rounding_mode is None:
            return arithmetic.divide(self, other)
        if rounding_mode == "floor":
            return arithmetic.floor_divide(self, other)
        if rounding_mode == "trunc":
            a, b = prepare(self, other)
            if is_floating(a.type.dtype):
                return arithmetic.trunc(arithmetic.divide(a, b))
            return arithmetic.floor_divide(arithmetic.subtract(a, arithmetic.fmod(a, b)), b)
        raise ArgumentError(
            f'rounding_mode must be None, "floor" or "trunc", got {rounding_mode!r}'
        )

    divide = true_divide = div

    def addcmul(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Self + value * tensor1 * tensor2."""
        return arithmetic.add(self, _times(value, arithmetic.multiply(tensor1, tensor2)))

    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Self + value * tensor1 / tensor2."""
        return arithmetic.add(self, _times(value, arithmetic.divide(tensor1, tensor2)))

    def clamp_min(self, min: Any) -> Tensor:
        """Elements below `min` replaced by it."""
        return arithmetic.clip(self, min, None)

    def clamp_max(self, max: Any) -> Tensor:
        """Elements above `max` replaced by it."""
        return arithmetic.clip(self, None, max)

    def where(self, condition: Any, other: Any) -> Tensor:
        """Self where the condition holds, else other."""
        return logic.where(condition, self, other)

    def masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
        """Self with `value`, a number or 0-d Tensor, where the mask holds.

        Converted to self's element type.
        """
        return masked_fill(self, mask, value)

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close, see `tracer.isclose`."""
        return logic.allclose(self, other, rtol, atol, equal_nan)

    def equal(self: Any, other: Any) -> bool:
        """Whether both have one shape and equal elements: a Python bool, unlike `eq`."""
        other = as_tensor(other)
        return bool(
            self.type.shape == other.type.shape and bool(reductions.all(logic.equal(self, other)))
        )


def _times(scale: Any, x: Any) -> Any:
    return x if isinstance(scale, int | float) and scale == 1 else arithmetic.multiply(x, scale)


@public
def masked_fill(x: Tensor, mask: Any, value: Any) -> Tensor:
    """x with a value where the mask holds."""
    filling = cast(as_tensor(value), x.type.dtype)
    if filling.ndim:
        raise ArgumentError(
            f"masked_fill takes a number or a 0-d Tensor, got shape {filling.shape}; use "
            "tracer.where"
        )
    return logic.where(mask, filling, x)


class Conversions:
    """Element types, devices, copies."""

    __slots__ = ()

    astype = creation.astype

    def float(self: Any) -> Tensor:
        """As float32."""
        return cast(self, "float32")

    def double(self: Any) -> Tensor:
        """As float64."""
        return cast(self, "float64")

    def half(self: Any) -> Tensor:
        """As float16."""
        return cast(self, "float16")

    def bfloat16(self: Any) -> Tensor:
        """As bfloat16."""
        return cast(self, "bfloat16")

    def char(self: Any) -> Tensor:
        """As int8."""
        return cast(self, "int8")

    def short(self: Any) -> Tensor:
        """As int16."""
        return cast(self, "int16")

    def int(self: Any) -> Tensor:
        """As int32."""
        return cast(self, "int32")

    def long(self: Any) -> Tensor:
        """As int64."""
        return cast(self, "int64")

    def byte(self: Any) -> Tensor:
        """As uint8."""
        return cast(self, "uint8")

    def bool(self: Any) -> Tensor:
        """As bool: whether elements are not 0."""
        return cast(self, "bool")

    def to(
        self: Any, *args: Any, dtype: Any = None, device: Any = None, copy: Any = False, **_: Any
    ) -> Tensor:
        """Self with an element type (or another Tensor's), on a device: "cpu" is the only one."""
        return to(self, args, dtype, device, copy)

    def type_as(self: Any, other: Any) -> Tensor:
        """Self with the element type of another Tensor."""
        return cast(self, as_tensor(other).type.dtype)

    def clone(self: Any) -> Tensor:
        """A copy in memory of its own; gradients go through."""
        return copied(self)

    def contiguous(self: Any) -> Tensor:
        """Self with elements in row-major order in memory; itself if they are."""
        return self if self.is_contiguous() else copied(self)

    def is_contiguous(self: Any) -> Any:
        """Whether elements lie in row-major order in memory, in a trace as they would lie without it."""
        if self._value is not None:
            view = self._view
            return view is None or view.layout is None or view.layout.is_row_major
        return self._array is None or self._array.flags.c_contiguous

    def __dlpack__(self: Any, **options: Any) -> Any:
        """The memory as DLPack's capsule, which other libraries take; as of NumPy's arrays. Raises `GradError` as `numpy()`."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self: Any) -> Any:
        """Where it lies, as DLPack says it: on the CPU."""
        return (1, 0)

    def is_floating_point(self: Any) -> Any:
        """Whether elements are floats."""
        return is_floating(self.type.dtype)

    def element_size(self: Any) -> Any:
        """Bytes of one element."""
        return self.type.itemsize

    def cpu(self: Any) -> Tensor:
        """Self: Tensors are on the CPU."""
        return self  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """Where the elements are: "cpu"."""
        return "cpu"

    def new_zeros(self: Any, *size: Shape, dtype: Any = None) -> Tensor:
        """Zeros of a shape, with self's element type unless told otherwise."""
        return creation.full(_one(size), 0, dtype=dtype or self.type.dtype)

    def new_ones(self: Any, *size: Shape, dtype: Any = None) -> Tensor:
        """Ones of a shape, with self's element type unless told otherwise."""
        return creation.full(_one(size), 1, dtype=dtype or self.type.dtype)

    def new_empty(self: Any, *size: Shape, dtype: Any = None) -> Tensor:
        """The same as `new_zeros`."""
        return creation.full(_one(size), 0, dtype=dtype or self.type.dtype)

    def new_full(self: Any, size: Shape, fill_value: Any, dtype: Any = None) -> Tensor:
        """A Tensor of a shape, every element fill_value, in self's type unless told otherwise."""
        return creation.full(size, fill_value, dtype=dtype or self.type.dtype)

    def new_tensor(self: Any, data: Any, dtype: Any = None) -> Tensor:
        """A Tensor of data, with self's element type unless told otherwise."""
        return creation.tensor(data, dtype=dtype or self.type.dtype)

    @property
    def data(self: Any) -> Tensor:
        """The same memory without history and without being volatile. Assigning writes into it."""
        result: Tensor = self.detach()
        result.volatile = False
        return result

    @data.setter
    def data(self: Any, value: Any) -> None:
        set_data(self, value)


def _one(sizes: tuple[Any, ...]) -> Any:
    """Sizes given one by one or as one sequence."""
    return sizes[0] if len(sizes) == 1 else sizes


@public
def to(x: Tensor, args: tuple[Any, ...], dtype: Any, device: Any, copy: bool) -> Tensor:
    """`Tensor.to`: what kind of thing each argument is decides."""
    for argument in args:
        if isinstance(argument, Tensor):
            dtype = argument.type.dtype
        elif isinstance(argument, str) and argument.split(":")[0] in ("cpu", "cuda", "meta", "mps"):
            device = argument
        elif not isinstance(argument, bool | np.bool_):  # non_blocking, copy
            dtype = argument
    if device is not None and str(device).split(":")[0] != "cpu":
        raise ArgumentError(f'the only device is "cpu", got {device!r}')
    result = x if dtype is None else cast(x, dtype_name(dtype))
    return copied(x) if copy and result is x else result


@public
def set_data(x: Tensor, value: Any) -> None:
    """`x.data = value`: written into x's memory without touching its history."""
    new = as_tensor(value)
    if new.type.strong() != x.type.strong():
        raise ArgumentError(f"x.data takes a Tensor of x's type {x.type}, got {new.type}")
    MODES.interpreter.require_writeable(x)
    write(x, new.data, recorded=False)
