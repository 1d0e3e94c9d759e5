"""Random numbers: counter-based (Philox4x32-10), the generator's state a Tensor.

A draw is a function of the state: the same bits eager and compiled, on any number of threads. Each
draw advances the state by its number of elements; in a traced function the state is an input and
an output of the program.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.errors import ArgumentError, DTypeError
from ops.types import dtype_name, is_floating, is_integer, numpy_dtype, short
from tracer.core.source_lines import located
from tracer.dispatch.apply import apply
from tracer.functions.arithmetic import add, minimum, multiply
from tracer.functions.creation import as_shape, as_tensor, cast, fresh
from tracer.functions.elementwise import elementwise
from tracer.functions.logic import bitwise_and, bitwise_right_shift
from tracer.functions.public import public
from tracer.functions.state_values import assign
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Shape = int | Sequence[int]
_WORD = 0xFFFFFFFF


class Generator:
    """A stream of random numbers, from a seed. Use one generator in one thread at a time.

    `state`: uint64[2], the seed and how many elements have been drawn. It is changed in place and
    stays the same Tensor, which is how traced functions know it.

    >>> generator = tracer.Generator(seed=1)
    >>> generator.manual_seed(1) is generator
    True
    >>> tracer.rand(2, generator=generator).shape, generator.state.tolist()
    ((2,), [1, 2])
    """

    def __init__(self, seed: int = 0) -> None:
        self.state = Tensor.of_array(np.zeros(2, np.uint64))
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start again from a seed, 0 to 2**64 - 1; in a traced function, at each call."""
        try:
            number = operator.index(seed)
        except TypeError:
            number = -1
        if isinstance(seed, bool) or not 0 <= number < 1 << 64:
            raise located(ArgumentError(f"a seed is an integer from 0 to 2**64 - 1, got {seed!r}"))
        assign(self.state, fresh(np.array([number, 0], np.uint64)))
        return self

    def seed(self) -> int:
        """Start again from a seed that the system draws; returns it."""
        seed = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(seed)
        return seed

    def get_state(self) -> Tensor:
        """A copy of the state."""
        return Tensor.of_array(self.state.array.copy())

    def set_state(self, state: Any) -> None:
        """Continue from a state that `get_state` gave."""
        value = as_tensor(state)
        if value.type.dtype != "uint64" or value.type.shape != (2,):
            raise located(
                ArgumentError(f"a generator's state is uint64[2], got {short(value.type)}")
            )
        assign(self.state, value)

    def __repr__(self) -> str:
        state = MODES.interpreter.known_elements(self.state)
        if state is None:
            return "Generator(traced)"
        seed, drawn = state.tolist()
        return f"Generator(seed={seed}, drawn={drawn})"

    def _draw(self, name: str, sizes: Any, dtype: Any) -> Tensor:
        """Numbers of a random operator; advances the state."""
        wanted = dtype_name("float32" if dtype is None else dtype)
        with no_grad():
            result = apply(name, self.state, shape=sizes, dtype=wanted)
            self._advance(sizes)
        return result

    def _bits(self, sizes: Any) -> Tensor:
        """64 random bits for each element, as uint64; advances the state."""
        with no_grad():
            key, offset = (apply("Reshape", self.state[k], shape=()) for k in (0, 1))
            result = apply("PhiloxBits", key, offset, shape=sizes, word=0, bits=64)
            self._advance(sizes)
        return result

    def _advance(self, sizes: Any) -> None:
        assign(self.state, apply("PhiloxAdvance", self.state, count=dims.product(sizes)))


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Start the default generator again from a seed, 0 to 2**64 - 1; returns it.

    >>> tracer.manual_seed(0) is tracer.random.default_generator
    True
    """
    return default_generator.manual_seed(seed)


def get_state() -> Tensor:
    """A copy of the default generator's state, uint64[2].

    >>> state = tracer.random.get_state()
    >>> a = tracer.rand(2)
    >>> tracer.random.set_state(state)
    >>> tracer.allclose(a, tracer.rand(2))
    True
    """
    return default_generator.get_state()


def set_state(state: Any) -> None:
    """Continue the default generator from a state that `get_state` gave.

    Raises `ArgumentError` for what is no such state.

    >>> tracer.random.set_state(tracer.random.get_state())
    """
    default_generator.set_state(state)


def _of(generator: Generator | None) -> Generator:
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise ArgumentError(
            f"generator must be a tracer.Generator, got {type(generator).__name__}: "
            f"{generator!r:.60}"
        )
    return generator


@public
def uniform(
    shape: Shape = (),
    low: float = 0.0,
    high: float = 1.0,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers uniform from low to below high; float32 unless told otherwise.

    Raises `ArgumentError` unless low <= high, and for what is no `Generator`; `DTypeError` for a type
    that is not floating.

    >>> x = tracer.random.uniform((100,), low=-1.0, high=1.0)
    >>> float(x.min()) >= -1.0, float(x.max()) < 1.0
    (True, True)
    """
    low, high = float(low), float(high)
    name = dtype_name("float32" if dtype is None else dtype)
    if not is_floating(name):
        raise DTypeError(f"uniform numbers are floating, got dtype {name}; use randint")
    if not low <= high or not math.isfinite(_rounded(high - low, name)):
        raise ArgumentError(
            f"uniform needs low <= high, a finite distance apart in {name}; got {low} and {high}"
        )
    u = _of(generator)._draw("PhiloxUniform", as_shape(shape), name)
    if high - low != 1.0:
        u = multiply(u, high - low)
    if low == 0.0:
        return u
    # The sum may be rounded up to high.
    last = np.nextafter(_rounded(high, name), _rounded(low, name))
    return minimum(add(u, low), float(last))


def _rounded(x: float, dtype: str) -> Any:
    with np.errstate(over="ignore"):
        return np.asarray(x, numpy_dtype(dtype))[()]


@public
def rand(
    *shape: Any, dtype: Any = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Numbers uniform from 0 to below 1.

    `shape`: sizes one by one, or one sequence. float32 unless `dtype` says otherwise. Raises
    `DTypeError` for a type that is not floating, `ArgumentError` for what is no `Generator`.

    >>> tracer.rand(2, 3).shape
    (2, 3)
    """
    return _flagged(_of(generator)._draw("PhiloxUniform", _sizes(shape), dtype), requires_grad)


@public
def normal(
    shape: Shape = (),
    mean: float = 0.0,
    std: float = 1.0,
    dtype: Any = None,
    generator: Generator | None = None,
) -> Tensor:
    """Numbers with the normal distribution; float32 unless told otherwise.

    Raises `ArgumentError` for a negative std and for what is no `Generator`, `DTypeError` for a type
    that is not floating.

    >>> tracer.random.normal((2, 3), mean=5.0, std=0.1).shape
    (2, 3)
    """
    if not std >= 0:
        raise ArgumentError(f"normal needs a standard deviation of at least 0, got {std}")
    z = _of(generator)._draw("PhiloxNormal", as_shape(shape), dtype)
    if std != 1.0:
        z = multiply(z, float(std))
    return add(z, float(mean)) if mean != 0.0 else z


@public
def randn(
    *shape: Any, dtype: Any = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Numbers with the standard normal distribution.

    `shape`: sizes one by one, or one sequence. float32 unless `dtype` says otherwise. Raises
    `DTypeError` for a type that is not floating, `ArgumentError` for what is no `Generator`.

    >>> tracer.randn((2, 3)).shape
    (2, 3)
    """
    return _flagged(_of(generator)._draw("PhiloxNormal", _sizes(shape), dtype), requires_grad)


@public
def bernoulli(p: Any, shape: Shape | None = None, generator: Generator | None = None) -> Tensor:
    """True with probability p, else False.

    p: a number, or a Tensor of probabilities, whose shape the result has unless one is given.
    Raises `ArgumentError` for probabilities outside 0 to 1 where they are known.

    >>> tracer.random.bernoulli(1.0, (3,))
    tensor([ True,  True,  True])
    """
    if isinstance(p, int | float) and not isinstance(p, np.generic):
        if not 0 <= p <= 1:
            raise ArgumentError(f"a probability must be from 0 to 1, got {p}")
        sizes = as_shape(() if shape is None else shape)
        u = _of(generator)._draw("PhiloxUniform", sizes, "float32")
        return elementwise("Less", u, float(p))
    chance = as_tensor(p)
    if not is_floating(chance.type.dtype):
        chance = cast(chance, "float32")
    known = MODES.interpreter.known_elements(chance)
    if known is not None:
        wrong = known[~((known >= 0) & (known <= 1))]
        if wrong.size:
            raise ArgumentError(f"a probability must be from 0 to 1, got {float(wrong[0])}")
    sizes = chance.type.shape if shape is None else as_shape(shape)
    u = _of(generator)._draw("PhiloxUniform", sizes, chance.type.dtype)
    return elementwise("Less", u, chance)


@public
def randint(
    low: int,
    high: int | None = None,
    shape: Shape = (),
    dtype: Any = "int64",
    generator: Generator | None = None,
) -> Tensor:
    """Integers from low to below high (with one bound: from 0 to below it), int64 by default.

    Each is as likely as any other, to within (high - low) / 2**64. Raises `ArgumentError` unless
    low < high, and `DTypeError` where the element type does not hold them all.

    >>> x = tracer.randint(3, shape=(100,))
    >>> int(x.max()) < 3, x.dtype
    (True, dtype('int64'))
    """
    first, end = (0, _integer(low)) if high is None else (_integer(low), _integer(high))
    name = dtype_name(dtype)
    if end <= first:
        raise ArgumentError(f"randint needs low < high, got {first} and {end}")
    if not is_integer(name):
        raise DTypeError(f"randint gives integers, got dtype {name}; cast the result")
    info = np.iinfo(numpy_dtype(name))
    if first < info.min or end - 1 > info.max:
        raise DTypeError(f"{name} holds {info.min} to {info.max}, not {first} to {end - 1}")
    bits = _of(generator)._bits(as_shape(shape))
    found = bits if end - first == 1 << 64 else _high_half(bits, end - first)
    start = first % (1 << 64)  # uint64 counts modulo 2**64, and so does the cast
    return cast(add(found, start) if start else found, name)


def _integer(x: Any) -> int:
    try:
        return operator.index(x)
    except TypeError:
        raise ArgumentError(f"randint takes integers as bounds, got {x!r:.60}") from None


def _high_half(x: Tensor, n: int) -> Tensor:
    """x * n // 2**64 of uint64, from products of 32-bit halves."""
    upper, lower = _right(x), _low(x)
    a, b = n >> 32, n & _WORD
    low_low, high_low = multiply(lower, b), multiply(upper, b)
    if not a:  # the sum stays below 2**64
        return _right(add(high_low, _right(low_low)))
    low_high, high_high = multiply(lower, a), multiply(upper, a)
    middle = add(add(_low(high_low), _low(low_high)), _right(low_low))
    return add(add(high_high, _right(high_low)), add(_right(low_high), _right(middle)))


def _right(x: Tensor) -> Tensor:
    return bitwise_right_shift(x, 32)


def _low(x: Tensor) -> Tensor:
    return bitwise_and(x, _WORD)


@public
def permutation(n: int, generator: Generator | None = None) -> Tensor:
    """The numbers 0 to n - 1 in random order, int64.

    Raises `TraceError` in a traced function: give it the permutation as an argument. Raises
    `ArgumentError` for an n that is no integer, `ShapeError` for a negative one.

    >>> sorted(tracer.random.permutation(4).tolist())
    [0, 1, 2, 3]
    """
    bits = _of(generator)._bits(as_shape(n))
    return Tensor.of_array(np.argsort(bits.array, kind="stable"))


def _sizes(shape: tuple[Any, ...]) -> Any:
    """Sizes given one by one, or as one sequence."""
    return as_shape(shape[0] if len(shape) == 1 else shape)


def _flagged(x: Tensor, requires_grad: bool) -> Tensor:
    if requires_grad:
        x.requires_grad = True
    return x


__all__ = [
    "Generator",
    "bernoulli",
    "default_generator",
    "get_state",
    "manual_seed",
    "normal",
    "permutation",
    "rand",
    "randint",
    "randn",
    "set_state",
    "uniform",
]
