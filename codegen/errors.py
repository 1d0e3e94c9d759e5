"""The errors of code generation. Who meets one has handed it a faulty or an unprintable kernel, or
a function that it cannot compile.
"""

from __future__ import annotations


class SpecError(ValueError):
    """A kernel specification that means nothing: an unknown name, a wrong number of indices ...

    The message names the kernel and the statement.
    """


class Unsupported(NotImplementedError):  # noqa: N818  it says "no", not that something went wrong
    """A specification or schedule that a target cannot run. The message says which part."""


class FunctionError(ValueError):
    """A function of the user's that no kernel can call. The message is for the user, and names the function."""
