"""Kinds of values that code may name: plain ones, containers that may change, what is the user's own; and how each is watched.

Knows values. Must not know how they were found.
"""

from __future__ import annotations

import enum
import functools
import inspect
import random
import sys
import sysconfig
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ops.python_values import PLAIN_CLASSES
from tracer.autograd.function import Function
from tracer.core.source_lines import is_own
from tracer.custom.operators import CustomOperator
from tracer.tensors.tensor import Tensor

MOST_ITEMS = 64  # of a tuple that is compared as a whole
MOST_KEYS = 512  # of a list or dict to whose elements the code may assign
KEYED = (dict, list, OrderedDict, defaultdict)
CHANGEABLE = (*KEYED, deque, set)
CONTAINERS = (*CHANGEABLE, tuple, frozenset, Counter)  # whose elements a guard compares
_INSTALLED = tuple(sysconfig.get_paths()[k] for k in ("stdlib", "purelib", "platlib"))


class RunsPrograms:
    """The base of what runs a compiled program in the place of a function."""

    _function: Callable[..., Any]


class Watch(enum.Enum):
    """How a guard sees that a value which code has read is another one now. What fits none is not known to be watched."""

    VALUE = enum.auto()  # a plain one: by value and class
    IDENTITY = enum.auto()  # functions, operations of the user's, generators: by identity
    CLASS = enum.auto()  # a callable object of the user's, whose attributes are followed: by class
    TENSOR = enum.auto()
    ARRAY = enum.auto()
    CONTAINER = enum.auto()  # its elements are followed where they are read, itself it is not


def watch_of(value: Any, fixed: bool = False) -> Watch | None:
    """How a value is watched; None for one of which a guard sees nothing, though what is read of it may be followed.

    `fixed`: it belongs to an installed module, whose functions nobody replaces.
    """
    if isinstance(value, Tensor):
        return Watch.TENSOR
    if is_plain(value):
        return Watch.VALUE
    if isinstance(value, np.ndarray):
        return Watch.ARRAY
    if is_changeable(value):
        return Watch.CONTAINER
    if callable(value) and not fixed and "_modules" not in getattr(value, "__dict__", ()):
        return Watch.CLASS if is_users_object(value) else Watch.IDENTITY
    if isinstance(value, Iterator) or is_generator(value) or is_custom(value):
        return Watch.IDENTITY
    return Watch.IDENTITY if is_users_function(value) else None


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a string or the like, or a tuple of such."""
    if isinstance(value, tuple):
        return len(value) <= MOST_ITEMS and all(isinstance(x, PLAIN_CLASSES) for x in value)
    return isinstance(value, PLAIN_CLASSES)


def is_changeable(value: Any) -> bool:
    """Whether it is a list or the like whose elements code may change, and not a large one."""
    return type(value) in CHANGEABLE and len(value) <= MOST_KEYS


def is_used_up(value: Any) -> bool:
    """Whether a value gives its elements once: a generator, or an iterator of Python's own."""
    if isinstance(value, types.GeneratorType):
        return True
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


def is_generator(value: Any) -> bool:
    """Whether it makes random numbers, as Python's and NumPy's generators do."""
    if isinstance(value, random.Random):
        return True
    if "numpy.random" not in sys.modules:  # which NumPy imports when it is named
        return False
    return isinstance(value, (np.random.Generator, np.random.RandomState))


def is_custom(value: Any) -> bool:
    """Whether it is an operation of the user's: what `tracer.op` gives, or a `tracer.autograd.Function`."""
    return isinstance(value, CustomOperator) or is_function_class(value)


def is_function_class(value: Any) -> bool:
    """Whether it is a `tracer.autograd.Function`, whose `apply` calls its functions."""
    return isinstance(value, type) and issubclass(value, Function)


def untraced(value: Any) -> Any:
    """Of a traced function what it traces. No attribute of anybody else's object is asked for, which could run their code."""
    while isinstance(value, RunsPrograms):
        value = value._function
    return value


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
    return is_users_function(call)


def is_users_function(value: Any) -> bool:
    """Whether it is a function written in Python in a file of the user's."""
    return isinstance(value, types.FunctionType) and is_users(value.__code__.co_filename)


@functools.lru_cache(4096)
def is_users(filename: str) -> bool:
    """Whether a file of code is neither this library's nor an installed package's."""
    return not (is_own(filename) or filename.startswith((*_INSTALLED, "<frozen")))
