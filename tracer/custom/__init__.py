"""Operators of the user's own: `tracer.op`, and their forms in ONNX.

Knows functions and operators' records. Must not know traces.
"""
