from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that mypy, which reads files of a circle in some order, reads the methods after what they are made of
    from tracer.functions.methods import Methods as AttachedMethods

__all__ = ["AttachedMethods"]
