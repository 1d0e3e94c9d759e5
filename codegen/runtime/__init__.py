"""Running compiled kernels: a pool of parked workers and programs that walk tables of rows without Python.

Knows addresses and 64-bit words only: neither specifications, arrays nor graphs.
"""
