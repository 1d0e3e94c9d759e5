"""The vector mathematics: errors and times of every function, and where its numbers come from.

python -m benchmarks.vector_math                 the table of docs/vector_math.md
python -m benchmarks.vector_math.coefficients    codegen/vector/tables.py
"""
