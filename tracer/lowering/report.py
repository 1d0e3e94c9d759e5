"""What a program consists of, as data for users and tests: kernels, calls, bytes, and why edges were cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracer.lowering.assemble import Lowering
    from tracer.lowering.layout import Buffer


@dataclass(frozen=True, slots=True)
class Part:
    """One row of the program. `kind`: "kernel" (generated), "library" (matrix products), "host" (a declared Python call)."""

    kind: str
    name: str
    operators: tuple[str, ...]
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class CutEdge:
    """A value that goes through memory, and why it does."""

    value: str
    producer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The fusion plan of one compiled graph. `workspace`: bytes of temporaries; `nodes`: operators after simplification;
    `residuals`: bytes that are kept with the results for a `backward()` after the call."""

    parts: tuple[Part, ...]
    cuts: tuple[CutEdge, ...]
    workspace: int
    nodes: tuple[str, ...]
    residuals: int = 0

    @property
    def kernels(self) -> int:
        """The number of generated kernels that run."""
        return sum(p.kind == "kernel" for p in self.parts)

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written by all parts."""
        return sum(p.bytes_read + p.bytes_written for p in self.parts)

    def __str__(self) -> str:
        lines = [
            f"{len(self.parts)} parts: {self.kernels} kernels, "
            f"{sum(p.kind == 'library' for p in self.parts)} library calls, "
            f"{sum(p.kind == 'host' for p in self.parts)} host calls; "
            f"{self.bytes_moved:,} bytes moved, {self.workspace:,} bytes of workspace"
            + (f", {self.residuals:,} bytes kept for backward" if self.residuals else "")
        ]
        for p in self.parts:
            lines.append(
                f"  {p.kind:8} {p.name}: reads {p.bytes_read:,}, writes {p.bytes_written:,} bytes"
            )
        for c in self.cuts:
            lines.append(f"  cut after {c.producer}: {c.reason}")
        return "\n".join(lines)


def _is_number(buffer: Buffer) -> bool:
    """Whether it holds one number of the program itself."""
    return buffer.kind == "constant" and buffer.type.shape == ()


def report(lowering: Lowering) -> Plan:
    """The plan of a lowered graph."""
    parts = []
    for planned in lowering.planned:
        parts.append(
            Part(
                planned.kind,
                planned.name,
                tuple(n.op.name for n in planned.nodes if n is not None) or (planned.name,),
                sum(
                    b.nbytes
                    for b in {id(b): b for b in planned.reads}.values()
                    if not _is_number(b)
                ),
                sum(b.nbytes for b in {id(b): b for b in planned.writes}.values()),
            )
        )
    cuts = tuple(
        CutEdge(str(c.value.type), lowering.places.producer[c.value].op.name, c.reason)
        for c in lowering.fusion.cuts
        if c.value in lowering.places.producer
    )
    return Plan(
        tuple(parts), cuts, lowering.workspace, tuple(n.op.name for n in lowering.graph.nodes)
    )
