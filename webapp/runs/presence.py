"""Which workers are there: each writes a note about itself into Valkey every few seconds, which expires when it is gone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from django.conf import settings
from redis import Redis
from redis.exceptions import RedisError

from webapp.runs.supervision.lease import gpu_set_name, host_name

EXPIRES_S = 35
_PREFIX = "spadework:worker:"
_TIMEOUT_S = 2.0
_QUERY = "index,name,utilization.gpu,memory.used,memory.total"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as its driver describes it; None for what it does not say."""

    index: str
    name: str
    busy_percent: float | None
    used_mib: float | None
    total_mib: float | None


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker's note. ``load`` is the machine's load average over a minute, ``at`` Unix seconds."""

    name: str
    host: str
    gpu_set: str
    queues: list[str]
    pid: int
    cores: int
    load: float
    memory_bytes: int
    gpus: list[Gpu] = field(default_factory=list)
    at: float

    @property
    def takes_runs(self) -> bool:
        """True when it starts trainers."""
        return "gpu" in self.queues


def announce(*, name: str, queues: Sequence[str]) -> None:
    """Write the note of this process. Raises RedisError."""
    worker = Worker(
        name=name, host=host_name(), gpu_set=gpu_set_name(), queues=sorted(queues), pid=os.getpid(), cores=os.cpu_count() or 1,
        load=os.getloadavg()[0], memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), gpus=read_gpus(), at=time.time(),
    )  # fmt: skip
    with _client() as client:
        client.set(_PREFIX + name, json.dumps(asdict(worker)), ex=EXPIRES_S)


def withdraw(*, name: str) -> None:
    """Take the note back: the worker ends. Raises RedisError."""
    with _client() as client:
        client.delete(_PREFIX + name)


def workers() -> list[Worker] | None:
    """Everybody who is there, by name; None when Valkey cannot be asked."""
    try:
        with _client() as client:
            keys = sorted(client.scan_iter(match=f"{_PREFIX}*", count=500))
            notes = client.mget(keys) if keys else []
    except (RedisError, OSError):
        return None
    found = [json.loads(note) for note in notes if note is not None]
    return [Worker(**{**values, "gpus": [Gpu(**gpu) for gpu in values["gpus"]]}) for values in found]


def _client() -> Redis:
    return Redis.from_url(settings.SPADEWORK_REDIS_URL, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)


def read_gpus() -> list[Gpu]:
    """The machine's GPUs and how busy they are; empty without a driver that answers within a few seconds."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(answer.stdout) if answer.returncode == 0 else []


def parse_gpus(text: str) -> list[Gpu]:
    """GPUs from the driver's table, one a line: index, name, percent, MiB used, MiB in all."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 5:
            continue
        busy, used, total = (_number(cell) for cell in cells[-3:])
        name = ", ".join(cells[1:-3])
        found.append(Gpu(index=cells[0], name=name, busy_percent=busy, used_mib=used, total_mib=total))
    return found


def _number(cell: str) -> float | None:
    return float(cell) if re.fullmatch(r"\d+(\.\d+)?", cell) else None
