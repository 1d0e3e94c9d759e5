"""Kernels from memory, disk and compiler: shared folders, damage, hostile files, forks, threads."""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import platform
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codegen.toolchain import disk_cache, elf_check, fingerprint, kernel_store, object_code
from codegen.toolchain.disk_cache import ObjectCache
from codegen.toolchain.elf_check import DamagedObjectError
from codegen.toolchain.kernel_store import CompileError, Kernel, kernel
from tests.support.cpus import AVX2, PLAIN, has
from tests.support.runtime_kernels import SOURCES, builder

pytestmark = pytest.mark.skipif(not elf_check.SUPPORTED, reason="nothing is cached on this system")
ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ObjectCache]:
    """An empty folder that `kernel` uses during the test."""
    before = kernel_store.disk_cache()
    made = ObjectCache(tmp_path / "cache", 1 << 24)
    kernel_store.set_disk_cache(made)
    kernel_store.clear_memory()
    yield made
    kernel_store.set_disk_cache(before)


@pytest.fixture(scope="module")
def code() -> bytes:
    """The object file of a kernel that calls a C function."""
    return object_code.compile_kernel(builder(SOURCES["total"])())


def entries(cache: ObjectCache) -> list[Path]:
    return sorted((cache.base / disk_cache._FORMAT).glob("*.o"))


def scale(factor: float) -> str:
    return f"""
def scale(lo, hi, args):
    a, out = pointer(args, 0), pointer(args, 1)
    for i in range(lo, hi):
        out[i] = a[i] * np.float32({factor})
"""


def request(source: str) -> Kernel:
    return kernel(f"cache test/{source}", "kernel", builder(source))


def forgotten(source: str) -> Kernel:
    """The kernel, as a new process would get it."""
    kernel_store.clear_memory()
    return request(source)


def run(made: Kernel, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.zeros_like(a)
    block = np.array([a.ctypes.data, out.ctypes.data], "i8")
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(made.address)
    call(0, a.size, block.ctypes.data)
    return out


# ---- the three ways to a kernel ------------------------------------------------------------------


def test_compiled_then_memory_then_disk(cache: ObjectCache) -> None:
    a = np.arange(1, 100, dtype="f4") / 7
    before = kernel_store.statistics()
    compiled, remembered = request(SOURCES["total"]), request(SOURCES["total"])
    loaded = forgotten(SOURCES["total"])
    after = kernel_store.statistics()
    origins = [made.origin for made in (compiled, remembered, loaded)]
    assert origins == ["compiled", "memory", "disk"]
    assert compiled.address == remembered.address != loaded.address
    assert compiled.seconds > loaded.seconds > remembered.seconds == 0
    assert run(compiled, a).tobytes() == run(loaded, a).tobytes()
    np.testing.assert_allclose(run(loaded, a), np.cumsum(np.sin(a)), rtol=1e-5, atol=1e-5)
    counted = [getattr(after, n) - getattr(before, n) for n in ("compiled", "memory_hits")]
    assert counted == [1, 1]
    assert after.disk_hits - before.disk_hits == 1
    assert "kernels compiled in" in str(after)


def test_names_and_texts_are_the_request_s(cache: ObjectCache) -> None:
    build = builder(scale(2))
    first = kernel("names", "first", build, text="one")
    second = kernel("names", "second", build, text="two")
    assert (first.name, first.text, second.name, second.text) == ("first", "one", "second", "two")
    assert first.address == second.address


def test_two_threads_compile_one_key_once(cache: ObjectCache) -> None:
    built: list[str] = []

    def slow(name: str) -> Callable[[], Callable[..., Any]]:
        def build() -> Callable[..., Any]:
            built.append(name)
            time.sleep(0.05)
            return builder(scale(3))()

        return build

    found: list[Kernel] = []
    tasks = [("a", slow("a")), ("a", slow("a")), ("b", slow("b")), ("a", slow("a"))]
    threads = [
        threading.Thread(target=lambda k=k, b=b: found.append(kernel(f"once/{k}", k, b)))
        for k, b in tasks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(built) == ["a", "b"]
    assert len({made.address for made in found}) == 2
    assert sorted(made.origin for made in found) == ["compiled", "compiled", "memory", "memory"]


def test_a_failed_build_can_be_tried_again(cache: ObjectCache) -> None:
    def fail() -> Callable[..., Any]:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            kernel("tried again", "kernel", fail)
    assert kernel("tried again", "kernel", builder(scale(4))).origin == "compiled"


# ---- what cannot be a kernel ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "    assert lo < hi",
        "    for i in range(lo, hi, word(args, 0)):\n        set_word(args, 1, i)",
    ],
    ids=["assert", "range with a step"],
)
def test_a_kernel_that_can_raise_is_refused(cache: ObjectCache, body: str) -> None:
    with pytest.raises(CompileError, match="it can raise a Python exception"):
        request(f"def raising(lo, hi, args):\n{body}\n")
    assert entries(cache) == []


def test_a_kernel_that_needs_unknown_functions_is_refused(cache: ObjectCache) -> None:
    with pytest.raises(CompileError, match=r"drawing: .* it needs .*, not among the known"):
        request("def drawing(lo, hi, args):\n    set_word(args, 0, np.random.random() > 0.5)\n")


def test_a_kernel_that_refers_to_this_process_is_refused(cache: ObjectCache) -> None:
    big = np.arange(1 << 21)

    def build() -> Callable[..., Any]:
        function = builder("def holding(lo, hi, args):\n    set_word(args, 0, big[lo])\n")()
        function.__globals__["big"] = big
        return function

    with pytest.raises(CompileError, match=r"holding: .*cannot stand alone"):
        kernel("holding", "holding", build)


# ---- damage --------------------------------------------------------------------------------------


def test_no_damaged_entry_is_read(tmp_path: Path) -> None:
    """Every cut and every flipped bit of an entry, the header's included."""
    cache = ObjectCache(tmp_path, 1 << 20)
    data = random.Random(0).randbytes(300)
    assert cache.put("key", data)
    (path,) = entries(cache)
    whole = path.read_bytes()
    damaged = [whole[:cut] for cut in range(len(whole))] + [whole + b"\0"]
    damaged += [flip(whole, i, bit) for i in range(len(whole)) for bit in range(8)]
    for spoilt in damaged:
        path.write_bytes(spoilt)
        assert cache.get("key") is None
        assert not path.exists(), "it would be read again and again"
    path.write_bytes(whole)
    assert cache.get("key") == data
    assert cache.put("other", b"else")
    other = next(found for found in entries(cache) if found != path)
    os.replace(other, path)
    assert cache.get("key") is None, "an entry under another's name was read"


def flip(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "folder", "loop", "pipe"])
def test_a_damaged_kernel_is_compiled_again(cache: ObjectCache, how: str) -> None:
    a = np.arange(8, dtype="f4")
    request(scale(5))
    (path,) = entries(cache)
    whole = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path)
    elif how == "pipe":
        os.mkfifo(path)
    else:
        spoilt = {"cut": whole[:-100], "flipped": flip(whole, len(whole) // 2, 3), "empty": b""}
        path.write_bytes(spoilt[how])
    again = forgotten(scale(5))
    assert again.origin == "compiled"
    assert (run(again, a) == a * 5).all()
    if how != "folder":  # which nobody but its maker should remove
        assert forgotten(scale(5)).origin == "disk"


def test_an_entry_that_is_no_kernel_is_compiled_again(cache: ObjectCache) -> None:
    """Whole entries with the right checksum, as a foreign version could have left them."""
    text = f"""
        declare void @system(i64)
        define i64 @{object_code.ENTRY}(i64 %a, i64 %b, i64 %c) {{
          call void @system(i64 %a)
          ret i64 0
        }}"""
    calling = object_code.assemble(text, {"system"})
    request(scale(6))
    key = f"cache test/{scale(6)}|{fingerprint.of_kernels()}"
    for wrong in (b"", b"\x7fELF", b"no object file at all" * 100, calling):
        cache.put(key, wrong)
        made = forgotten(scale(6))
        assert made.origin == "compiled"
    assert forgotten(scale(6)).origin == "disk"


def test_hostile_object_files_do_not_end_the_process(code: bytes, tmp_path: Path) -> None:
    """What passes the check is loaded by LLVM, which aborts over much: in a process of its own."""
    (tmp_path / "code").write_bytes(code)
    script = """
import pathlib, random
from codegen.toolchain import object_code
from codegen.toolchain.elf_check import DamagedObjectError
code = pathlib.Path("code").read_bytes()
rng = random.Random(0)
loaded = refused = 0
for _ in range(1500):
    changed = bytearray(code)
    for _ in range(rng.choice((1, 1, 2, 3))):
        changed[rng.randrange(len(code))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.1:
        del changed[rng.randrange(len(code)):]
    try:
        object_code.load_function(bytes(changed), object_code.KERNEL_SYMBOLS)
        loaded += 1
    except DamagedObjectError:
        refused += 1
print(loaded, refused)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    loaded, refused = map(int, done.stdout.split())
    assert loaded > 100
    assert refused > 300


def patched(code: bytes, field: str) -> bytes:
    """The object file with one field out of its bounds."""
    sections = elf_check._sections(code)
    (table,) = struct.unpack_from("<Q", code, 40)
    kinds = [section.kind for section in sections]
    symbols, relocations = (sections[kinds.index(kind)] for kind in (2, 4))
    last = symbols.offset + symbols.size - 24  # an exported or needed one
    defined = next(
        symbols.offset + i
        for i in range(0, symbols.size, 24)
        if code[symbols.offset + i + 4] == 0x12  # global, a function
    )
    text = next(i for i, s in enumerate(sections) if s.kind == 1 and s.flags & 4 and s.size)
    place, form, value = {
        "another machine": (18, "<H", 40),
        "an executable": (16, "<H", 2),
        "no sections": (60, "<H", 0),
        "sections outside": (40, "<Q", len(code) - 10),
        "a section outside": (table + 64 * text + 24, "<Q", len(code)),
        "a huge section": (table + 64 * text + 32, "<Q", 1 << 62),
        "an odd alignment": (table + 64 * text + 48, "<Q", 3),
        "a section for each thread": (table + 64 * text + 8, "<Q", 0x406),
        "a name outside": (last, "<I", 1 << 20),
        "a symbol outside": (defined + 8, "<Q", 1 << 40),
        "a symbol that reaches outside": (defined + 16, "<Q", 1 << 20),
        "a symbol in no section": (defined + 6, "<H", 200),
        "a common symbol": (defined + 6, "<H", 0xFFF2),
        "a weak export": (defined + 4, "<B", 0x22),
        "a relocation outside": (relocations.offset, "<Q", 1 << 20),
        "a relocation of no symbol": (relocations.offset + 12, "<I", 100),
        "an unknown relocation": (relocations.offset + 8, "<I", 77),
    }[field]
    changed = bytearray(code)
    struct.pack_into(form, changed, place, value)
    return bytes(changed)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="offsets of x86-64's relocations")
@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("another machine", "not an object for this machine"),
        ("an executable", "not an object for this machine"),
        ("no sections", "odd section table"),
        ("sections outside", "section table outside the file"),
        ("a section outside", "lies outside the file"),
        ("a huge section", "absurd size"),
        ("an odd alignment", "odd alignment"),
        ("a section for each thread", "a section of kind"),
        ("a name outside", "name is outside the table"),
        ("a symbol outside", "reaches outside its section"),
        ("a symbol that reaches outside", "reaches outside its section"),
        ("a symbol in no section", "in a section that does not exist"),
        ("a common symbol", "in a section that does not exist"),
        ("a weak export", "odd symbol"),
        ("a relocation outside", "outside its section"),
        ("a relocation of no symbol", "a symbol that does not exist"),
        ("an unknown relocation", "unknown kind 77"),
    ],
)
def test_fields_out_of_bounds(code: bytes, field: str, message: str) -> None:
    with pytest.raises(DamagedObjectError, match=message):
        object_code.load_function(patched(code, field), object_code.KERNEL_SYMBOLS)


def test_known_symbols_are_found() -> None:
    """A name on the list that this system lacks would refuse kernels that compile elsewhere."""
    missing = []
    for name in sorted(object_code.KERNEL_SYMBOLS):
        try:
            object_code._loader._address_of(name)
        except DamagedObjectError:
            missing.append(name)
    assert set(missing) <= OFTEN_MISSING


# Half precision came with GCC 12 and 13, roundeven with glibc 2.25.
OFTEN_MISSING = {
    *("__extendhfsf2", "__truncsfhf2", "__truncdfhf2", "__truncsfbf2", "__truncdfbf2"),
    *("roundeven", "roundevenf"),
}


def test_every_cut_of_an_object_file_is_refused(code: bytes) -> None:
    for length in range(len(code)):
        with pytest.raises(DamagedObjectError):
            elf_check.undefined_symbols(
                code[:length], object_code.ENTRY, object_code.KERNEL_SYMBOLS
            )


def test_the_list_of_known_symbols(code: bytes) -> None:
    check = elf_check.undefined_symbols
    assert check(code, object_code.ENTRY, {"sinf"}) == ["sinf"]
    with pytest.raises(DamagedObjectError, match="it needs sinf, not among the known symbols"):
        check(code, object_code.ENTRY, {"cosf"})
    with pytest.raises(DamagedObjectError, match="it exports"):
        check(code, "another_name", {"sinf"})
    with pytest.raises(DamagedObjectError, match="which no library of this process has"):
        object_code.load_function(code.replace(b"\0sinf\0", b"\0sinx\0"), {"sinx"})


# ---- many processes ------------------------------------------------------------------------------

FILL = """
import sys
import numpy as np
from codegen.toolchain import kernel_store as kernels
from tests.codegen.test_object_cache import request, run, scale
order = np.random.default_rng(int(sys.argv[1])).permutation(6)
a = np.arange(8, dtype="f4")
for i in order:
    assert (run(request(scale(float(i))), a) == a * np.float32(i)).all()
print(kernels.statistics().compiled, "numba" in sys.modules)
"""


def test_four_processes_fill_one_cache(tmp_path: Path, run_python: Callable[..., Any]) -> None:
    variables = {
        **os.environ,
        "TRACER_CACHE_DIR": str(tmp_path / "shared"),
        "PYTHONPATH": ROOT,
    }
    commands = [[sys.executable, "-c", FILL, str(i)] for i in range(4)]
    running = [subprocess.Popen(c, env=variables, stdout=subprocess.PIPE) for c in commands]
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0
    shared = ObjectCache(tmp_path / "shared", 1 << 20)
    assert len(entries(shared)) == 6
    assert not list((shared.base / disk_cache._FORMAT).glob(".*"))
    done = run_python(FILL, "5", environment={"TRACER_CACHE_DIR": str(shared.base)})
    assert done.stdout == "0 False\n", "a second process compiled, or imported Numba"


def test_forked_processes_do_not_mix_their_kernels(cache: ObjectCache) -> None:
    """Numba numbers its symbols, and forked children count on from the same number."""
    request(scale(10))
    kernel_store.clear_memory()
    for factor in (11, 12):
        child = os.fork()
        if child == 0:
            made = request(scale(factor))
            os._exit(0 if made.origin == "compiled" else 1)
        assert os.waitpid(child, 0)[1] == 0
    a = np.arange(8, dtype="f4")
    for factor in (10, 11, 12):
        made = request(scale(factor))
        assert made.origin == "disk"
        assert (run(made, a) == a * factor).all()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forks_while_another_thread_compiles(cache: ObjectCache) -> None:
    going, failed = True, []

    def compile_on() -> None:
        i = 0
        while going:
            i += 1
            try:
                kernel(f"compiling {i}", "kernel", builder(scale(i)))
            except BaseException as error:  # for the test to report
                failed.append(error)

    thread = threading.Thread(target=compile_on)
    thread.start()
    try:
        for i in range(5):
            child = os.fork()
            if child == 0:
                a = np.arange(8, dtype="f4")
                good = (run(kernel(f"child {i}", "kernel", builder(scale(i))), a) == a * i).all()
                os._exit(0 if good else 1)
            deadline = time.time() + 30
            while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.time() < deadline:
                time.sleep(0.002)
            if done[0] == 0:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            assert done == (child, 0)
    finally:
        going = False
        thread.join()
    assert failed == []


@pytest.mark.parametrize("moment", ["write", "replace"])
def test_a_kill_in_the_midst_of_writing(tmp_path: Path, moment: str) -> None:
    """The entry is not there, later writers are not disturbed, and the rest is tidied up."""
    cache = ObjectCache(tmp_path, 1 << 20)
    assert cache.put("first", b"1" * 1000)
    child = os.fork()
    if child == 0:
        real = os.write

        def die(*_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        if moment == "replace":
            os.replace = die  # type: ignore[assignment]
        else:  # half of the bytes, then the end

            class Half:
                def __init__(self, file: int, *_: object, **__: object) -> None:
                    self.file = file

                def __enter__(self) -> Half:
                    return self

                def __exit__(self, *_: object) -> None: ...

                def write(self, data: memoryview) -> None:
                    real(self.file, data[: len(data) // 2])
                    die()

            disk_cache.open = Half  # type: ignore[attr-defined]
        cache.put("second", b"2" * 1000)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    folder = tmp_path / disk_cache._FORMAT
    (left,) = folder.glob(".*.tmp")
    assert left.stat().st_size > 0
    assert cache.get("second") is None
    assert cache.put("second", b"2" * 1000)
    assert cache.get("second") == b"2" * 1000
    ObjectCache(tmp_path, 1 << 20).put("tidying", b"")
    assert left.exists(), "it could be a slow writer's"
    old = time.time() - 2 * disk_cache._STALE
    os.utime(left, (old, old))
    fresh = ObjectCache(tmp_path, 1 << 20)
    fresh.put("third", b"3")
    assert not left.exists()
    assert [fresh.get(key) for key in ("first", "third")] == [b"1" * 1000, b"3"]


# ---- folders -------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Below a file, for root may write anywhere."""
    (tmp_path / "file").write_text("")
    before = kernel_store.disk_cache()
    kernel_store.set_disk_cache(ObjectCache(tmp_path / "file" / "cache", 1 << 20))
    try:
        a = np.arange(8, dtype="f4")
        for factor in (20, 21):
            made = forgotten(scale(factor))
            assert made.origin == "compiled"
            assert (run(made, a) == a * factor).all()
    finally:
        kernel_store.set_disk_cache(before)
    (warning,) = warnings_of(caplog)
    assert "cannot use the cache folder" in warning
    assert "set TRACER_CACHE_DIR" in warning


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
) -> None:
    cache = ObjectCache(tmp_path, 1 << 20)
    cache.put("before", b"bytes")

    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(disk_cache.os, "replace", fail)
        assert not cache.put("key", b"bytes")
        assert not cache.put("key", b"bytes")
    assert cache.get("key") is None
    assert cache.get("before") == b"bytes"
    assert not list((tmp_path / disk_cache._FORMAT).glob(".*"))
    (warning,) = warnings_of(caplog)
    assert os.strerror(error) in warning


def test_others_folders_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / disk_cache._FORMAT
    ObjectCache(tmp_path, 1 << 20).put("key", b"bytes")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert entries(ObjectCache(tmp_path, 0))[0].stat().st_mode & 0o777 == 0o600
    folder.chmod(0o777)
    assert ObjectCache(tmp_path, 1 << 20).get("key") is None
    folder.chmod(0o700)
    assert ObjectCache(tmp_path, 1 << 20).get("key") == b"bytes"
    mine = os.geteuid()
    monkeypatch.setattr(disk_cache.os, "geteuid", lambda: mine + 1)
    assert ObjectCache(tmp_path, 1 << 20).get("key") is None
    first, second = warnings_of(caplog)
    assert "open to nobody else" in first
    assert "must be yours" in second


def test_a_folder_deleted_in_the_midst(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", 1 << 20)
    assert cache.put("one", b"1")
    for path in entries(cache):
        path.unlink()
    (cache.base / disk_cache._FORMAT).rmdir()
    assert cache.get("one") is None
    assert cache.put("two", b"2")
    assert cache.get("two") == b"2"


def test_the_least_recently_used_leave_first(tmp_path: Path) -> None:
    limit = 64 << 10
    cache = ObjectCache(tmp_path, limit)
    for i in range(40):
        cache.put(f"key {i}", bytes(1000))
    now = time.time()
    for i in range(40):  # the older, the higher the number
        path = tmp_path / disk_cache._FORMAT / disk_cache._file_name(f"key {i}")
        os.utime(path, (now - 7200 - i, now - 7200 - i))
    assert cache.get("key 39") is not None  # used just now
    for i in range(40, 66):
        cache.put(f"key {i}", bytes(1000))
    kept = {i for i in range(66) if cache.get(f"key {i}") is not None}
    assert sum(path.stat().st_size for path in entries(cache)) <= limit
    assert 39 in kept
    assert kept >= set(range(40, 66))
    oldest = [i for i in range(39) if i in kept]
    assert oldest == list(range(len(oldest)))  # the youngest of the old ones
    assert 0 < len(oldest) < 38
    assert not cache.put("too large", bytes(limit))


def test_the_limit_holds_for_many_writers(tmp_path: Path) -> None:
    limit = 100 << 10
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            cache = ObjectCache(tmp_path, limit)
            for i in range(100):
                cache.put(f"{number} {i}", bytes(2000))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    total = sum(path.stat().st_size for path in entries(ObjectCache(tmp_path, limit)))
    assert limit // 4 < total <= limit * 5 // 4  # each counts once for a sixteenth of the limit


def test_places_and_sizes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    for name in ("TRACER_CACHE_DIR", "XDG_CACHE_HOME", "TRACER_CACHE_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert disk_cache.default_folder() == Path("/home/someone/.cache/tracer-jit")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert disk_cache.default_folder() == Path("/caches/tracer-jit")
    monkeypatch.setenv("TRACER_CACHE_DIR", "~/mine")
    assert disk_cache.default_folder() == Path("/home/someone/mine")
    assert disk_cache.default_limit() == 512 << 20
    for text, size in (("1000", 1000), ("2M", 2 << 20), ("1 GiB", 1 << 30), ("0", 0)):
        monkeypatch.setenv("TRACER_CACHE_SIZE", text)
        assert disk_cache.default_limit() == size
    monkeypatch.setenv("TRACER_CACHE_SIZE", "much")
    assert disk_cache.default_limit() == 512 << 20
    assert "TRACER_CACHE_SIZE='much' is not a size such as 512M" in warnings_of(caplog)[0]
    assert not ObjectCache(tmp_path / "none", 0).put("key", b"bytes")
    assert not (tmp_path / "none").exists()


# ---- what a key stands for -----------------------------------------------------------------------


def test_other_cpu_features_are_other_kernels(
    tmp_path: Path, run_python: Callable[..., Any]
) -> None:
    code = """
import numpy as np
from tests.codegen.test_object_cache import request, run, scale
made = request(scale(1.5))
print(made.origin, run(made, np.arange(100, dtype="f4")).tobytes().hex())
"""
    here = {"TRACER_CACHE_DIR": str(tmp_path / "cache")}
    if not has("avx2"):
        pytest.skip("this CPU has no AVX2")
    plain, avx2 = (
        {**here, **PLAIN},
        {**here, **AVX2},
    )  # both said: this run may be as on a lesser CPU
    runs = [run_python(code, environment=e) for e in (plain, avx2, avx2, plain)]
    origins, results = zip(*(done.stdout.split() for done in runs), strict=True)
    assert origins == ("compiled", "compiled", "disk", "disk")
    assert len(set(results)) == 1


def test_other_sources_and_versions_are_other_kernels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def now() -> str:
        fingerprint.of_kernels.cache_clear()
        return fingerprint.of_kernels()

    seen = [now()]
    assert now() == seen[0]
    monkeypatch.setattr(fingerprint, "numba_version", lambda: "another")
    seen.append(now())
    monkeypatch.undo()
    monkeypatch.setattr(fingerprint, "_CODEGEN", tmp_path)
    for folder in ("cpu", "cuda", "runtime"):
        (tmp_path / folder).mkdir()
    for text in ("x = 1\n", "x = 2\n"):
        (tmp_path / "cpu" / "printer.py").write_text(text)
        seen.append(now())
    assert len(set(seen)) == 4
    for other in ("cuda/compile.py", "runtime/pool.py"):  # which have no part in it
        (tmp_path / other).write_text("x = 3\n")
        assert now() == seen[-1]
    monkeypatch.undo()
    assert now() == seen[0]
