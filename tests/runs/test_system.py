"""What a run takes of its machine: measured on real processes, stored, and shown over time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from trainer.rundir import RunDirectory
from webapp.runs.estimate import directory_bytes
from webapp.runs.models import Run, SystemSample
from webapp.runs.supervision.lease import Claim
from webapp.runs.supervision.proctree import Process, identify
from webapp.runs.supervision.sampling import Sampler, memory_bytes
from webapp.runs.system import read_samples, system_charts

pytestmark = pytest.mark.django_db

BUSY = "while True: pass"
LARGE = "block = bytearray(64 << 20); block[::4096] = b'x' * len(block[::4096]); print('ready', flush=True); import time; time.sleep(60)"


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """``start(program)``: a Python process in a session of its own, gone afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def run(program: str, *, waits: bool = False) -> Process:
        process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True, stdout=subprocess.PIPE)
        started.append(process)
        if waits:
            assert process.stdout is not None
            process.stdout.readline()
        found = identify(process.pid)
        assert found is not None
        return found

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def sampler(run: Run) -> Sampler:
    directory = RunDirectory(Path(run.directory))
    directory.root.mkdir()
    return Sampler(Claim(run.pk, uuid.uuid4(), 1, directory))


def test_a_busy_process_uses_processor_and_the_first_sample_cannot_say(
    start: Callable[..., Process], sampler: Sampler
) -> None:
    busy = start(BUSY)
    assert sampler.take(busy).cpu_cores is None
    time.sleep(1.0)
    sample = sampler.take(busy)
    # One endless loop: at most one core (and a clock tick), and something even where others work.
    assert sample.cpu_cores is not None
    assert 0.02 < sample.cpu_cores < 1.1
    assert sample.processes == 1
    time.sleep(0.2)
    idle = start("import time; time.sleep(60)", waits=False)
    assert sampler.take(idle).cpu_cores is None  # less time than before: another process, so nothing is known


def test_memory_is_that_of_the_process(start: Callable[..., Process]) -> None:
    taken = memory_bytes({start(LARGE, waits=True)})
    assert taken is not None
    assert 64 << 20 <= taken < 256 << 20
    assert memory_bytes(set()) is None


def test_the_run_directory_is_measured_and_links_out_of_it_are_not_followed(
    start: Callable[..., Process], sampler: Sampler, run: Run, tmp_path: Path
) -> None:
    root = Path(run.directory)
    (root / "checkpoints").mkdir()
    (root / "checkpoints" / "weights").write_bytes(b"x" * 5000)
    (tmp_path / "elsewhere").write_bytes(b"y" * 100_000)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    link_bytes = os.lstat(root / "link").st_size
    sample = sampler.take(start("import time; time.sleep(60)"))
    assert sample.disk_bytes == directory_bytes(root) == 5000 + link_bytes
    assert sample.disk_free_bytes is not None
    assert sample.disk_free_bytes > 0
    assert directory_bytes(tmp_path / "nothing") is None


def sample(run: Run, second: float, attempt: int = 1, **fields: Any) -> None:
    at = timezone.now().replace(microsecond=0) + timedelta(seconds=second)
    SystemSample.objects.create(run=run, attempt=attempt, at=at, processes=3, **fields)


def test_samples_become_series_over_time_with_a_gap_between_attempts(run: Run) -> None:
    sample(run, 0, memory_bytes=2 * 2**30)
    sample(run, 15, memory_bytes=3 * 2**30, cpu_cores=1.5)
    sample(run, 400, attempt=2, memory_bytes=2**30)
    series = read_samples(run=run, names=["system/memory_gib", "system/cpu_cores", "no/such"], max_points=100)
    assert set(series) == {"system/memory_gib", "system/cpu_cores"}
    memory = series["system/memory_gib"]
    assert memory["y"] == [2.0, 3.0, None, 1.0]
    assert memory["t"] == [0.0, 15.0, pytest.approx(400, abs=1.1), pytest.approx(400, abs=1.1)]
    assert series["system/cpu_cores"]["y"] == [None, 1.5, None, None]


def test_gpus_are_drawn_only_where_one_was_measured(run: Run) -> None:
    sample(run, 0)
    assert "system/gpu_busy_percent" not in {chart.key for chart in system_charts(run=run)}
    sample(run, 15, gpu_used_bytes=2**33, gpu_busy_percent=80)
    assert {"system/gpu_busy_percent", "system/gpu_memory_gib"} <= {chart.key for chart in system_charts(run=run)}
