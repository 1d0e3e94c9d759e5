"""Kernel specifications: what is computed, how it may be scheduled, what arguments it takes.

Must not know any target.
"""
