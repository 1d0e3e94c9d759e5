"""Kernel specifications turned into compiled kernels: Numba source for CPU and CUDA, cache, runtime driver.

Knows `ops` (types, element formulas). Must not know the graph, Tensors or anything that a user imports.
"""
