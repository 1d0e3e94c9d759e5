"""A graph as something that runs: the compiled program, its operands, how much memory it holds.

Knows lowering and passes. Must not know Tensors' history, traces or functions of the user's.
"""
