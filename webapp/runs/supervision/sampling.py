"""What a trainer and all it started take of the machine: read from /proc, the disk and the GPU driver, now and then."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from django.utils import timezone

from webapp.runs.estimate import directory_bytes
from webapp.runs.models import SystemSample
from webapp.runs.presence import read_gpus
from webapp.runs.supervision.lease import Claim
from webapp.runs.supervision.proctree import Process, family

_PROC = Path("/proc")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
#: The directory is walked at most this often, and less often when that takes long: it may hold many files.
_DISK_EVERY_S = 60.0
_DISK_SHARE = 0.01


class Sampler:
    """Takes samples of one attempt; processor time is the difference to the sample before."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._cpu: tuple[float, float] | None = None  # seconds of processor, at which moment
        self._disk_bytes: int | None = None
        self._disk_due = 0.0

    def take(self, leader: Process) -> SystemSample:
        """Measure now and store it. Raises DatabaseError."""
        members = family(leader)
        gpus = read_gpus()
        busy = [gpu.busy_percent for gpu in gpus if gpu.busy_percent is not None]
        used = [gpu.used_mib for gpu in gpus if gpu.used_mib is not None]
        return SystemSample.objects.create(
            run_id=self._claim.run_id, attempt=self._claim.attempt, at=timezone.now(), cpu_cores=self._cores(members),
            memory_bytes=memory_bytes(members), processes=len(members), disk_bytes=self._disk(), disk_free_bytes=self._free(),
            gpu_busy_percent=sum(busy) / len(busy) if busy else None, gpu_used_bytes=round(sum(used) * 2**20) if used else None,
        )  # fmt: skip

    def _cores(self, members: set[Process]) -> float | None:
        now, seconds = time.monotonic(), cpu_seconds(members)
        before, self._cpu = self._cpu, (seconds, now)
        if before is None or seconds < before[0]:  # the first sample, or a process took its time with it to the grave
            return None
        return (seconds - before[0]) / max(now - before[1], 1e-3)

    def _disk(self) -> int | None:
        now = time.monotonic()
        if now >= self._disk_due:
            self._disk_bytes = directory_bytes(self._claim.directory.root)
            took = time.monotonic() - now
            self._disk_due = now + max(_DISK_EVERY_S, took / _DISK_SHARE)
        return self._disk_bytes

    def _free(self) -> int | None:
        try:
            return shutil.disk_usage(self._claim.directory.root).free
        except OSError:
            return None


def cpu_seconds(members: set[Process]) -> float:
    """Processor time the living members have taken, with that of their children that ended and were waited for."""
    ticks = 0
    for process in members:
        try:
            text = (_PROC / str(process.pid) / "stat").read_text(errors="replace")
        except OSError:
            continue  # it ended between the two looks
        fields = text.rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ticks / _TICKS_A_SECOND


def memory_bytes(members: set[Process]) -> int | None:
    """Memory of the members; what several share is divided among them. None when the kernel does not say, or all have ended."""
    total = 0
    for process in members:
        try:
            lines = (_PROC / str(process.pid) / "smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            return None
        sizes = [line.split()[1] for line in lines if line.startswith("Pss:")]
        total += 1024 * int(sizes[0]) if sizes else 0
    return total or None
