"""What a run took of its machine, as series for charts."""

from __future__ import annotations

from typing import Any

from django.db.models import FloatField
from django.db.models.functions import Cast, Extract

from webapp.runs.chartlist import Chart, ChartSeries
from webapp.runs.models import Run, SystemSample
from webapp.runs.series import Point, thin

_GIB = 2**30
#: Chart line -> column of the sample and what a unit of it is.
COLUMNS: dict[str, tuple[str, float]] = {
    "system/cpu_cores": ("cpu_cores", 1),
    "system/memory_gib": ("memory_bytes", _GIB),
    "system/processes": ("processes", 1),
    "system/disk_gib": ("disk_bytes", _GIB),
    "system/disk_free_gib": ("disk_free_bytes", _GIB),
    "system/gpu_busy_percent": ("gpu_busy_percent", 1),
    "system/gpu_memory_gib": ("gpu_used_bytes", _GIB),
}
_GPU_LINES = ("system/gpu_busy_percent", "system/gpu_memory_gib")
_PANELS = (
    (
        "system/cpu_cores",
        "Processor",
        "cores",
        "--run-5",
        "used by the trainer and all it started, since the sample before",
    ),
    (
        "system/memory_gib",
        "Memory",
        "GiB",
        "--run-1",
        "of the trainer and all it started; what they share is counted once",
    ),
    ("system/disk_gib", "Run directory", "GiB", "--run-0", "everything the run has written, checkpoints included"),
    ("system/disk_free_gib", "Free on disk", "GiB", "--run-8", "on the disk of the run's directory"),
    ("system/processes", "Processes", "", "--run-4", "trainer, sandbox workers and what they started"),
    ("system/gpu_busy_percent", "GPU", "% busy", "--run-7", "mean over the machine's GPUs, whoever keeps them busy"),
    ("system/gpu_memory_gib", "GPU memory", "GiB", "--run-2", "used on the machine's GPUs, by whomever"),
)


def system_charts(*, run: Run) -> list[Chart]:
    """The panels; those of GPUs only where a GPU was measured."""
    has_gpu = SystemSample.objects.filter(run=run, gpu_used_bytes__isnull=False).exists()
    return [
        Chart(key=name, title=title, unit=unit, low=0, meaning=meaning,
              series=(ChartSeries(name=name, label=title.lower(), color=color, quiet=True),))
        for name, title, unit, color, meaning in _PANELS
        if has_gpu or name not in _GPU_LINES
    ]  # fmt: skip


def read_samples(*, run: Run, names: list[str], max_points: int) -> dict[str, Any]:
    """Series of the named lines by sample: ``x`` its number, ``t`` its second since the first, as ``series.Series.as_json`` gives them.

    Between two attempts there is a gap.
    """
    columns = [COLUMNS[name] for name in names if name in COLUMNS]
    if not columns:
        return {}
    rows = (
        SystemSample.objects.filter(run=run)
        .order_by("at", "id")
        .annotate(
            second=Cast(Extract("at", "epoch"), FloatField())
        )  # a long run has tens of thousands: floats are read quickly
        .values_list("second", "attempt", *(column for column, _ in columns))
    )
    seconds: dict[int, float] = {}
    points: list[list[Point]] = [[] for _ in columns]
    start = before = None
    number = 0
    for at, attempt, *values in rows:
        start = at if start is None else start
        if before is not None and attempt != before:
            seconds[number] = at - start - 0.001
            for line in points:
                line.append((number, None))
            number += 1
        before = attempt
        seconds[number] = at - start
        for line, value, (_, unit) in zip(points, values, columns, strict=True):
            line.append((number, None if value is None else value / unit))
        number += 1
    known = [name for name in names if name in COLUMNS]
    return {name: _as_json(line, seconds, max_points) for name, line in zip(known, points, strict=True)}


def _as_json(line: list[Point], seconds: dict[int, float], max_points: int) -> dict[str, Any]:
    shown = thin(line, max_points)
    return {
        "x": [x for x, _ in shown], "y": [y for _, y in shown], "t": [seconds[x] for x, _ in shown], "total": len(line),
        "missing": sum(y is None for _, y in line), "not_positive": sum(y is not None and y <= 0 for _, y in line),
        "marks": [], "not_finite": {}, "ghosts": [],
    }  # fmt: skip
