"""Several runs beside each other: their colours, charts with one line a run, key figures, and where their settings differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Q
from django.http import Http404

from webapp.runs.chartlist import OVERVIEW_CHARTS, Chart, ChartGroup, ChartSeries, charts_of, matching
from webapp.runs.forms import sections, setting_text, setting_value
from webapp.runs.models import Run
from webapp.runs.overview import Figure, figures_of
from webapp.runs.series import metric_names

MAX_RUNS = 20
COLORS = 10


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A run with the colour its lines have on the page; ``dash``: the second run of that colour."""

    run: Run
    color: int
    dash: bool

    @property
    def token(self) -> str:
        """The design token of the colour."""
        return f"--run-{self.color}"

    @property
    def every(self) -> int:
        """Rollouts between two regenerations."""
        value = setting_value(self.run.config, "schedule.regenerate_every")
        return value if isinstance(value, int) and value > 0 else 1


def compared_runs(*, run_ids: Sequence[int]) -> list[Compared]:
    """The runs in the order asked for, each once. Raises Http404 for one that does not exist."""
    wanted = list(dict.fromkeys(run_ids))[:MAX_RUNS]
    found = {run.pk: run for run in Run.objects.select_related("owner").filter(pk__in=wanted)}
    missing = [run_id for run_id in wanted if run_id not in found]
    if missing:
        raise Http404(f"There is no run {missing[0]}.")
    colors = colors_of(wanted)
    return [
        Compared(run=found[run_id], color=colors[run_id] % COLORS, dash=colors[run_id] >= COLORS) for run_id in wanted
    ]


def colors_of(run_ids: Sequence[int]) -> dict[int, int]:
    """A colour for each run: its own (as in the list) unless an older run of the set has it; then the next that is free.

    Does not depend on the order asked for. From COLORS on, the colours come again, dashed.
    """
    taken: dict[int, int] = {}
    for run_id in sorted(run_ids):
        used = set(taken.values())
        tries = [*((run_id + step) % COLORS for step in range(COLORS))]
        taken[run_id] = next(
            (color for color in (*tries, *(color + COLORS for color in tries)) if color not in used), 0
        )
    return taken


def charts_for(*, compared: Sequence[Compared], text: str = "") -> list[ChartGroup]:
    """What runs are judged by first, then every metric with ``text`` in its name that any of them reported; a line a run in each."""
    names = sorted({name for one in compared for name in metric_names(run=one.run)})
    found = charts_of(matching(names, text))
    groups = found if text else [ChartGroup(key="top", title="At a glance", charts=OVERVIEW_CHARTS), *found]
    return [
        replace(group, charts=tuple(_overlaid(chart, compared, prefix=group.key) for chart in group.charts))
        for group in groups
    ]


def _overlaid(chart: Chart, compared: Sequence[Compared], *, prefix: str) -> Chart:
    # Lines of a run have one colour; only the two arms, solid and dashed, can be told apart in it.
    kept = chart.series if chart.key == "win-rate" else chart.series[:1]
    lines = [_line(line, one, alone=len(kept) == 1) for one in compared for line in kept]
    return replace(chart, key=f"{prefix}-{chart.key}", series=tuple(lines))


def _line(line: ChartSeries, one: Compared, *, alone: bool) -> ChartSeries:
    label = one.run.name if alone else f"{one.run.name}, {line.label}"
    return replace(
        line, label=label, color=one.token, dash=line.dash or (alone and one.dash), run=str(one.run.pk), every=one.every
    )


@dataclass(frozen=True, kw_only=True)
class FigureRow:
    """One key figure of every run."""

    label: str
    arm: str
    is_share: bool
    cells: list[Figure]


def figure_rows(*, compared: Sequence[Compared]) -> list[FigureRow]:
    """Key figures side by side, each with the rollout it is of."""
    columns = [figures_of(run=one.run) for one in compared]
    return [
        FigureRow(label=cells[0].label, arm=cells[0].arm, is_share=cells[0].is_share, cells=list(cells))
        for cells in zip(*columns, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One setting of every run; ``differs`` when they are not all the same."""

    path: str
    unit: str
    help: str
    cells: list[dict[str, Any]]
    differs: bool


def setting_rows(*, configs: Sequence[dict[str, Any]]) -> list[SettingRow]:
    """Every setting; a cell differs when it is not as in the first run."""
    rows = []
    for section in sections():
        for spec in section.settings:
            texts = [setting_text(setting_value(config, spec.path)) for config in configs]
            cells = [{"text": text, "differs": text != texts[0]} for text in texts]
            rows.append(
                SettingRow(path=spec.path, unit=spec.unit, help=spec.help, cells=cells, differs=len(set(texts)) > 1)
            )
    return rows


def run_named(*, text: str) -> Run | None:
    """The run of that number or address, else the newest in use whose name has the text; None when there is none."""
    runs = Run.objects.filter(deleted_at=None)
    if text.isdecimal() and len(text) < 12:
        exact = runs.filter(pk=int(text)).first()
        if exact is not None:
            return exact
    return (
        runs.filter(slug=text).first()
        or runs.filter(name__iexact=text).order_by("-id").first()
        or runs.filter(Q(name__icontains=text) | Q(slug__icontains=text)).order_by("-id").first()
    )
