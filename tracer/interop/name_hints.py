"""What NumPy and PyTorch call things that `tracer` has under another name, for the message of an `AttributeError`.

Knows names only. A test checks that what it points to is there.
"""

from __future__ import annotations

NAMES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "array": "tensor",
    "as_tensor": "asarray",
    "bitwise_not": "bitwise_invert",
    "bmm": "matmul",
    "cat": "concat",
    "chunk": "split",
    "clamp": "clip",
    "compile": "trace",
    "concatenate": "concat",
    "cumsum": "cumulative_sum",
    "div": "divide",
    "double": "float64",
    "eq": "equal",
    "float": "float32",
    "from_numpy": "asarray",
    "ge": "greater_equal",
    "gt": "greater",
    "half": "float16",
    "index_select": "take",
    "int": "int32",
    "invert": "bitwise_invert",
    "jit": "trace",
    "le": "less_equal",
    "load": "load_file",
    "long": "int64",
    "lt": "less",
    "masked_fill": "where",
    "mm": "matmul",
    "mod": "remainder",
    "movedim": "moveaxis",
    "mul": "multiply",
    "mv": "matmul",
    "ndarray": "Tensor",
    "ne": "not_equal",
    "neg": "negative",
    "norm": "vector_norm",
    "permute": "permute_dims",
    "power": "pow",
    "ravel": "flatten",
    "repeat_interleave": "repeat",
    "save": "save_file",
    "sub": "subtract",
    "take_along_dim": "take_along_axis",
    "transpose": "permute_dims",
    "true_divide": "divide",
    "unbind": "unstack",
    "unsqueeze": "expand_dims",
}


def hint(name: str) -> str:
    """What to write instead of a name that `tracer` does not have; "" if nothing is known."""
    return f"; here it is tracer.{NAMES[name]}" if name in NAMES else ""
