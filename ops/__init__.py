"""What each operator means: types, the operator record and the table.

Knows NumPy, SciPy and ml_dtypes. Must not know graphs, kernels or devices.
"""
