"""Files of Tensors and checkpoints of modules and optimisers. Files from outside are taken for hostile.

Knows what state there is. Must not know how it is computed.
"""
