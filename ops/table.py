"""The whole table: importing this module declares every operator."""

from __future__ import annotations

from ops import arithmetic as arithmetic
from ops import contraction as contraction
from ops import control as control
from ops import creation as creation
from ops import logic as logic
from ops import movement as movement
from ops import reductions as reductions
from ops import transcendental as transcendental
from ops.operator import TABLE as TABLE
