"""Names of a model's values: unique, and the same in every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracer.onnx.values import Initializer, OnnxNode


class Names:
    """The names in use. Names that the user gave are reserved first; others give way to them."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for those that will take them."""
        self.used.update(names)

    def unique(self, name: str) -> str:
        """The name, with underscores after it if it is taken; it is taken from now on."""
        while name in self.used:
            name += "_"
        self.used.add(name)
        return name

    def numbered(self, name: str) -> str:
        """The name with the first number that is free."""
        count = 0
        while f"{name}{count}" in self.used:
            count += 1
        return self.unique(f"{name}{count}")

    def rest(self, nodes: Sequence[OnnxNode], first: str) -> None:
        """Name what the nodes of one rule hold between them: 7.0, 7.1 ... for the value 7."""
        count = 0
        for node in nodes:
            for value in node.outputs:
                if not value.name:
                    value.name = self.unique(f"{first}.{count}")
                    count += 1

    def head(self, nodes: Sequence[OnnxNode], constants: Iterable[Initializer]) -> None:
        """Name sizes and constants, which belong to no value."""
        for count, value in enumerate(v for node in nodes for v in node.outputs):
            value.name = value.name or self.unique(f"size_{count}")
        for count, constant in enumerate(constants):
            constant.value.name = constant.value.name or self.unique(f"constant_{count}")
