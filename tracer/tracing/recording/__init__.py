"""A function run once on symbolic Tensors: the recorder, what it stands in for, what it leaves.

Knows graphs, state and gradients. Must not know how programs are kept and chosen.
"""
