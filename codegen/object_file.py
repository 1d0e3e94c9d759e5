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

# Machine number, and the relocation kinds that RuntimeDyldELF implements (absolute and relative to
# the place).
_MACHINES: dict[str, tuple[int, frozenset[int]]] = {
    # R_X86_64_NONE, 64, PC32, PLT32, 32, 32S, PC64, GOTOFF64, GOTPC32, GOTPC64, GOTPCREL,
    # GOTPCRELX, REX_GOTPCRELX
    "x86_64": (62, frozenset({0, 1, 2, 4, 9, 10, 11, 24, 25, 26, 29, 41, 42})),
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
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QIIq")
_IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little endian, version 1
_RELOCATABLE, _SYMTAB, _STRTAB, _RELA, _NOBITS, _REL = 1, 2, 3, 4, 8, 9
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_LOCAL, _GLOBAL_OFFSET_TABLE = 0, "_GLOBAL_OFFSET_TABLE_"
_MAX_SECTIONS, _MAX_SIZE = 4096, 1 << 30

X86 = platform.machine() in ("x86_64", "AMD64")
SUPPORTED = sys.platform.startswith("linux") and platform.machine() in _MACHINES


class DamagedObjectError(ValueError):
    """An object file that must not be loaded."""


def undefined_symbols(code: bytes, symbol: str, allowed: Collection[str]) -> list[str]:
    """The names that `code` needs from outside, each of them in `allowed`; raises
    DamagedObjectError unless the file is good.
    """
    try:
        return _check(code, symbol, allowed)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DamagedObjectError(f"a table of the object file is cut short: {error}") from error


def _require(good: bool, what: str) -> None:
    if not good:
        raise DamagedObjectError(what)


def _check(code: bytes, symbol: str, allowed: Collection[str]) -> list[str]:
    machine, kinds = _MACHINES[platform.machine()]
    ident, kind, cpu, version, _, _, table, _, _, _, _, entry, count, _ = _HEADER.unpack_from(code)
    _require(ident.startswith(_IDENT), "not a 64-bit little-endian ELF file")
    _require(
        (kind, cpu, version) == (_RELOCATABLE, machine, 1), "not an object file for this machine"
    )
    _require(entry == _SECTION.size and 0 < count <= _MAX_SECTIONS, "odd section table")
    _require(table + count * entry <= len(code), "section table outside the file")
    sections = [_SECTION.unpack_from(code, table + i * entry) for i in range(count)]
    total = 0
    for _, section_kind, _, _, offset, size, _, _, align, _ in sections:
        _require(align < 1 << 16 and align & (align - 1) == 0, "odd alignment of a section")
        _require(size <= _MAX_SIZE, "a section of absurd size")
        if section_kind == _NOBITS:
            total += size
        elif section_kind:
            _require(offset + size <= len(code), "a section lies outside the file")
    _require(total <= _MAX_SIZE, "sections of absurd size")
    tables = [s for s in sections if s[1] == _SYMTAB]
    _require(len(tables) == 1, "not exactly one symbol table")
    _, _, _, _, offset, size, link, _, _, entry = tables[0]
    _require(entry == _SYMBOL.size and size % entry == 0, "odd symbol table")
    _require(link < count and sections[link][1] == _STRTAB, "symbol table without names")
    names = code[sections[link][4] : sections[link][4] + sections[link][5]]
    symbols = list(_SYMBOL.iter_unpack(code[offset : offset + size]))
    needed: list[str] = []
    exported: list[str] = []
    for name_at, info, _, home, value, length in symbols[1:]:
        end = (
            names.index(b"\0", name_at) if name_at < len(names) and b"\0" in names[name_at:] else -1
        )
        _require(end >= 0, "a symbol's name is outside the table of names")
        name = names[name_at:end].decode("ascii")
        if home == _UNDEFINED:
            if name and name != _GLOBAL_OFFSET_TABLE:
                needed.append(name)
            continue
        _require(home != _COMMON, f"{name} is a common symbol")
        if home != _ABSOLUTE:
            _require(home < count, f"{name} is in a section that does not exist")
            _require(value <= sections[home][5], f"{name} lies outside its section")
            _require(value + length <= sections[home][5], f"{name} reaches outside its section")
        if info >> 4 != _LOCAL:
            exported.append(name)
    _require(exported == [symbol], f"it exports {exported}, expected {symbol}")
    unknown = sorted(set(needed).difference(allowed))
    _require(
        not unknown, f"it needs {', '.join(unknown)}, which is not on the list of known symbols"
    )
    for _, section_kind, _, _, offset, size, link, target, _, entry in sections:
        _require(section_kind != _REL, "relocations without addends")
        if section_kind != _RELA:
            continue
        _require(entry == _RELOCATION.size and size % entry == 0, "odd relocation table")
        _require(
            target < count and link < count and sections[link][1] == _SYMTAB,
            "relocations of nothing",
        )
        room = sections[target][5]
        for where, relocation, index, _ in _RELOCATION.iter_unpack(code[offset : offset + size]):
            _require(index < len(symbols), "a relocation to a symbol that does not exist")
            _require(relocation in kinds, f"a relocation of unknown kind {relocation}")
            _require(
                where + (8 if relocation in (1, 24, 25, 29, 257, 260) else 4) <= room,
                "a relocation outside its section",
            )
    return sorted(set(needed))
