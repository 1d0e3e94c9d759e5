"""Gradients: the history that operations leave, and the engine that walks it back."""
