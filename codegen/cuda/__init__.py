"""Kernels for CUDA: their text, and PTX of it.

Knows specifications. Must not know programs, or where they run.
"""
