"""A folder of checked entries that many processes share: key -> bytes, bounded in size, least
recently used out first.

Knows nothing of what the bytes mean. Everything that can go wrong with files ends in a miss or an
entry not kept, never in an exception; what the user can mend is said once through the logger
"tracer.cache". Entries appear by rename, so a reader sees a whole entry or none, and a checksum
over key and bytes finds those that were cut short, changed or moved.

Environment: TRACER_CACHE_DIR (else $XDG_CACHE_HOME/tracer-jit, else ~/.cache/tracer-jit),
TRACER_CACHE_SIZE (bytes, or with K, M, G; 0 for no disk cache; 512M unless given).
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from codegen import settings

_log = logging.getLogger("tracer.cache")
_MAGIC = b"TRACEROB"
_HEADER = struct.Struct("<8sQ32s")
_FORMAT = "objects-1"  # the folder's name; a new format is a new folder
_SUFFIX = ".o"
_DEFAULT_SIZE = 512 << 20
_STALE = (
    3600.0  # seconds after which a temporary file is nobody's; also how exact "recently used" is
)


class ObjectCache:
    """The entries below `base`, at most `limit` bytes. Safe with concurrent readers, writers,
    threads and forks.
    """

    def __init__(self, base: Path, limit: int) -> None:
        self.base = base
        self.limit = limit
        self._folder = -1  # descriptor: what was checked is what is used
        self._failed = limit <= 0
        self._warned = False
        self._size = -1  # bytes in the folder as far as known; -1: never counted
        self._unseen = 0  # bytes written since counting; others write too

    def get(self, key: str) -> bytes | None:
        """The bytes of an entry, or None. An entry that is not what was written is removed."""
        folder = self._open()
        if folder < 0:
            return None
        name = _file_name(key)
        try:
            # Not blocking, should the name be a pipe's.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=folder)
        except OSError:
            return None
        try:
            with open(file, "rb", buffering=0) as stream:
                held = os.fstat(file)
                ours = stat.S_ISREG(held.st_mode) and held.st_size <= self.limit
                data = stream.read(held.st_size) if ours else b""
            code = _unpack(key, data or b"")
            if code is None:
                _log.info("entry %s is damaged and will be made again", name)
                os.unlink(name, dir_fd=folder)
            elif time.time() - held.st_mtime > _STALE:
                os.utime(name, dir_fd=folder)
            return code
        except OSError:
            return None

    def remove(self, key: str) -> None:
        """Forget an entry, for whoever finds that its bytes are not usable."""
        folder = self._open()
        if folder >= 0:
            with suppress(OSError):
                os.unlink(_file_name(key), dir_fd=folder)

    def put(self, key: str, code: bytes) -> bool:
        """Keep an entry; true if it was written."""
        data = _pack(key, code)
        if len(data) > self.limit:
            return False
        for _ in range(2):  # again when the folder was deleted under us
            folder = self._open()
            if folder < 0:
                return False
            try:
                self._write(folder, _file_name(key), data)
            except FileNotFoundError:
                # Left open: another thread may be using the descriptor, whose number must not come
                # to mean another folder.
                self._folder = -1
                continue
            except OSError as error:
                self._warn("cannot write to", error)
                return False
            self._account(folder, len(data))
            return True
        return False

    @staticmethod
    def _write(folder: int, name: str, data: bytes) -> None:
        temporary = f".{os.getpid()}-{threading.get_ident()}-{os.urandom(4).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            with open(file, "wb", buffering=0) as stream:
                rest = memoryview(data)
                while rest:
                    rest = rest[stream.write(rest) :]
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise

    def _account(self, folder: int, written: int) -> None:
        """Count the folder now and then, and evict when it is too large.

        Without a lock: two threads may both count, and a sum may miss an entry until the next.
        """
        self._unseen += written
        counted = self._size >= 0 and self._unseen < self.limit // 16
        if counted and self._size + self._unseen <= self.limit:
            return
        self._unseen = 0
        try:
            self._size = self._evict(folder)
        except OSError as error:
            self._warn("cannot tidy", error)

    def _evict(self, folder: int) -> int:
        """Remove the least recently used down to three quarters of the limit, if there are more
        bytes than the limit; returns the bytes that remain.
        """
        entries = _entries(folder)
        total = sum(size for _, size, _ in entries)
        goal = self.limit * 3 // 4 if total > self.limit else total
        for _, size, name in sorted(entries):
            if total <= goal:
                break
            with suppress(FileNotFoundError):  # another process evicts too
                os.unlink(name, dir_fd=folder)
            total -= size
        return total

    def _open(self) -> int:
        """The folder's descriptor, made on first use; -1 when there is no disk cache."""
        if self._folder >= 0 or self._failed:
            return self._folder
        path = self.base / _FORMAT
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            held = os.fstat(folder)
            if held.st_uid != os.geteuid() or held.st_mode & 0o077:
                os.close(folder)
                raise PermissionError("it must be yours and open to nobody else (mode 0700)")
            self._folder = folder
        except OSError as error:
            self._failed = True
            self._warn("cannot use", error)
        return self._folder

    def _warn(self, what: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s the cache folder %s: %s. Compiled kernels are not kept for the next process; "
                "set TRACER_CACHE_DIR to a folder of yours that can be written, or "
                "TRACER_CACHE_SIZE=0 for no cache on disk.",
                what,
                self.base / _FORMAT,
                error,
            )


def _entries(folder: int) -> list[tuple[float, int, str]]:
    """(last use, bytes, name) of every entry; removes what killed writers left."""
    entries: list[tuple[float, int, str]] = []
    now = time.time()
    with os.scandir(folder) as found:
        for entry in found:
            with suppress(OSError):  # gone meanwhile
                held = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_SUFFIX):
                    entries.append((held.st_mtime, held.st_size, entry.name))
                elif entry.name.endswith(".tmp") and now - held.st_mtime > _STALE:
                    os.unlink(entry.name, dir_fd=folder)
    return entries


def _file_name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40] + _SUFFIX


def _pack(key: str, code: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(code), _checksum(key, code)) + code


def _unpack(key: str, data: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, length, checksum = _HEADER.unpack_from(data)
    code = data[_HEADER.size :]
    good = magic == _MAGIC and length == len(code) and checksum == _checksum(key, code)
    return code if good else None


def _checksum(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + code).digest()


def default_folder() -> Path:
    """Where entries lie unless told otherwise; see the module's text."""
    if given := os.environ.get("TRACER_CACHE_DIR"):
        return Path(given).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "tracer-jit"
    return Path("~/.cache/tracer-jit").expanduser()


def default_limit() -> int:
    """TRACER_CACHE_SIZE in bytes."""
    return settings.size("TRACER_CACHE_SIZE", _DEFAULT_SIZE)
