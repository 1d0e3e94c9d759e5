"""A program: rows of kernels with their argument blocks, walked by machine code, and host calls
between them.

What changes from call to call (pointers of inputs, outputs and temporaries, numbers) are the
program's slots, one 64-bit word each. An argument block's words are numbers, slots plus an offset
in bytes, or addresses of slots; machine code fills them in, so a call costs Python one function
call:

    program = Program([Row(kernel.address, n, chunk, (Slot(0), Slot(1, 64), n))], slots=2)
    status = program.call(x.pointer, y.pointer)

An int is passed as its 64 bits (negative ones in two's complement), a float as those of a float64;
`AddressOf(slot)` gives a kernel a pointer to such a number, so a scalar needs no memory of its own.
`AddressOf(STATUS)` is where a kernel reports an error: any word but 0 ends the program after the
row that stored it and is what `call` returns. `AddressOfNumber(n)` gives it a pointer to a number
that the program knows, which is what functions of Fortran's want.

A call works on an instance of the blocks that no other call uses. Free ones are a list guarded by
the GIL; with all in use, as when two threads call one program, another is made and kept. Nothing is
checked on a call but the number of words: they must be right.
"""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from codegen.runtime import layout as at
from codegen.runtime.pool import Pool, default_pool

STATUS = -1  # the slot where kernels report errors
_MOST_CHUNKS = 0x7FFFFFFF
_METH_FASTCALL = 0x80


@dataclass(frozen=True, slots=True)
class Slot:
    """The word of a slot, plus an offset (in bytes, when it is a pointer)."""

    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class AddressOf:
    """The address of a slot's word, or of the status word: `AddressOf(STATUS)`."""

    slot: int


@dataclass(frozen=True, slots=True)
class AddressOfNumber:
    """The address of a word that holds a number, for functions that take numbers by address. They
    must not change it.
    """

    number: int


Argument = int | Slot | AddressOf | AddressOfNumber


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel on [0, n) in chunks: one of n <= chunk runs on the caller, a larger one on all
    threads.

    A kernel sees whole chunks: its ranges are [0, chunk), [chunk, 2 chunk) ..., the last one
    shorter.
    """

    kernel: int
    n: int
    chunk: int
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class HostCall:
    """A Python function between rows. It gets the call's words; what it raises ends the program."""

    function: Callable[..., object]
    name: str


class Program:
    """Rows and host calls in order, as `call(*words) -> status` with one word for each slot.

    `call` is machine code where all rows are kernels. It is safe from several threads at once and
    lets other Python threads run. `host_calls` counts the times that a call comes back to Python.
    """

    __slots__ = ("call", "host_calls", "rows", "slots")

    def __init__(
        self, rows: Sequence[Row | HostCall], slots: int, pool: Pool | None = None
    ) -> None:
        self.rows = tuple(rows)
        self.slots = slots
        pool = pool or default_pool()
        segments: list[Callable[..., Any]] = []
        for host, group in groupby(self.rows, lambda row: isinstance(row, HostCall)):
            if host:
                segments += [_host(call) for call in group if isinstance(call, HostCall)]
            else:
                segments.append(_segment([r for r in group if isinstance(r, Row)], slots, pool))
        self.host_calls = sum(isinstance(row, HostCall) for row in self.rows)
        if not self.rows:
            segments.append(_segment([], slots, pool))
        self.call: Callable[..., int] = segments[0] if len(segments) == 1 else _chain(segments)

    def __call__(self, *words: int | float) -> int:
        """The same as `call`, which is faster."""
        return self.call(*words)

    def __repr__(self) -> str:
        return f"Program({len(self.rows)} rows, {self.slots} slots, {self.host_calls} host calls)"


def _host(call: HostCall) -> Callable[..., int]:
    function = call.function

    def run(*words: int | float) -> int:
        function(*words)
        return 0

    return run


def _chain(segments: list[Callable[..., int]]) -> Callable[..., int]:
    """One after the other, up to one that reports an error."""

    def call(*words: int | float) -> int:
        for segment in segments:
            if status := segment(*words):
                return status
        return 0

    return call


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_new_function = ctypes.pythonapi.PyCFunction_NewEx
_new_function.restype = ctypes.py_object
_new_function.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
_methods: dict[int, _Method] = {}  # by the address of `enter`; callables point to them


def _segment(rows: Sequence[Row], slots: int, pool: Pool) -> Callable[..., int]:
    """A machine-code callable for rows; it owns all memory that it refers to."""
    _check_interpreter()
    rows = [row for row in rows if row.n]
    for row in rows:
        _check(row, slots)
    template, places, relocations, addresses = instance_blocks(rows, slots)
    relocations.sort()
    ends = [
        bisect_right(relocations, i, key=lambda relocation: relocation[0]) for i in range(slots)
    ]

    grow, instances = _grower(template, addresses)
    first = grow()

    def refuse(count: int) -> None:
        raise TypeError(f"this program takes {slots} words, one for each slot, got {count}")

    table = _words([x for row, place in zip(rows, places, strict=True) for x in _row(row, place)])
    pairs = _words([x for _, word, offset in relocations for x in (word, offset)])
    start = ctypes.addressof(pairs)
    directory = _words([start + at.RELOCATION * end for end in ends])
    head = {
        at.STATE: pool.state,
        at.ROWS: ctypes.addressof(table),
        at.ROW_COUNT: len(rows),
        at.LARGE: any(row.n > row.chunk for row in rows),
        at.FREE: first,
        at.SLOT_COUNT: slots,
        at.DIRECTORY: ctypes.addressof(directory),
        at.RELOCATIONS: start,
        at.GROW: id(grow),
        at.REFUSE: id(refuse),
        at.FLOAT_TYPE: id(float),
    }
    program = _words([head[8 * i] for i in range(at.PROGRAM_SIZE // 8)])
    method = _methods.get(pool.enter)
    if method is None:
        method = _methods[pool.enter] = _Method(b"program", pool.enter, _METH_FASTCALL, None)
    # Handed over as the function's module, which it holds a reference to; no cycle leads back to
    # it.
    owned = (pool, program, table, pairs, directory, grow, refuse, instances)
    call: Callable[..., int] = _new_function(
        ctypes.addressof(method), ctypes.addressof(program), owned
    )
    return call


class HasArguments(Protocol):
    """A row, of whatever runs it."""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The words of its block."""
        ...


def instance_blocks(
    rows: Sequence[HasArguments], slots: int
) -> tuple[list[int], list[int], list[tuple[int, int, int]], list[tuple[int, int]]]:
    """An instance's words with every slot 0; where each row's block lies; (slot, place, offset) of
    the words that follow slots; (place, place of the word) of those that are addresses of others.
    """
    words = [0] * (at.FIRST_SLOT // 8 + slots)
    places: list[int] = []
    relocations: list[tuple[int, int, int]] = []
    addresses: list[tuple[int, int]] = []
    known: dict[tuple[Argument, ...], int] = {}
    numbers = {a.number: 0 for r in rows for a in r.arguments if isinstance(a, AddressOfNumber)}
    for number in numbers:
        numbers[number] = 8 * len(words)
        words.append(number)
    for row in rows:
        if row.arguments not in known:
            known[row.arguments] = 8 * len(words)
            for argument in row.arguments:
                place = 8 * len(words)
                match argument:
                    case Slot(index, offset):
                        relocations.append((index, place, offset))
                        words.append(offset)
                    case AddressOf(slot):
                        home = at.STATUS if slot == STATUS else at.FIRST_SLOT + 8 * slot
                        addresses.append((place, home))
                        words.append(0)
                    case AddressOfNumber(number):
                        addresses.append((place, numbers[number]))
                        words.append(0)
                    case _:
                        words.append(int(argument))
        places.append(known[row.arguments])
    return words, places, relocations, addresses


def _grower(
    template: list[int], addresses: list[tuple[int, int]]
) -> tuple[Callable[[], int], list[Any]]:
    """A function that makes one more instance and returns its address, and the list that keeps
    them.
    """
    instances: list[Any] = []
    kind = ctypes.c_uint64 * len(template)
    values = [word & 0xFFFFFFFFFFFFFFFF for word in template]

    def grow() -> int:
        instance = kind(*values)
        base = ctypes.addressof(instance)
        for place, home in addresses:
            instance[place // 8] = base + home
        instances.append(instance)
        return base

    return grow, instances


def _row(row: Row, place: int) -> tuple[int, int, int, int]:
    return row.kernel, row.n, row.chunk, place


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * max(len(values), 1))(
        *(value & 0xFFFFFFFFFFFFFFFF for value in values)
    )


def _check(row: Row, slots: int) -> None:
    """Refuse a row that would make the driver run wild."""
    if row.kernel <= 0:
        raise ValueError(f"a row needs a kernel's address, got {row.kernel}")
    if row.n < 0 or row.chunk <= 0 or row.n > row.chunk * _MOST_CHUNKS:
        raise ValueError(
            f"a row runs on n >= 0 in chunks of at least 1, at most {_MOST_CHUNKS} of them; "
            f"got n={row.n}, chunk={row.chunk}"
        )
    for argument in row.arguments:
        match argument:
            case Slot(index) if not 0 <= index < slots:
                raise ValueError(f"{argument} in a program of {slots} slots")
            case AddressOf(slot) if slot != STATUS and not 0 <= slot < slots:
                raise ValueError(f"{argument} in a program of {slots} slots")
            case int(number) | AddressOfNumber(number) if not -(1 << 63) <= number < 1 << 64:
                raise ValueError(f"the argument {number} does not fit into 64 bits")


_checked = False


def _check_interpreter() -> None:
    """The machine code reads floats by CPython's layout and relies on the GIL."""
    global _checked
    if _checked:
        return
    number = 1.7
    fields = ctypes.c_uint64.from_address(id(number) + at.OBJECT_TYPE).value
    value = ctypes.c_double.from_address(id(number) + at.FLOAT_VALUE).value
    if fields != id(float) or struct.pack("d", value) != struct.pack("d", number):
        raise RuntimeError(
            "compiled programs need CPython with the GIL: this interpreter lays out its objects "
            "differently (a free-threaded or debugging build?)"
        )
    _checked = True
