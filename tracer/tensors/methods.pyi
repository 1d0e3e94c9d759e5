# What Tensor has when `tracer` is imported, for type checkers: see methods.py.
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.autograd.gradient_node import GradientNode
    from tracer.autograd.tensor_methods import GradientMethods
    from tracer.functions.methods.attach import Methods as FunctionMethods

class Methods(GradientMethods, FunctionMethods):
    @property
    def grad_fn(self) -> GradientNode | None: ...
    @grad_fn.setter
    def grad_fn(self, node: GradientNode | None) -> None: ...
    __slots__ = ()

def attributes_of(families: Sequence[type]) -> dict[str, object]: ...
def attach_to(tensor: type, families: Sequence[type]) -> None: ...
