"""A bound on the address space of this process, and how its errors are told from others."""

from __future__ import annotations

import resource
from pathlib import Path


def limit_memory(limit_bytes: int) -> None:
    """Bound the address space of this process; beyond it Python raises MemoryError and libraries end the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is one of the ways in which memory runs out: Python's, torch's on the CPU, torch's on a GPU."""
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "allocate memory" in str(error)


def ran_short(error: BaseException, limit_bytes: int) -> bool:
    """Whether an error comes from a bound on the address space (0: none), which any library may meet anywhere.

    What libraries make of it (a module that cannot be imported, a C function that fails without a reason) counts when nearly all was taken.
    """
    if is_out_of_memory(error):
        return True
    disguised = isinstance(error, (SystemError, ImportError, OSError, RuntimeError))
    return disguised and 0 < 0.9 * limit_bytes < _peak_address_space()


def _peak_address_space() -> int:
    """Bytes of address space this process has had at most; 0 where the kernel does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except (OSError, MemoryError):
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmPeak:")), 0)
