"""What tests are written with, and is no test: operators run and differentiated without a graph, distances between
arrays, kernels in plain NumPy. Knows `ops` and `codegen`; nothing of the product may import it.
"""
