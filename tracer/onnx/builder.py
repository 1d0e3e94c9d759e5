"""What an operator's ONNX rule builds with: `rule(g, n)` gets one of these as `g`.

`g.op` checks against ONNX's schemas and, where a runtime has no kernel for an element type, casts
around the node. Must not know graphs, nor any operator of this project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ops.dims import Dim
from ops.errors import ExportError, TracerError
from ops.forms import SUFFIXES
from ops.operator import TABLE, Application, ArrayData, RuleBuilder
from ops.types import Shape, Type, dtype_name, is_floating, is_integer, numpy_dtype
from tracer.ir.graph import NOWHERE, Origin
from tracer.onnx.dtypes import Detour, detour
from tracer.onnx.reductions import EXTREMES, limit, reduce
from tracer.onnx.schemas import Schema, bind, output_dtypes, schema
from tracer.onnx.sizes import Sizes
from tracer.onnx.values import Initializer, OnnxNode, OnnxValue, Subgraph

# The page's convention: alpha_f is the attribute alpha, a float.
_SUFFIXES = SUFFIXES
# ONNX's own operators, by the names of their domain.
STANDARD_DOMAINS = ("", "onnx", "ai.onnx")


def _elements(value: Any) -> Any:
    """The elements of a constant; Python's floats are float32, as in Tensors."""
    if isinstance(value, ArrayData):
        return value.array
    array = np.asarray(value)
    of_python = isinstance(value, float | tuple | list)
    return array.astype(np.float32) if of_python and array.dtype == np.float64 else array


class OnnxBuilder(RuleBuilder):
    """Builds a model at one opset.

    Beside `op` and the sugar of all rule builders: `scalar`, `like`, `array`, `ints` give
    constants, `shape` and `size` sizes that may be symbolic, `cast` changes the element type,
    `reduction` builds a reduction over axes, `block` a subgraph.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.head: list[OnnxNode] = []
        self.nodes: list[OnnxNode] = []
        self.initializers: dict[tuple[str, Shape, bytes], Initializer] = {}
        self.origin: Origin = NOWHERE
        self.detours = 0  # how many casts around nodes were needed
        self.sizes: Sizes | None = None
        self.custom_opsets: dict[str, int] = {}  # versions of other domains
        self.export_block: Callable[[Any, Sequence[OnnxValue]], Subgraph] | None = None

    # ---- nodes -----------------------------------------------------------------------------------

    def op(self, name: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        """An ONNX operator: one value, or a tuple if `outputs` is not 1. Python numbers become
        constants.

        Attributes have ONNX's names; the suffixes _i, _f, _s and _t may be added. `domain::Name` is an operator of another
        domain, of which nothing is known: what it gives has no element type until somebody says it.
        """
        domain, _, plain = name.rpartition("::")
        if domain not in STANDARD_DOMAINS:
            return self._foreign(domain, plain, inputs, outputs, attrs)
        name = plain
        if name == "Constant":
            for key in ("value", *(f"value{suffix}" for suffix in ("_t", "_f", "_i"))):
                if attrs.get(key) is not None:
                    return self.array(_elements(attrs[key]))
        found = schema(name, self.opset)
        given = tuple(self._input(x, inputs) for x in inputs)
        while given and given[-1] is None:
            given = given[:-1]
        if len(given) < found.least:
            raise ExportError(f"ONNX's {name} takes {found.least} inputs or more, got {len(given)}")
        attributes = self._attributes(found, attrs)
        bound = bind(found, [x.dtype or None if x is not None else None for x in given])
        wide = self._detours(found, bound)
        given = tuple(self._into(x, wide.get(found.input_type(k))) for k, x in enumerate(given))
        shape = self._shape(name, given, attrs) if outputs == 1 else None
        blocks = [a for a in attributes.values() if isinstance(a, Subgraph)]
        narrow = output_dtypes(found, bound, attributes, outputs)
        if blocks:  # a type parameter for each result, which only the branches determine
            narrow = tuple(v.dtype for v in blocks[0].outputs[-outputs:]) if outputs else ()
        run = output_dtypes(
            found, {**bound, **{k: w.dtype for k, w in wide.items()}}, attributes, outputs
        )
        results = tuple(
            OnnxValue(n if blocks else r, shape) for n, r in zip(narrow, run, strict=True)
        )
        self.nodes.append(OnnxNode(name, given, results, attributes, self.origin))
        parameters = [found.outputs[min(k, len(found.outputs) - 1)] for k in range(outputs)]
        results = tuple(
            self._back(name, value, dtype, wide.get(parameter))
            for value, dtype, parameter in zip(results, narrow, parameters, strict=True)
        )
        return results[0] if outputs == 1 else results

    def _foreign(
        self, domain: str, name: str, inputs: Sequence[Any], outputs: int, attrs: Mapping[str, Any]
    ) -> Any:
        given = tuple(self._input(x, inputs) for x in inputs)
        attributes = {}
        for key, value in attrs.items():
            if not key.endswith(_SUFFIXES):
                raise ExportError(
                    f"the attribute {key} of {domain}::{name} ends with what it is, one of {', '.join(_SUFFIXES)}: there is no "
                    "schema to ask"
                )
            attributes[key] = value
        results = tuple(OnnxValue("") for _ in range(outputs))
        self.nodes.append(OnnxNode(name, given, results, attributes, self.origin, domain))
        return results[0] if outputs == 1 else results

    def _input(self, x: Any, others: Sequence[Any]) -> OnnxValue | None:
        if x is None or isinstance(x, OnnxValue):
            return x
        if isinstance(x, np.ndarray):
            return self.array(x)
        if isinstance(x, bool | int | float):
            typed = next((o for o in others if isinstance(o, OnnxValue) and o.dtype), None)
            value: OnnxValue = self.scalar(x) if typed is None else self.like(x, typed)
            return value
        raise ExportError(f"an input of an ONNX node is a value, got {x!r}")

    def _attributes(self, found: Schema, attrs: Mapping[str, Any]) -> dict[str, Any]:
        result = {}
        for key, value in attrs.items():
            if value is None:
                continue
            name = key
            if name not in found.attributes and name.endswith(_SUFFIXES):
                name = name[:-2]
            if name not in found.attributes:
                known = ", ".join(found.attributes) or "none"
                raise ExportError(
                    f"ONNX's {found.name} has no attribute {key!r} at opset {self.opset}; it "
                    f"has: {known}"
                )
            if isinstance(value, Dim) or (
                isinstance(value, tuple | list) and any(isinstance(v, Dim) for v in value)
            ):
                raise ExportError(
                    f"the attribute {key} of ONNX's {found.name} cannot depend on a symbolic size "
                    f"({value}); export with fixed sizes"
                )
            result[name] = value
        return result

    def _shape(
        self, name: str, inputs: Sequence[OnnxValue | None], attrs: Mapping[str, Any]
    ) -> Shape | None:
        """The result's shape, where this project has the same operator."""
        known = TABLE.get(name)
        types = [x.type for x in inputs if x is not None]
        if known is None or not all(isinstance(t, Type) for t in types):
            return None
        try:
            (result,) = known.infer(
                [t for t in types if isinstance(t, Type)], known.normalize(attrs)
            )
        except (TracerError, TypeError, ValueError):
            return None
        return result.shape

    # ---- element types without kernels -----------------------------------------------------------

    def _detours(self, found: Schema, bound: Mapping[str, str]) -> dict[str, Detour]:
        result = {}
        for parameter, dtype in bound.items():
            allowed = found.allowed[parameter]
            way = detour(found.name, parameter, dtype, allowed)
            if way is not None:
                result[parameter] = way
                self.detours += 1
            elif dtype not in allowed:
                raise ExportError(f"ONNX's {found.name} takes no {dtype} at opset {self.opset}")
        return result

    def _into(self, x: OnnxValue | None, way: Detour | None) -> OnnxValue | None:
        if x is None or way is None or not x.dtype or x.dtype == way.dtype:
            return x
        if way.flipped:
            # Adding 2**63 modulo 2**64 flips the highest bit.
            x = self._emit("Add", (x, self.like(1 << 63, x)), x.dtype, x.shape)
        return self._cast(x, way.dtype)

    def _back(self, name: str, x: OnnxValue, dtype: str, way: Detour | None) -> OnnxValue:
        if way is None or x.dtype == dtype:
            return x
        if dtype == "int16" and name in EXTREMES:
            # The extreme of nothing is the bound of the type that the node ran in.
            bound = self.constant(limit(dtype, name), x.dtype)
            x = self._emit(EXTREMES[name], (x, bound), x.dtype, x.shape)
        x = self._cast(x, dtype)
        if way.flipped:
            x = self._emit("Add", (x, self.like(1 << 63, x)), x.dtype, x.shape)
        return x

    def _emit(
        self,
        name: str,
        inputs: tuple[OnnxValue, ...],
        dtype: str,
        shape: Shape | None,
        **attrs: Any,
    ) -> OnnxValue:
        result = OnnxValue(dtype, shape)
        self.nodes.append(OnnxNode(name, inputs, (result,), attrs, self.origin))
        return result

    def _cast(self, x: OnnxValue, dtype: str) -> OnnxValue:
        return x if x.dtype == dtype else self._emit("Cast", (x,), dtype, x.shape, to=dtype)

    # ---- constants -------------------------------------------------------------------------------

    def array(self, array: np.ndarray[Any, Any]) -> OnnxValue:
        """A constant; equal ones are shared."""
        data = ArrayData.of(np.asarray(array))
        key = (data.dtype, data.shape, data.data)
        if key not in self.initializers:
            value = OnnxValue(data.dtype, data.shape)
            self.initializers[key] = Initializer(value, data.data, data.shape)
        return self.initializers[key].value

    def scalar(self, value: int | float | bool) -> OnnxValue:
        """A 0-d constant: int64 for an int, float32 for a float."""
        return self.array(np.asarray(value).astype(numpy_dtype(dtype_name(type(value)))))

    def ints(self, values: Sequence[int]) -> OnnxValue:
        """A 1-D int64 constant."""
        return self.array(np.array([int(v) for v in values], np.int64))

    def constant(self, value: Any, dtype: str, **_: Any) -> OnnxValue:
        """A constant of an element type."""
        with np.errstate(all="ignore"):
            return self.array(np.asarray(value).astype(numpy_dtype(dtype)))

    # ---- sizes -----------------------------------------------------------------------------------

    def shape(self, sizes: Sequence[int | Dim]) -> OnnxValue:
        """A shape as a 1-D int64 value; symbols are read from the shapes of the model's inputs."""
        return self._at_head(lambda: self._sizes().shape(tuple(sizes)))

    def size(self, size: int | Dim, dtype: str = "int64") -> OnnxValue:
        """A size as a 0-d value."""
        return self._cast(self._at_head(lambda: self._sizes().scalar(size)), dtype)

    def _sizes(self) -> Sizes:
        if self.sizes is None:
            raise ExportError("sizes are known inside a model only")
        return self.sizes

    def _at_head(self, build: Callable[[], OnnxValue]) -> OnnxValue:
        """Build where all blocks see it: before everything else."""
        nodes, origin, self.nodes, self.origin = self.nodes, self.origin, self.head, NOWHERE
        try:
            return build()
        finally:
            self.nodes, self.origin = nodes, origin

    # ---- what many rules need --------------------------------------------------------------------

    def expand(self, x: OnnxValue, shape: Sequence[int | Dim]) -> OnnxValue:
        """x broadcast to a shape."""
        result: OnnxValue = self.op("Expand", x, self.shape(shape))
        result.shape = tuple(shape)
        return result

    def reshape(self, x: OnnxValue, shape: Sequence[int | Dim]) -> OnnxValue:
        """x with another shape of as many elements."""
        if x.shape == tuple(shape):
            return x
        result: OnnxValue = self.op("Reshape", x, self.shape(shape), allowzero=1)
        result.shape = tuple(shape)
        return result

    def cast(self, x: OnnxValue, dtype: str) -> OnnxValue:
        """x converted, as the operator Cast does it: floats to integers saturate, and NaN gives 0.

        ONNX leaves both undefined, so they are built before the conversion. Where all values are
        known to be in range, `g.op("Cast", x, to=dtype)` is enough.
        """
        if not (is_floating(x.dtype) and is_integer(dtype)):
            return self._cast(x, dtype)
        limits = np.iinfo(numpy_dtype(dtype))
        # float64 holds the limits of 32 bits exactly, float32 those of 16.
        wide = "float64" if x.dtype == "float64" or limits.bits >= 32 else "float32"
        x = self._cast(x, wide)
        zero = self.like(0, x)
        x = self.op("Where", self.op("IsNaN", x), zero, x)
        highest = (
            float(limits.max) if limits.bits < 64 else float(np.nextafter(float(limits.max), 0))
        )
        inside = self.op("Max", self.op("Min", x, self.like(highest, x)), self.like(limits.min, x))
        result = self._cast(inside, dtype)
        if limits.bits == 64:
            over = self.op("LessOrEqual", self.like(float(limits.max), x), x)
            result = self.op("Where", over, self.constant(limits.max, dtype), result)
        return result

    def reduction(self, name: str, n: Application, **attrs: Any) -> OnnxValue:
        """A reduction of the first input over the attribute `axes`."""
        return self.reduce(name, n.x, n.attrs.axes, n.attrs.keepdims, **attrs)

    def reduce(
        self, name: str, x: OnnxValue, axes: Sequence[int], keepdims: bool, **attrs: Any
    ) -> OnnxValue:
        """A reduction of x over axes, with NaN and empty axes as this project has them."""
        return reduce(self, name, x, axes, keepdims, attrs)

    def block(self, graph: Any, inputs: Sequence[OnnxValue]) -> Subgraph:
        """A closed graph as a subgraph, its inputs being values of the model around it."""
        if self.export_block is None:
            raise ExportError("blocks are exported inside a model only")
        return self.export_block(graph, inputs)
