"""Checks an ELF object file before it is handed to LLVM, which ends the process over much of what
could be wrong in one.

Knows the file format only: no LLVM, no cache. A file is good if it is for this machine, all its
sections are of forms that LLVM writes for kernels and lie inside it, the one symbol that it exports
is the expected one, each symbol that it needs is on a list, and its relocations are of kinds that
LLVM's loader implements and stay inside their sections.
"""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Collection
from typing import NamedTuple

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
_PROGRAM, _SYMTAB, _STRTAB, _RELA, _UNWIND = 1, 2, 3, 4, 0x70000001  # kinds of sections
_WRITTEN, _LOADED, _CODE, _MERGED, _STRINGS, _LARGE = 1, 2, 4, 0x10, 0x20, 0x10000000  # flags
# The sections that LLVM writes for a kernel: kind, flags but _LARGE, size of an element.
_FORMS = {
    (0, 0, 0),  # the first one, which is none
    (_PROGRAM, 0, 0),  # a note that the stack holds no code
    (_PROGRAM, _LOADED | _CODE, 0),
    (_PROGRAM, _LOADED | _WRITTEN, 0),
    (_PROGRAM, _LOADED, 0),
    *((_PROGRAM, _LOADED | _MERGED, size) for size in (4, 8, 16, 32)),
    (_PROGRAM, _LOADED | _MERGED | _STRINGS, 1),
    (_UNWIND, _LOADED, 0),
    (_SYMTAB, 0, _SYMBOL.size),
    (_STRTAB, 0, 0),
    (_RELA, 0x40, _RELOCATION.size),
}
_ALIGNMENTS = {1 << k for k in range(13)}
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1  # instead of a symbol's section
# Binding and kind of a symbol: local ones are labels, data, functions, sections.
_LOCAL, _FILE, _EXPORTED, _NEEDED = {0x00, 0x01, 0x02, 0x03}, 0x04, 0x12, {0x10, 0x20}

X86 = platform.machine() in ("x86_64", "AMD64")
SUPPORTED = sys.platform.startswith("linux") and platform.machine() in _MACHINES


class DamagedObjectError(ValueError):
    """An object file that must not be loaded."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int

    def data(self, code: bytes) -> bytes:
        return code[self.offset : self.offset + self.size]


def undefined_symbols(code: bytes, symbol: str, allowed: Collection[str]) -> list[str]:
    """The names that `code` needs from outside, each of them in `allowed`.

    Raises DamagedObjectError unless the file is good.
    """
    try:
        sections = _sections(code)
        (table,) = (s for s in sections if s.kind == _SYMTAB)
        symbols = list(_SYMBOL.iter_unpack(table.data(code)))
        needed = _needed(symbols, sections[table.link].data(code), sections, symbol)
        unknown = sorted(needed.difference(allowed))
        _require(not unknown, f"it needs {', '.join(unknown)}, not among the known symbols")
        for section in sections:
            if section.kind == _RELA:
                _check_relocations(section, code, sections, symbols)
    except DamagedObjectError:
        raise
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedObjectError(f"a table of the object file is damaged: {error}") from error
    return sorted(needed)


def _require(good: bool, what: str) -> None:
    if not good:
        raise DamagedObjectError(what)


def _sections(code: bytes) -> list[_Section]:
    machine, _ = _MACHINES[platform.machine()]
    ident, kind, cpu, version, _, _, table, *_, entry, count, at = _HEADER.unpack_from(code)
    good = ident.startswith(_IDENT) and (kind, cpu, version) == (1, machine, 1)
    _require(good, "not an object for this machine")
    _require(entry == _SECTION.size and at < count, "odd section table")
    end = table + count * entry
    _require(end <= len(code), "section table outside the file")
    sections = [_Section._make(x) for x in _SECTION.iter_unpack(code[table:end])]
    _require(sections[at].kind == _STRTAB, "sections without names")
    names = sections[at].data(code)
    for s in sections:
        form = (s.kind, s.flags & ~_LARGE, s.entry)
        _require(form in _FORMS, f"a section of kind {s.kind:#x} with flags {s.flags:#x}")
        _require(s.align in _ALIGNMENTS or s.kind == s.align == 0, "odd alignment of a section")
        _require(s.offset + s.size <= len(code), "a section lies outside the file: of absurd size?")
        _require(b"\0" in names[s.name :], "a section's name is outside their table")
    return sections


def _needed(
    symbols: list[tuple[int, ...]], names: bytes, sections: list[_Section], symbol: str
) -> set[str]:
    """The names of symbols that are defined elsewhere; `symbol` is the one that is exported."""
    needed: set[str] = set()
    exported: list[str] = []
    for name_at, form, _, home, value, length in symbols[1:]:
        name, end, _ = names[name_at:].partition(b"\0")
        _require(bool(end), "a symbol's name is outside the table of names")
        shown = name.decode("ascii")
        if home in (_UNDEFINED, _ABSOLUTE):
            good = form in _NEEDED if home == _UNDEFINED else form == _FILE
            _require(good, f"odd symbol {shown}")
            if home == _UNDEFINED:
                needed.add(shown)
            continue
        _require(home < len(sections), f"{shown} is in a section that does not exist")
        _require(value + length <= sections[home].size, f"{shown} reaches outside its section")
        _require(bool(sections[home].flags & _LOADED), f"{shown} is not in memory")
        _require(form in _LOCAL or form == _EXPORTED, f"odd symbol {shown}")
        if form == _EXPORTED:
            exported.append(shown)
    _require(exported == [symbol], f"it exports {exported}, expected {symbol}")
    return needed


def _check_relocations(
    table: _Section, code: bytes, sections: list[_Section], symbols: list[tuple[int, ...]]
) -> None:
    _, kinds = _MACHINES[platform.machine()]
    _require(sections[table.link].kind == _SYMTAB, "relocations without symbols")
    target = sections[table.info]
    _require(bool(target.flags & _LOADED), "relocations of what is not loaded")
    for where, kind, index, _ in _RELOCATION.iter_unpack(table.data(code)):
        _require(0 < index < len(symbols), "a relocation to a symbol that does not exist")
        _require(symbols[index][1] != _FILE, "a relocation to a file's name")
        _require(kind in kinds, f"a relocation of unknown kind {kind}")
        end = where + (8 if kind in _WIDE else 4)
        _require(end <= target.size, "a relocation outside its section")
