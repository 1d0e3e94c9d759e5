"""The whole table: importing this module declares every operator."""

from __future__ import annotations

from ops import activation as activation
from ops import arithmetic as arithmetic
from ops import bitwise as bitwise
from ops import chain_rule as chain_rule
from ops import contraction as contraction
from ops import control as control
from ops import creation as creation
from ops import division as division
from ops import extremes as extremes
from ops import index_copies as index_copies
from ops import indexing as indexing
from ops import logic as logic
from ops import movement as movement
from ops import normalization as normalization
from ops import powers as powers
from ops import random as random
from ops import reduce_extremes as reduce_extremes
from ops import reductions as reductions
from ops import repetition as repetition
from ops import replacement as replacement
from ops import rounding as rounding
from ops import scans as scans
from ops import selection as selection
from ops import slicing as slicing
from ops import softmax as softmax
from ops import statistics as statistics
from ops import transcendental as transcendental
from ops import triangular as triangular
from ops import trigonometric as trigonometric
from ops.operator import TABLE as TABLE
