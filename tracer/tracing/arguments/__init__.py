"""The arguments of a call: bound to parameters, flattened, described as a signature.

Knows Python's calling conventions and trees. Must not know how a function is recorded or run.
"""
