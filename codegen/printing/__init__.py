"""Kernel text as far as it is the same for all targets: loops, tasks, folds.

Knows analysed specifications. Must not know any target, nor texts of values.
"""
