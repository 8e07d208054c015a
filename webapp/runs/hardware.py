"""Which GPUs this machine has, without importing torch."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

_DEVICE = re.compile(r"nvidia[0-9]+")
_TIMEOUT_S = 10


@lru_cache(maxsize=1)
def gpus() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs of this machine; empty when it has none. Looked up once per process."""
    program = shutil.which("nvidia-smi")
    if program is not None:
        try:
            answer = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            answer = None
        if answer is not None and answer.returncode == 0:
            found = re.findall(r"^GPU [0-9]+: (.+?)(?: \(UUID: .*\))?$", answer.stdout, re.MULTILINE)
            if found:
                return tuple(found)
    return tuple(sorted(path.name for path in Path("/dev").iterdir() if _DEVICE.fullmatch(path.name)))
