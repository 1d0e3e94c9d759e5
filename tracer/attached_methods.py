"""The methods and Python operators that `tracer.functions` attaches to Tensor when `tracer` is imported.

A Tensor knows nothing of them. For type checkers they are its base class, which the stub beside this file names.
"""

AttachedMethods = object
