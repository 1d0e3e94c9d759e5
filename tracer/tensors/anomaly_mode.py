"""What anomaly mode is asked for where operators compute and programs run. The mode itself is `tracer.autograd.anomaly`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tracer.tensors.tensor import Tensor


class AnomalyMode(Protocol):
    """Looks for the first value that is not finite."""

    def look_at(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Raise `AnomalyError` if an eager operator gave the first value that is not finite."""

    def look_at_gradients(self, node: Any, gradients: Sequence[Tensor | None]) -> None:
        """The same for the results of a gradient rule, whose own operators have been looked at."""

    def within(self, node: Any = None) -> AbstractContextManager[None]:
        """What is computed inside is part of a rule: a node's gradient, or an operator made of others."""

    def of_graph(self, graph: Any, forward: Any = None) -> Callable[[Sequence[Any]], None]:
        """What looks at every value of a graph for given inputs. `forward`: what a graph of gradients belongs to."""
