"""The compiled programs of a traced function: guards, paths, stages, and the quick way in.

Knows what a trace left (`recording`) and runs it. Must not know who asked for it.
"""
