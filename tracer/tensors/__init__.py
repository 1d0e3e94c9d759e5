"""The Tensor: an array or a value of a trace, its flags, what it is a view of, and who computes with it.

Knows element types and memory. Must not know how operators are applied, recorded or differentiated: functions and gradient
methods are attached from above.
"""
