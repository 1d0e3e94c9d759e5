"""NumPy's functions and other libraries' names applied to Tensors.

Knows the functions of `tracer`. Must not know traces or gradients.
"""
