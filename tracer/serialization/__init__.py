"""Files of Tensors and checkpoints of modules and optimisers. Files from outside are taken for hostile."""
