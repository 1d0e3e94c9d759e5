"""Checks an ELF object file before it is handed to LLVM, which ends the process over much of what
could be wrong in one.

Knows the file format only: no LLVM, no cache. A file is good if every table lies inside it, it is
for this machine, the one symbol that it exports is the expected one, each symbol that it needs is
on a list, and its relocations are of kinds that LLVM's loader implements and stay inside their
sections.
"""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Collection
from dataclasses import dataclass

# Machine number, and the kinds of relocations: those that LLVM writes for code without a global
# offset table on x86-64, those that its loader implements on aarch64 (not tried there).
_MACHINES: dict[str, tuple[int, frozenset[int]]] = {
    # R_X86_64_64, PC32, PLT32, PC64
    "x86_64": (62, frozenset({1, 2, 4, 24})),
    # R_AARCH64_ABS64, ABS32, PREL64, PREL32, MOVW_UABS_G0..G3, ADR_PREL_PG_HI21, ADD_ABS_LO12_NC,
    # JUMP26, CALL26, LDST8/16/32/64/128_ABS_LO12_NC, ADR_GOT_PAGE, LD64_GOT_LO12_NC
    "aarch64": (
        183,
        frozenset(
            {0, 257, 258, 260, 261, 263, 264, 265, 266, 267, 268, 269}
            | {275, 277, 278, 282, 283, 284, 285, 286, 299, 311, 312}
        ),
    ),
}
_WIDE = {1, 24, 257, 260}  # kinds that fill 64 bits
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE, _SYMTAB, _STRTAB, _RELA, _NOBITS, _REL = 1, 2, 3, 4, 8, 9
# Also notes, unwind tables of x86-64, and the list of symbols whose address matters.
_KINDS = {0, 1, _SYMTAB, _STRTAB, _RELA, 7, _NOBITS, _REL, 0x70000001, 0x6FFF4C03}
_LOADED, _THREAD_LOCAL = 0x2, 0x400  # flags of sections
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1  # instead of a symbol's section
_LOCAL, _GLOBAL, _WEAK = 0, 1, 2  # a symbol's binding; then kinds
_NO_TYPE, _FUNCTION, _SECTION_SYMBOL, _FILE = 0, 2, 3, 4
_MAX_SECTIONS, _MAX_SIZE = 4096, 1 << 30

X86 = platform.machine() in ("x86_64", "AMD64")
SUPPORTED = sys.platform.startswith("linux") and platform.machine() in _MACHINES


class DamagedObjectError(ValueError):
    """An object file that must not be loaded."""


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    entry: int


def undefined_symbols(code: bytes, symbol: str, allowed: Collection[str]) -> list[str]:
    """The names that `code` needs from outside, each of them in `allowed`.

    Raises DamagedObjectError unless the file is good.
    """
    try:
        sections = _sections(code)
        symbols, names = _symbols(code, sections)
        needed = _check_symbols(symbols, names, sections, symbol)
        unknown = sorted(needed.difference(allowed))
        _require(not unknown, f"it needs {', '.join(unknown)}, not among the known symbols")
        _check_relocations(code, sections, symbols)
    except (struct.error, ValueError) as error:
        if isinstance(error, DamagedObjectError):
            raise
        raise DamagedObjectError(f"a table of the object file is cut short: {error}") from error
    return sorted(needed)


def _require(good: bool, what: str) -> None:
    if not good:
        raise DamagedObjectError(what)


def _sections(code: bytes) -> list[_Section]:
    machine, _ = _MACHINES[platform.machine()]
    header = _HEADER.unpack_from(code)
    ident, kind, cpu, version, _, _, table = header[:7]
    entry, count, names_index = header[11:14]
    _require(ident.startswith(_IDENT), "not a 64-bit little-endian ELF file")
    _require((kind, cpu, version) == (_RELOCATABLE, machine, 1), "not an object for this machine")
    _require(entry == _SECTION.size and 0 < count <= _MAX_SECTIONS, "odd section table")
    _require(table + count * entry <= len(code), "section table outside the file")
    _require(names_index < count, "sections without names")
    _, kind, _, _, offset, size, *_ = _SECTION.unpack_from(code, table + names_index * entry)
    _require(kind == _STRTAB, "sections without names")
    names = code[offset : offset + size]
    sections = []
    empty = 0
    for i in range(count):
        fields = _SECTION.unpack_from(code, table + i * entry)
        name_at, kind, flags, _, offset, size, link, info, align, entry_size = fields
        _require(names.find(b"\0", name_at) >= name_at, "a section's name is outside their table")
        _require(kind in _KINDS and not flags & _THREAD_LOCAL, f"a section of kind {kind:#x}")
        _require(align <= 1 << 16 and align & (align - 1) == 0, "odd alignment of a section")
        _require(align > 0 if kind else flags == 0, "a section without alignment or kind")
        _require(size <= _MAX_SIZE, "a section of absurd size")
        if kind == _NOBITS:
            empty += size
        elif kind:
            _require(offset + size <= len(code), "a section lies outside the file")
        sections.append(_Section(kind, flags, offset, size, link, info, entry_size))
    _require(empty <= _MAX_SIZE, "sections of absurd size")
    return sections


def _symbols(code: bytes, sections: list[_Section]) -> tuple[list[tuple[int, ...]], bytes]:
    """The symbols, and the table of their names."""
    tables = [section for section in sections if section.kind == _SYMTAB]
    _require(len(tables) == 1, "not exactly one symbol table")
    table = tables[0]
    _require(table.entry == _SYMBOL.size and table.size % table.entry == 0, "odd symbol table")
    _require(table.link < len(sections), "symbol table without names")
    names = sections[table.link]
    _require(names.kind == _STRTAB, "symbol table without names")
    symbols = list(_SYMBOL.iter_unpack(code[table.offset : table.offset + table.size]))
    return symbols, code[names.offset : names.offset + names.size]


def _check_symbols(
    symbols: list[tuple[int, ...]], names: bytes, sections: list[_Section], symbol: str
) -> set[str]:
    """The names that are defined elsewhere."""
    needed: set[str] = set()
    exported: list[str] = []
    _require(names.endswith(b"\0"), "the table of names has no end")
    for name_at, info, _, home, value, length in symbols[1:]:
        end = names.find(b"\0", name_at)
        _require(name_at <= end, "a symbol's name is outside the table of names")
        name = names[name_at:end].decode("ascii")
        binding, kind = info >> 4, info & 15
        if home == _UNDEFINED:
            _require(binding in (_GLOBAL, _WEAK) and kind == _NO_TYPE, f"odd symbol {name}")
            needed.add(name)
        elif home == _ABSOLUTE:
            _require(binding == _LOCAL and kind == _FILE, f"odd symbol {name}")
        else:
            _require(home < len(sections), f"{name} is in a section that does not exist")
            section = sections[home]
            _require(value + length <= section.size, f"{name} reaches outside its section")
            _require(bool(section.flags & _LOADED), f"{name} is not in memory")
            if binding == _LOCAL:
                _require(kind <= _SECTION_SYMBOL, f"odd symbol {name}")
            else:
                _require(binding == _GLOBAL and kind == _FUNCTION, f"odd symbol {name}")
                exported.append(name)
    _require(exported == [symbol], f"it exports {exported}, expected {symbol}")
    return needed


def _check_relocations(
    code: bytes, sections: list[_Section], symbols: list[tuple[int, ...]]
) -> None:
    _, kinds = _MACHINES[platform.machine()]
    for section in sections:
        _require(section.kind != _REL, "relocations without addends")
        if section.kind != _RELA:
            continue
        _require(
            section.entry == _RELOCATION.size and section.size % section.entry == 0,
            "odd relocation table",
        )
        _require(max(section.info, section.link) < len(sections), "relocations of nothing")
        _require(sections[section.link].kind == _SYMTAB, "relocations without symbols")
        _require(bool(sections[section.info].flags & _LOADED), "relocations of what is not loaded")
        room = sections[section.info].size
        table = code[section.offset : section.offset + section.size]
        for where, kind, index, _ in _RELOCATION.iter_unpack(table):
            _require(0 < index < len(symbols), "a relocation to a symbol that does not exist")
            _require(symbols[index][1] & 15 != _FILE, "a relocation to a file's name")
            _require(kind in kinds, f"a relocation of unknown kind {kind}")
            _require(
                where + (8 if kind in _WIDE else 4) <= room, "a relocation outside its section"
            )
