"""How much memory compiled programs use, under PyTorch's names: results, what they keep for gradients, and workspaces.

What eager operations and the user's own arrays hold is NumPy's and not counted.
"""

from __future__ import annotations

from codegen.runtime import memory_pool


def memory_allocated() -> int:
    """Bytes in use by results of compiled programs that are alive, and by what their gradients need.

    >>> tracer.memory_allocated() <= tracer.memory_reserved()
    True
    """
    now = memory_pool.statistics()
    return now.held - now.idle


def memory_reserved() -> int:
    """Bytes in use, and those that wait to be used again.

    >>> tracer.memory_reserved() >= 0
    True
    """
    return memory_pool.statistics().held


def max_memory_reserved() -> int:
    """The most bytes that were reserved at once since `reset_peak_memory_stats`.

    >>> tracer.max_memory_reserved() >= tracer.memory_reserved()
    True
    """
    return memory_pool.statistics().peak


def reset_peak_memory_stats() -> None:
    """Give idle memory back to the system and count the peak from here, so that it is what is needed from here on.

    >>> tracer.reset_peak_memory_stats()
    """
    memory_pool.reset_peak()


def empty_cache() -> None:
    """Give idle memory back to the system.

    >>> tracer.empty_cache()
    """
    memory_pool.trim()
