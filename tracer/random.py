"""Random numbers: counter-based (Philox4x32-10), the generator's state a Tensor.

A draw is a function of the state: the same bits eager and compiled, on any number of threads. Each draw advances the state;
in a traced function the state is an input and an output of the program.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.errors import ArgumentError, TracerError
from ops.types import dtype_name, is_floating
from tracer.dispatch import apply, located
from tracer.functions.creation import as_shape, as_tensor, cast
from tracer.functions.elementwise import add, elementwise, multiply
from tracer.modes import no_grad
from tracer.recording import assign
from tracer.tensor import Tensor

Shape = int | Sequence[int]


class Generator:
    """A stream of random numbers. `state`: uint64[2], key and offset."""

    def __init__(self, seed: int = 0) -> None:
        self.state = Tensor.of_array(np.zeros(2, np.uint64))
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start again from a seed, 0 to 2**64 - 1."""
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 64:
            raise located(ArgumentError(f"a seed is an integer from 0 to 2**64 - 1, got {seed!r}"))
        assign(self.state, Tensor.of_array(np.array([seed, 0], np.uint64)))
        return self

    def seed(self) -> int:
        """Start again from a seed that the system draws; returns it."""
        seed = secrets.randbits(64)
        self.manual_seed(seed)
        return seed

    def get_state(self) -> Tensor:
        """A copy of the state."""
        return Tensor.of_array(self.state.array.copy())

    def set_state(self, state: Any) -> None:
        """Continue from a state that `get_state` gave."""
        array = np.asarray(state)
        if array.shape != (2,) or array.dtype != np.uint64:
            raise located(ArgumentError(f"a generator's state is uint64[2], got {array.dtype}{list(array.shape)}"))
        assign(self.state, Tensor.of_array(array.copy()))

    def draw(self, name: str, shape: Shape, dtype: Any) -> Tensor:
        """Numbers of a random operator; advances the state by one for each."""
        sizes = as_shape(shape)
        wanted = dtype_name(dtype if dtype is not None else "float32")
        try:
            with no_grad():
                state = self.state
                result: Tensor = apply(name, state, shape=sizes, dtype=wanted)
                assign(state, apply("PhiloxAdvance", state, count=dims.product(sizes)))
        except TracerError as error:
            raise located(error) from None
        return result


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Start the default generator again from a seed, 0 to 2**64 - 1; returns it."""
    return default_generator.manual_seed(seed)


def _of(generator: Generator | None) -> Generator:
    return default_generator if generator is None else generator


def uniform(
    shape: Shape = (), low: float = 0.0, high: float = 1.0, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Numbers uniform from low to below high; float32 unless told otherwise."""
    u = _of(generator).draw("PhiloxUniform", shape, dtype)
    if high - low != 1.0:
        u = multiply(u, float(high - low))
    return add(u, float(low)) if low != 0.0 else u


def rand(*shape: int, dtype: Any = None, generator: Generator | None = None) -> Tensor:
    """Numbers uniform from 0 to below 1."""
    return uniform(_sizes(shape), dtype=dtype, generator=generator)


def normal(
    shape: Shape = (), mean: float = 0.0, std: float = 1.0, dtype: Any = None, generator: Generator | None = None
) -> Tensor:
    """Numbers with the normal distribution; float32 unless told otherwise."""
    z = _of(generator).draw("PhiloxNormal", shape, dtype)
    if std != 1.0:
        z = multiply(z, float(std))
    return add(z, float(mean)) if mean != 0.0 else z


def randn(*shape: int, dtype: Any = None, generator: Generator | None = None, requires_grad: bool = False) -> Tensor:
    """Numbers with the standard normal distribution."""
    result = normal(_sizes(shape), dtype=dtype, generator=generator)
    if requires_grad:
        result.requires_grad = True
    return result


def bernoulli(p: Any, shape: Shape | None = None, generator: Generator | None = None) -> Tensor:
    """True with probability p (a number, or a Tensor of probabilities), bool."""
    chance = as_tensor(p) if not isinstance(p, float | int) else p
    sizes = shape if shape is not None else (chance.shape if isinstance(chance, Tensor) else ())
    dtype = chance.type.dtype if isinstance(chance, Tensor) and is_floating(chance.type.dtype) else "float32"
    return elementwise("Less", _of(generator).draw("PhiloxUniform", sizes, dtype), chance)


def randint(
    low: int, high: int | None = None, shape: Shape = (), dtype: Any = "int64", generator: Generator | None = None
) -> Tensor:
    """Integers from low to below high (from 0 to below low with one bound)."""
    if high is None:
        low, high = 0, low
    if high <= low:
        raise located(ArgumentError(f"randint needs low < high, got {low} and {high}"))
    u = _of(generator).draw("PhiloxUniform", shape, "float64")
    scaled = multiply(u, float(high - low))
    return cast(add(cast(scaled, "int64"), int(low)), dtype_name(dtype))


def permutation(n: int, generator: Generator | None = None) -> np.ndarray[Any, Any]:
    """The numbers 0 to n - 1 in random order, an int64 array. For use outside traced functions."""
    u = _of(generator).draw("PhiloxUniform", n, "float64")
    return np.argsort(u.array, kind="stable")


def _sizes(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
