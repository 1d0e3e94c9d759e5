"""The benchmark of `make bench`: the same work in tracer and in its peers, side by side in one run.

    python -m benchmarks --help

Every figure comes from several fresh processes, interleaved with those of the peers, on the same
number of cores. Knows every framework by its public interface only; nothing of the project imports
this package.
"""
