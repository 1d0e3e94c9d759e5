"""Blocks of memory: aligned, used again, never while anyone looks, bounded; threads and forks."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from codegen.runtime import memory_pool
from codegen.runtime.memory_pool import Block, allocate, trim

MIB = 1 << 20
SIZES = [0, 1, 63, 64, 65, 1000, 4096, 100_000, 128 << 10, MIB + 1, 4 * MIB, 9 * MIB]


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    gc.collect()
    trim()
    yield
    trim()


def pattern(number: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.resize(np.arange(number, number + 251, dtype="u1"), size)


@pytest.mark.parametrize("nbytes", SIZES)
def test_blocks_are_aligned_and_apart(nbytes: int) -> None:
    blocks = [allocate(nbytes) for _ in range(5)]
    assert all(block.nbytes == nbytes for block in blocks)
    assert all(block.pointer % memory_pool.ALIGNMENT == 0 for block in blocks)
    if nbytes >= 4 * MIB:
        assert all(block.pointer % (2 * MIB) == 0 for block in blocks)
    for number, block in enumerate(blocks):
        block.array((nbytes,), "u1")[:] = pattern(number, nbytes)
    for number, block in enumerate(blocks):
        np.testing.assert_array_equal(block.array((nbytes,), "u1"), pattern(number, nbytes))


@pytest.mark.parametrize("nbytes", SIZES)
def test_memory_is_used_again(nbytes: int) -> None:
    first = allocate(nbytes)
    pointer = first.pointer
    made = memory_pool.statistics().system
    assert allocate(nbytes).pointer != pointer
    del first
    assert allocate(nbytes).pointer == pointer
    for _ in range(10):
        allocate(nbytes)
    assert memory_pool.statistics().system == made + 1


def test_sizes_that_share_memory() -> None:
    """Those between two classes, which are at most a quarter apart."""
    classes: dict[int, list[int]] = {}
    for nbytes in range(1, 5121):
        classes.setdefault(allocate(nbytes)._piece.size, []).append(nbytes)
    for size, served in classes.items():
        assert max(served) == size
        assert size <= memory_pool.ALIGNMENT or size - min(served) < size // 4


def test_arrays_keep_their_memory() -> None:
    array = allocate(4000).array((1000,), "f4")
    view = array[::2].reshape(50, 10)
    view[:] = 7
    pointer = array.ctypes.data
    del array
    others = [allocate(4000) for _ in range(3)]
    for other in others:
        assert other.pointer != pointer
        other.array((1000,), "f4")[:] = 0
    assert (view == 7).all()
    del view, others
    assert pointer in {block.pointer for block in [allocate(4000) for _ in range(4)]}


def test_arrays_of_all_kinds() -> None:
    import ml_dtypes

    block = allocate(1000)
    whole = block.array((1000,), "u1")
    whole[:] = pattern(3, 1000)
    for dtype in ("f8", "i2", "?", ml_dtypes.bfloat16, "c16"):
        array = block.array((2, 3), dtype, offset=32)
        assert array.dtype == np.dtype(dtype)
        assert array.tobytes() == whole[32 : 32 + array.nbytes].tobytes()
    turned = block.array((3, 2), "f4", offset=8, strides=(4, 12))
    np.testing.assert_array_equal(turned, block.array((2, 3), "f4", offset=8).T)
    assert block.array((), "f4").shape == ()
    assert block.array((0, 5), "f4").size == 0
    assert turned.flags.writeable
    assert repr(block) == f"Block(1000 bytes at {block.pointer:#x})"
    with pytest.raises(TypeError, match="buffer is too small"):
        block.array((1000,), "f8")


def test_impossible_sizes() -> None:
    with pytest.raises(ValueError, match="at least 0 bytes, got -1"):
        allocate(-1)
    for nbytes in (1 << 60, 1 << 70):
        with pytest.raises(MemoryError, match="MiB of memory left"):
            allocate(nbytes)
    assert allocate(10).nbytes == 10


def test_idle_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_pool, "_limit", 20 * MIB)
    blocks = [allocate(size * MIB) for size in (1, 2, 3, 4, 5, 6, 7, 8) for _ in range(2)]
    assert memory_pool.statistics().idle == 0
    while blocks:
        blocks.pop()
        assert memory_pool.statistics().idle <= 20 * MIB
    assert memory_pool.statistics().idle > 10 * MIB
    pieces = memory_pool._idle
    assert len(pieces[1 * MIB]) == 2, "small pieces should stay longest"
    trim(3 * MIB)
    assert 0 < memory_pool.statistics().idle <= 3 * MIB
    trim()
    assert memory_pool.statistics().idle == 0


def test_small_idle_memory_is_bounded() -> None:
    blocks = [allocate(100_000) for _ in range(400)]
    blocks.clear()
    assert 0 < memory_pool.statistics().idle <= 16 * MIB


def test_given_back_memory_is_really_given_back() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("this system does not say how much memory is in use")
    blocks = [allocate(16 * MIB) for _ in range(4)]
    for block in blocks:
        block.array((16 * MIB,), "u1")[:] = 1
    full = resident()
    blocks.clear()
    del block
    assert resident() > full - 8 * MIB  # idle
    trim()
    assert resident() < full - 48 * MIB


def test_threads_never_share_a_block() -> None:
    errors: list[str] = []

    def work(number: int) -> None:
        rng = random.Random(number)
        held: list[tuple[Block, np.ndarray[tuple[int], np.dtype[np.uint8]]]] = []
        for step in range(3000):
            size = rng.choice((10, 100, 1000, 3000))
            block = allocate(size)
            mark = np.uint8(number * 50 + step % 50)
            block.array((size,), "u1")[:] = mark
            held.append((block, np.full(size, mark)))
            if len(held) > 10:
                old, expected = held.pop(rng.randrange(10))
                if not (old.array((old.nbytes,), "u1") == expected).all():
                    errors.append(f"thread {number}, step {step}")

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_blocks_that_die_in_a_garbage_collection() -> None:
    class Node:
        pass

    made = memory_pool.statistics().system
    for i in range(2000):
        node = Node()
        node.itself, node.block = node, allocate(5000)
        node.block.array((5000,), "u1")[:] = i % 256
        if i % 10 == 0:
            del node
            gc.collect(0)
    assert memory_pool.statistics().system - made < 50


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_writes_into_its_own_copy() -> None:
    blocks = [allocate(size) for size in (100, 200_000, 5 * MIB)]
    arrays = [block.array((block.nbytes,), "u1") for block in blocks]
    for array in arrays:
        array[:] = 1
    child = os.fork()
    if child == 0:
        for array in arrays:
            array[:] = 2
        del arrays, array, blocks
        again = [allocate(size) for size in (100, 200_000, 5 * MIB)]
        for block in again:
            block.array((block.nbytes,), "u1")[:] = 3
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert all((array == 1).all() for array in arrays)
