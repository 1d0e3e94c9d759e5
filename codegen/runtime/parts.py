"""The runtime's own functions, compiled once for the cache: `enter`, `worker`, `retire`, `idle`.

They are word functions (see `word_compiler`): Python's syntax, never run by Python. `enter` is what
Python calls (METH_FASTCALL). It puts the call's words into the slots of an instance, releases the
GIL and walks the rows. A row of more than one chunk is published at a seat; caller and workers take
chunks from a counter. Chunk bounds depend on n and chunk alone, so the bits are the same on any
number of threads. A caller never waits for a chunk that nobody took: with workers missing (after a
fork, at exit, while resizing) programs are slower, never wrong and never stuck. Each caller has a
seat of its own, so callers share the workers; when as many share as there are workers, others run
alone.
"""

from __future__ import annotations

import platform

from codegen.runtime import layout as at
from codegen.runtime.int64_compiler import Primitive, constant, external
from codegen.runtime.operations import add, get, load, mask, pause, put, run, store, swap

_X86 = platform.machine() == "x86_64"
_FUTEX, _SET_AFFINITY, _GET_AFFINITY = (202, 203, 204) if _X86 else (98, 122, 123)
_WAIT, _WAKE = 128, 129  # futex operations within a process
_LOW = 0xFFFFFFFF
if at.WORKERS_POSSIBLE:
    _syscall, _core = external("syscall", 5), external("sched_getcpu", 0)
else:  # never reached, for nobody works
    _syscall = Primitive(lambda builder, *words: constant(-1))
    _core = Primitive(lambda builder: constant(-1))
_call, _call_with = external("PyObject_CallNoArgs", 1), external("PyObject_CallOneArg", 2)
_drop, _failed = external("Py_DecRef", 1), external("PyErr_Occurred", 0)
_integer, _pointer = external("PyLong_FromLongLong", 1), external("PyLong_AsVoidPtr", 1)
_release_gil, _take_gil = external("PyEval_SaveThread", 0), external("PyEval_RestoreThread", 1)


def _sleep(address: int, seen: int) -> None:
    _syscall(_FUTEX, address, _WAIT, seen, 0)


def _wake(address: int, count: int) -> None:
    _syscall(_FUTEX, address, _WAKE, count, 0)


def _spin_while(state: int, address: int, value: int) -> int:
    """Watch a word for SPIN pauses; 1 if it still has that value."""
    count = 0
    while load(address) == value:
        if count >= load(state + at.SPIN):
            return 1
        count = pause(count)
    return 0


def _take(seat: int) -> int:
    """Run chunks of the seat's row until none is left to take; returns how many.

    A ticket counts down, so a thread that comes late with an old ticket finds either 0 or another
    generation: it cannot take a chunk of a row that it has not read. While it holds a chunk the row
    cannot change.
    """
    taken = 0
    ticket = load(seat + at.TICKET)
    while ticket & _LOW:
        job = seat + at.JOB
        kernel, n, chunk = load(job + at.KERNEL), load(job + at.N), load(job + at.CHUNK)
        arguments = load(job + at.ARGUMENTS)
        if swap(seat + at.TICKET, ticket, ticket - 1):
            lo = ((ticket & _LOW) - 1) * chunk
            run(kernel, lo, min(lo + chunk, n), arguments)
            taken += 1
        ticket = load(seat + at.TICKET)
    return taken


def _leave_core(home: int) -> None:
    """Move to another core.

    When other programs keep the cores busy, Linux may leave a worker on the core of its caller,
    where it only takes time from it.
    """
    bits = mask()
    part, bit = bits + (home >> 6 << 3), 1 << (home & 63)
    if home < 1024 and _syscall(_GET_AFFINITY, 0, 128, bits, 0) > 0 and get(part) & bit:
        put(part, get(part) ^ bit)
        _syscall(_SET_AFFINITY, 0, 128, bits, 0)  # fails when there is no other
        put(part, get(part) | bit)
        _syscall(_SET_AFFINITY, 0, 128, bits, 0)


def _share(state: int, seat: int, kernel: int, n: int, chunk: int, arguments: int) -> None:
    """Publish a row, take part in it, and wait for the chunks that workers took."""
    count = (n - 1) // chunk + 1
    store(seat + at.JOB + at.KERNEL, kernel)
    store(seat + at.JOB + at.N, n)
    store(seat + at.JOB + at.CHUNK, chunk)
    store(seat + at.JOB + at.ARGUMENTS, arguments)
    store(seat + at.CORE, _core() & _LOW)
    store(seat + at.PENDING, count)
    store(seat + at.TICKET, (((load(seat + at.TICKET) >> 32) + 1) << 32) | count)
    add(state + at.EPOCH, 1)
    if load(state + at.SLEEPERS) > 0:
        _wake(state + at.EPOCH, count - 1)
    taken = _take(seat)
    left = add(seat + at.PENDING, -taken) - taken
    while left != 0:
        if _spin_while(state, seat + at.PENDING, left):
            store(seat + at.WAITING, 1)
            _sleep(seat + at.PENDING, left)
            store(seat + at.WAITING, 0)
        left = load(seat + at.PENDING)


def _claim(state: int) -> int:
    """A free seat, or -1: with as many sharing callers as workers, one more is better off alone."""
    for i in range(at.SEATS):
        seat = state + at.FIRST_SEAT + i * at.SEAT
        free = i < load(state + at.WORKERS) and load(seat + at.BUSY) == 0
        if free and swap(seat + at.BUSY, 0, 1):
            return seat
    return -1


def _alone(kernel: int, n: int, chunk: int, arguments: int) -> None:
    """The chunks of a row, the same as with workers, so the same bits."""
    lo = 0
    while lo < n:
        run(kernel, lo, min(lo + chunk, n), arguments)
        lo += chunk


def _drive(state: int, rows: int, count: int, instance: int) -> None:
    """Run the rows in order, up to one that reports an error: one chunk on the caller, more with
    whoever is free."""
    seat = 0
    row = rows
    end = rows + count * at.ROW
    while row < end and load(instance + at.STATUS) == 0:
        kernel, n, chunk = get(row + at.KERNEL), get(row + at.N), get(row + at.CHUNK)
        arguments = instance + get(row + at.ARGUMENTS)
        if n <= chunk:
            run(kernel, 0, n, arguments)
        else:
            if seat == 0:
                seat = _claim(state)
            if seat > 0:
                _share(state, seat, kernel, n, chunk, arguments)
            else:
                _alone(kernel, n, chunk, arguments)
        row += at.ROW
    if seat > 0:
        store(seat + at.BUSY, 0)


def _resolve(program: int, instance: int, args: int) -> int:
    """Put the call's words into the slots and, where one differs from the instance's last call,
    into the argument blocks; 0 if one is neither an int nor a float."""
    relocation = get(program + at.RELOCATIONS)
    for i in range(get(program + at.SLOT_COUNT)):
        item = get(args + 8 * i)
        value = 0
        if get(item + at.OBJECT_TYPE) == get(program + at.FLOAT_TYPE):
            value = get(item + at.FLOAT_VALUE)
        else:
            value = _pointer(item)
            if value == 0 and _failed():
                return 0
        slot = instance + at.FIRST_SLOT + 8 * i
        end = get(get(program + at.DIRECTORY) + 8 * i)
        if get(slot) != value:
            put(slot, value)
            while relocation < end:
                put(instance + get(relocation + at.WORD), value + get(relocation + at.OFFSET))
                relocation += at.RELOCATION
        relocation = end
    return 1


def _instance(program: int) -> int:
    """An instance that no other call uses, or 0 with an exception set. The GIL guards the list."""
    instance = get(program + at.FREE)
    if instance:
        put(program + at.FREE, get(instance + at.NEXT))
        return instance
    number = _call(get(program + at.GROW))
    if number == 0:
        return 0
    instance = _pointer(number)
    _drop(number)
    return instance


def enter(handle: int, args: int, nargs: int) -> int:
    """What Python calls: `handle` is an int, the program's address. Returns the status.

    Starts the workers on first need, such as the first large row after a fork.
    """
    program = _pointer(handle)
    if nargs != get(program + at.SLOT_COUNT):
        number = _integer(nargs)
        _call_with(get(program + at.REFUSE), number)  # it raises
        _drop(number)
        return 0
    state = get(program + at.STATE)
    if get(program + at.LARGE) and load(state + at.WORKERS) == 0 and load(state + at.WANTED) > 0:
        none = _call(load(state + at.START))
        if none == 0:
            return 0
        _drop(none)
    instance = _instance(program)
    if instance == 0:
        return 0
    result = 0
    if _resolve(program, instance, args):
        put(instance + at.STATUS, 0)
        thread = _release_gil()
        _drive(state, get(program + at.ROWS), get(program + at.ROW_COUNT), instance)
        _take_gil(thread)
        result = _integer(load(instance + at.STATUS))
    put(instance + at.NEXT, get(program + at.FREE))
    put(program + at.FREE, instance)
    return result


def worker(state: int, life: int) -> int:
    """Help at every seat, then watch EPOCH for a while, then sleep on it; until LIFE changes."""
    # Read EPOCH before LIFE and the seats: who changes those changes EPOCH afterwards.
    seen = load(state + at.EPOCH)
    while load(state + at.LIFE) == life:
        busy = 0
        for i in range(at.SEATS):
            seat = state + at.FIRST_SEAT + i * at.SEAT
            if load(seat + at.TICKET) & _LOW and load(seat + at.CORE) == _core() & _LOW:
                _leave_core(load(seat + at.CORE))
            taken = _take(seat)
            if taken:
                busy = 1
                if add(seat + at.PENDING, -taken) == taken and load(seat + at.WAITING):
                    _wake(seat + at.PENDING, 1)
        if not busy and _spin_while(state, state + at.EPOCH, seen):
            # Before the kernel compares EPOCH; a caller adds to EPOCH, then looks at SLEEPERS.
            add(state + at.SLEEPERS, 1)
            _sleep(state + at.EPOCH, seen)
            add(state + at.SLEEPERS, -1)
        seen = load(state + at.EPOCH)
    return 0


def retire(state: int) -> int:
    """Tell all workers to leave."""
    add(state + at.LIFE, 1)
    add(state + at.EPOCH, 1)
    _wake(state + at.EPOCH, 1 << 30)
    return 0


def idle(count: int) -> int:
    """Pause `count` times, to learn how long that takes."""
    i = 0
    while i < count:
        i = pause(i)
    return i
