"""What every room of `tracer` may use: settings, the user's lines, lazy names.

Knows Python and `ops`' errors. Must not know Tensors, graphs or operators.
"""
