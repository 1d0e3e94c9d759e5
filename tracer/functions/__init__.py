"""The functions of `tracer`, under the array API's names.

Promotion and Python numbers, then one operator each.

Each module here is one family and lists its public names in `__all__`; `tracer` exports them all.
Methods and Python operators of Tensor are attached in `methods`. Must not know
whether what it applies runs or is recorded.
"""
