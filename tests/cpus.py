"""Other CPUs than this one, as Numba's settings in the environment of a process."""

AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,"
    "+sse4.2,+sse4.1,+ssse3,+sse3,+cx16,+movbe",
}


def has(feature: str) -> bool:
    """Whether this CPU has a feature."""
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get(feature))
