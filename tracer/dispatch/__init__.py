"""Applying an operator to Tensors, and what a change does to the views of what is changed.

The one gate that every operation takes. Must not know how gradients are found or how a trace is made: both are called through
what they have registered.
"""
