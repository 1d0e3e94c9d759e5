"""Functions of numbers that the user wrote, called from kernels.

Knows their contents and Numba. Must not know programs.
"""
