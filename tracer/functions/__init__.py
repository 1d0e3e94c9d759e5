"""The functions of `tracer`, under the array API's names: promotion and Python numbers, then one operator each.

Each module here is one family. Methods and Python operators of Tensor are attached in `methods`.
"""
