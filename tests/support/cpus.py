"""Other CPUs than this one, as settings in the environment of a process: of Numba, which kernels are
compiled with, and of the libraries that references and eager operators go through.

    python tests/support/cpus.py x86-64 COMMAND ...    runs a command as on a CPU with nothing beyond x86-64
    python tests/support/cpus.py avx2 COMMAND ...      the same with AVX2 and FMA, and without AVX-512

NumPy chooses its loops, OpenBLAS its products and glibc its functions of numbers by what the CPU has,
and their results differ in the last places. On a machine that is not such a CPU's better (another
architecture, another system) nothing is run, and it says so.
"""

from __future__ import annotations

import os
import platform
import sys

AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,"
    "+sse4.2,+sse4.1,+ssse3,+sse3,+cx16,+movbe",
}
PLAIN = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse,+sse2"}

# What Numba has no part in: the name of the CPU that OpenBLAS takes this one for, and what glibc leaves unused.
_LIBRARIES = {
    "avx2": ("Haswell", "-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD"),
    "x86-64": ("Prescott", "-AVX512F,-AVX2,-AVX,-FMA,-FMA4"),
}


def has(feature: str) -> bool:
    """Whether this CPU has a feature."""
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get(feature))


def environment(cpu: str) -> dict[str, str]:
    """The settings with which a process runs as on "avx2" or "x86-64"."""
    blas, functions = _LIBRARIES[cpu]
    return {
        **(AVX2 if cpu == "avx2" else PLAIN),
        "NPY_DISABLE_CPU_FEATURES": " ".join(_numpy_features(cpu)),
        "OPENBLAS_CORETYPE": blas,
        "GLIBC_TUNABLES": f"glibc.cpu.hwcaps={functions}",
    }


def _numpy_features(cpu: str) -> list[str]:
    """What NumPy is to leave unused. It warns of names that it was not built for, or that the CPU has not."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    found = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
    return [name for name in found if cpu == "x86-64" or "AVX512" in name or name == "X86_V4"]


def is_at_least(cpu: str) -> bool:
    """Whether this machine can run what is made for such a CPU, and be told to do so."""
    if platform.system() != "Linux" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    return cpu == "x86-64" or (has("avx2") and has("fma"))


def main(cpu: str = "", *command: str) -> int:
    """Run a command as on such a CPU, in the place of this process; 0 where that cannot be."""
    if cpu not in _LIBRARIES or not command:
        raise SystemExit(f"expected {' or '.join(_LIBRARIES)}, and a command; got {cpu}")
    if not is_at_least(cpu):
        print(f"{cpu}: nothing to do on this {platform.system()} {platform.machine()}")
        return 0
    print(f"as on a CPU with {cpu} only:", flush=True)
    os.execvpe(command[0], command, {**os.environ, **environment(cpu)})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
