"""Layers, one family in each file."""
