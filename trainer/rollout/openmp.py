"""The wait policy of OpenMP threads. Imports nothing heavy: it has to act before torch is imported."""

from __future__ import annotations

import os
import sys

# libgomp's threads spin at barriers by default; on a machine shared with other work that costs more than the core the others take.
# Passive waiting costs a fifth of the idle speed of two threads and keeps almost twice the speed when a neighbour is busy.
PASSIVE_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


def wait_passively() -> bool:
    """Make OpenMP threads sleep at barriers instead of spinning; call it before torch is imported (or set the variables outside).

    Variables that are set already win. Returns False, changing nothing, when torch is loaded and it is too late.
    """
    if "torch" in sys.modules:
        return False
    for name, value in PASSIVE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return True
