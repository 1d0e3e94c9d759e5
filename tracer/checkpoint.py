"""Files of Tensors and checkpoints under the name by which users import them; they live in `tracer.serialization`."""

from __future__ import annotations

from tracer.serialization.checkpoint import load_checkpoint as load_checkpoint
from tracer.serialization.checkpoint import load_file as load_file
from tracer.serialization.checkpoint import save_checkpoint as save_checkpoint
from tracer.serialization.checkpoint import save_file as save_file

__all__ = ["load_checkpoint", "load_file", "save_checkpoint", "save_file"]
