"""Kernels for CUDA: their text, and PTX of it.

Knows specifications. Must not know the CPU's printer's toolchain or programs.
"""
