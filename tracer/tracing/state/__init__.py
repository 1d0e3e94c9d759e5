"""Python state that a function reads, writes and calls: found in its code, watched, put back.

Knows Python's objects and bytecode. Must not know graphs or programs.
"""
