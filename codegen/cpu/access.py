"""How a CPU kernel reaches an operand: which of the vector memory functions an access needs, and
its address, as text.

An address has a scalar part (rows, row values) and a part along the lanes. Lanes one element apart
are a vector load; lanes at one address a broadcast; all else a gather. Knows analysed specs and the
memory functions of `codegen.vector`, no loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.spec.analysis import Analysis, lane_element
from codegen.spec.kernel_spec import WIDTH, Load, Store
from codegen.spec.positions import Extent
from codegen.text.source import Source


@dataclass(frozen=True, slots=True)
class Address:
    """Scalar terms; the stride along the inner axis (None: not indexed, "1", or a name); terms that
    are vectors of int64.
    """

    scalars: tuple[str, ...]
    inner: str | None
    lanes: tuple[str, ...]

    @property
    def base(self) -> str:
        """The scalar part."""
        return " + ".join(self.scalars)

    @property
    def one(self) -> bool:
        """Whether all lanes are at one place."""
        return self.inner is None and not self.lanes

    @property
    def neighbours(self) -> bool:
        """Whether lane l is l elements behind lane 0."""
        return self.inner == "1" and not self.lanes


def load(function: str, memory: str, place: str, element: str, extent: Extent) -> str:
    """A "load" of neighbours, or a "gather"; lanes that are not there are 0."""
    if extent is Extent.ROW:
        return f"load_one({memory}, {place})"
    if extent is Extent.ALL:
        return f"{function}({memory}, {place})"
    zero = "False" if element == "bool" else f"{element}(0)"
    return f"{function}_part({memory}, {place}, left, {zero})"


def store(function: str, memory: str, place: str, value: str, extent: Extent) -> str:
    """A "store" of neighbours, or a "scatter"."""
    if extent is Extent.ROW:
        return f"store_one({memory}, {place}, {value})"
    if extent is Extent.ALL:
        return f"{function}({memory}, {place}, {value})"
    return f"{function}_part({memory}, {place}, left, {value})"


class Access:
    """Texts of loads and stores. `bases` caches scalar parts that are given a name once a row, see
    `begin_row`.
    """

    def __init__(self, facts: Analysis) -> None:
        self.facts = facts
        self.bases: dict[tuple[str, str], str] = {}

    # ---- addresses -------------------------------------------------------------------------------
    def address(self, operand: str, index: tuple[str, ...], looped: bool) -> Address:
        """The terms of operand[index]."""
        facts, scalars, lanes = self.facts, [], []
        inner: str | None = None
        for position, (name, stride) in enumerate(
            zip(index, facts.operands[operand].strides, strict=True)
        ):
            if stride == 0:
                continue
            scale = "" if stride == 1 else f"*{operand}_stride{position}"
            if name == facts.inner:
                if inner is None:
                    inner = scale[1:] or "1"
                else:
                    lanes.append(f"lanes{scale}")
            elif name in facts.parts:
                lanes.append(name + scale)
            elif not facts.is_value(name):
                scalars.append(name + scale)
            else:
                wide = name if facts.elements[name] == "i64" else f"to_i64({name})"
                if looped and name in facts.varying:
                    lanes.append(wide + scale)
                else:
                    scalars.append(f"first({wide}){scale}")
        return Address(tuple(scalars), inner, tuple(lanes))

    def begin_row(self) -> None:
        """Forget the named scalar parts: another row, or another point in it, begins."""
        self.bases.clear()

    def name_base(self, out: Source, operand: str, index: tuple[str, ...]) -> None:
        """Before a loop, give the scalar part of an address a name when it is more than one."""
        if any(self.facts.homes.get(name) is not None for name in index):
            return  # indexed by a value of the loop
        base = self.address(operand, index, True).base
        if base and not base.isidentifier() and (operand, base) not in self.bases:
            count = sum(o == operand for o, _ in self.bases)
            name = f"{operand}_row" + (str(count + 1) if count else "")
            self.bases[operand, base] = name
            out.line(f"{name} = {base}")

    def _base(self, operand: str, address: Address) -> str:
        return self.bases.get((operand, address.base), address.base)

    def _where(self, operand: str, address: Address) -> str:
        base = self._base(operand, address)
        if address.inner == "1":
            return f"{base} + {self.facts.inner}" if base else str(self.facts.inner)
        return base or "0"

    def _vector(self, operand: str, address: Address) -> str:
        """The int64 lanes of an address that is neither one place nor neighbours."""
        terms = list(address.lanes)
        if address.inner is not None:
            terms.insert(0, "lanes" if address.inner == "1" else f"lanes*{address.inner}")
        base = self._base(operand, address)
        if not terms:
            return f"full(i64({base or 0}))"
        return " + ".join([*terms, base] if base else terms)

    # ---- texts -----------------------------------------------------------------------------------
    def load(self, s: Load, extent: Extent) -> str:
        """The value of a Load."""
        element = lane_element(self.facts.operands[s.operand].dtype)
        a = self.address(s.operand, s.index, extent.looped)
        if s.valid is None:
            return self._plain_load(s.operand, a, element, extent)
        mask = f"{s.valid} & live" if extent is Extent.LEFT else s.valid
        fill = s.fill if element == "bool" else f"{element}({s.fill})"
        if a.neighbours:
            return f"load_masked({s.operand}, {self._where(s.operand, a)}, {mask}, {fill})"
        return f"gather_masked({s.operand}, {self._vector(s.operand, a)}, {mask}, {fill})"

    def _plain_load(self, operand: str, a: Address, element: str, extent: Extent) -> str:
        if a.one:
            return load("load", operand, self._where(operand, a), element, Extent.ROW)
        if a.neighbours:
            return load("load", operand, self._where(operand, a), element, extent)
        return load("gather", operand, self._vector(operand, a), element, extent)

    def store(self, s: Store, extent: Extent) -> str:
        """The statement of a Store."""
        a = self.address(s.operand, s.index, extent.looped)
        element = lane_element(self.facts.operands[s.operand].dtype)
        ordered = any(self.facts.is_value(n) and n in self.facts.varying for n in s.index)
        if s.mode == "add" and extent.looped and (ordered or a.one):
            index = self._vector(s.operand, a)  # lanes may meet: added in their order
            left = "left" if extent is Extent.LEFT else WIDTH
            return f"scatter_add({s.operand}, {index}, {left}, {s.value})"
        value = s.value
        if s.mode == "add":
            value = f"{self._plain_load(s.operand, a, element, extent)} + {value}"
        if a.neighbours or not extent.looped:
            return store("store", s.operand, self._where(s.operand, a), value, extent)
        return store("scatter", s.operand, self._vector(s.operand, a), value, extent)
