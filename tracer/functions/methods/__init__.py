"""Methods and Python operators of Tensor: the functions under PyTorch's names, attached when `tracer` is imported."""
