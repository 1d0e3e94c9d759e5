"""From a compiled function to machine code in this process: Numba, object files, the cache on disk.

The one way by which anything compiled enters the process. Must not know specifications.
"""
