"""The errors of code generation. Who meets one has handed it a faulty or an unprintable kernel."""

from __future__ import annotations


class SpecError(ValueError):
    """A kernel specification that means nothing: an unknown name, a wrong number of indices ...

    The message names the kernel and the statement.
    """


class Unsupported(NotImplementedError):  # noqa: N818  it says "no", not that something went wrong
    """A specification or schedule that a target cannot run. The message says which part."""
