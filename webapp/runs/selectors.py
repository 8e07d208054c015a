"""Reading runs: the list, one run with what its header shows, its attempts, checkpoints, commands and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import F, FloatField, OuterRef, Q, QuerySet, Subquery
from django.http import Http404

from webapp.core.pagination import Page, keyset_page
from webapp.runs.models import Attempt, Checkpoint, Command, Event, MetricPoint, Run
from webapp.runs.states import ACTIVE, Status

PAGE_ROWS = 50
#: Column of the list -> metric whose newest measured value it shows.
LIST_METRICS = {
    "win_unhinted": "win_rate/unhinted",
    "win_hinted": "win_rate/hinted",
    "regret": "regret/mean",
    "regret_error": "regret/standard_error",
    "designer_reward": "designer/reward_mean",
    "tokens_per_s": "perf/tokens_per_s_sampled",
}
#: A filter value that stands for several states.
STATUS_GROUPS: Mapping[str, Sequence[str]] = {"active": (Status.QUEUED, *ACTIVE)}
WARNING_KINDS = ("warning", "ingest_warning")


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """What the list is narrowed to; empty text means no narrowing."""

    search: str = ""
    status: str = ""
    preset: str = ""
    tag: str = ""
    owner: str = ""


def access_run(*, run_id: int) -> Run:
    """The run with its owner and parent. Raises Http404: every signed-in viewer may see every run."""
    try:
        return Run.objects.select_related("owner", "parent").get(pk=run_id)
    except Run.DoesNotExist as error:
        raise Http404(f"There is no run {run_id}.") from error


def list_runs(*, chosen: RunFilter, cursor: str = "", size: int = PAGE_ROWS) -> Page[Run]:
    """Newest first, each with the attributes of LIST_METRICS. Raises BadRequest for a damaged cursor."""
    return keyset_page(_with_metrics(_narrowed(chosen)), order=("-created_at", "-id"), cursor=cursor, size=size)


def list_row(*, run_id: int) -> Run:
    """One run as the list shows it. Raises Http404."""
    run = _with_metrics(Run.objects.filter(pk=run_id)).first()
    if run is None:
        raise Http404(f"There is no run {run_id}.")
    return run


def _narrowed(chosen: RunFilter) -> QuerySet[Run]:
    runs = Run.objects.all()
    if chosen.search:
        text = chosen.search
        runs = runs.filter(
            Q(name__icontains=text)
            | Q(slug__icontains=text)
            | Q(notes__icontains=text)
            | Q(owner__username__icontains=text)
        )
    if chosen.status:
        runs = runs.filter(status__in=STATUS_GROUPS.get(chosen.status, (chosen.status,)))
    if chosen.preset:
        runs = runs.filter(preset=chosen.preset)
    if chosen.tag:
        runs = runs.filter(tags__contains=[chosen.tag])
    if chosen.owner:
        runs = runs.filter(owner__username=chosen.owner)
    return runs


def _with_metrics(runs: QuerySet[Run]) -> QuerySet[Run]:
    newest = {
        column: Subquery(
            MetricPoint.objects.filter(run=OuterRef("pk"), name=name, superseded=False, value__isnull=False)
            .order_by("-rollout")
            .values("value")[:1],
            output_field=FloatField(),
        )
        for column, name in LIST_METRICS.items()
    }
    return runs.select_related("owner").annotate(**newest)


@dataclass(frozen=True, kw_only=True)
class RunFacets:
    """Values that occur, for the filter menus."""

    statuses: list[str]
    presets: list[str]
    tags: list[str]
    owners: list[str]


def run_facets() -> RunFacets:
    """States, presets, tags and owners of all runs, each sorted."""
    tags = {
        tag
        for row in Run.objects.exclude(tags=[]).values_list("tags", flat=True)
        for tag in row
        if isinstance(tag, str)
    }
    owners = Run.objects.exclude(owner=None).values_list("owner__username", flat=True).distinct()
    return RunFacets(
        statuses=sorted(Run.objects.values_list("status", flat=True).distinct()),
        presets=sorted(Run.objects.exclude(preset="").values_list("preset", flat=True).distinct()),
        tags=sorted(tags),
        owners=sorted(str(owner) for owner in owners),
    )


def newest_values(*, run: Run, names: Sequence[str]) -> dict[str, MetricPoint]:
    """The newest measured point of each metric of the line that holds; metrics never measured are left out."""
    points = (
        MetricPoint.objects.filter(run=run, name__in=names, superseded=False, value__isnull=False)
        .order_by("name", "-rollout")
        .distinct("name")
    )
    return {point.name: point for point in points}


def attempts_of(*, run: Run) -> list[Attempt]:
    """Newest first."""
    return list(run.attempts.order_by("-number"))


def checkpoints_of(*, run: Run, cursor: str) -> Page[Checkpoint]:
    """Newest first, superseded ones too."""
    return keyset_page(Checkpoint.objects.filter(run=run), order=("-id",), cursor=cursor, size=PAGE_ROWS)


def commands_of(*, run: Run, limit: int = 20) -> list[Command]:
    """What people asked of the trainer, newest first."""
    return list(run.commands.select_related("by").order_by(F("created_at").desc())[:limit])


def warnings_of(*, run: Run, limit: int = 20) -> list[Event]:
    """Newest warnings of the trainer and of the ingest."""
    return list(Event.objects.filter(run=run, kind__in=WARNING_KINDS).order_by("-cursor")[:limit])
