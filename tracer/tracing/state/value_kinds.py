"""Kinds of values that code may name: plain ones, containers that may change, what is the user's own.

Knows values. Must not know how they were found.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
import sysconfig
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np

from tracer.core.source_lines import is_own

SCALARS = (bool, int, float, complex, str, bytes, np.generic, type(None))
MOST_ITEMS = 64  # of a tuple that is compared as a whole
MOST_KEYS = 512  # of a list or dict to whose elements the code may assign
KEYED = (dict, list, OrderedDict, defaultdict)
_INSTALLED = tuple(sysconfig.get_paths()[k] for k in ("stdlib", "purelib", "platlib"))


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a string or the like, or a tuple of such."""
    if isinstance(value, tuple):
        return len(value) <= MOST_ITEMS and all(isinstance(x, SCALARS) for x in value)
    return isinstance(value, SCALARS)


def same(x: Any, y: Any) -> bool:
    """Whether plain values are equal: 1, True and 1.0 are three."""
    return x is y or (type(x) is type(y) and repr(x) == repr(y))


def is_changeable(value: Any) -> bool:
    """Whether it is a list or the like whose elements code may change, and not a large one."""
    return type(value) in (*KEYED, deque, set) and len(value) <= MOST_KEYS


def is_generator(value: Any) -> bool:
    """Whether it makes random numbers, as Python's and NumPy's generators do."""
    if isinstance(value, random.Random):
        return True
    if "numpy.random" not in sys.modules:  # which NumPy imports when it is named
        return False
    return isinstance(value, (np.random.Generator, np.random.RandomState))


def is_custom(value: Any) -> bool:
    """Whether it is an operation of the user's."""
    return is_operator(value) or (isinstance(value, type) and is_function_class(value))


def is_operator(value: Any) -> bool:
    """Whether it is what `tracer.op` gives."""
    return type(value).__module__ == "tracer.custom.operators"


def is_function_class(value: type) -> bool:
    """Whether it is a `tracer.autograd.Function`, whose `apply` calls its functions."""
    return any(base.__module__ == "tracer.autograd.function" for base in value.__mro__)


def is_users_instance(value: Any) -> bool:
    """Whether code may follow its attributes."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return False
    kind: Any = type(value)
    return is_users_class(kind)


@functools.lru_cache(4096)
def is_users_class(kind: Any) -> bool:
    """Whether it is no class of Python's, of this library or of an installed package; what is made there, as by hand, is."""
    module = kind.__module__
    if module in ("builtins", "types", "functools", "collections"):
        return module == "types" and kind is types.SimpleNamespace
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or is_users(file)


def is_users_object(value: Any) -> bool:
    """Whether it is an instance of a class that calls a function of the user's when it is called."""
    call = inspect.getattr_static(type(value), "__call__", None)
    return isinstance(call, types.FunctionType) and is_users_function(call)


def is_users_function(value: Any) -> bool:
    """Whether it is a function written in Python in a file of the user's."""
    return isinstance(value, types.FunctionType) and is_users(value.__code__.co_filename)


def is_users(filename: str) -> bool:
    """Whether a file of code is neither this library's nor an installed package's."""
    return not (is_own(filename) or filename.startswith((*_INSTALLED, "<frozen")))
