"""From a graph with known sizes to a program: fusion into groups, kernel specifications, memory, rows.

    graph -> groups (fuse) -> KernelSpecs (specify) -> memory plan -> program

Asks each operator's record how it computes; knows no operator by name. Codegen sees frozen specifications only.
Must not know Tensors, or on which target a program runs: it asks that.
"""
