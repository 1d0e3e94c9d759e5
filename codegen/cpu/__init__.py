"""Kernels for the CPU: their text, compiled and as plain Python.

Knows specifications and the toolchain. Must not know programs and threads.
"""
