"""JIT-compiled tracing for Python: record, differentiate, fuse, compile and export numerical programs."""
