"""Reading one run: what its header shows, its attempts, checkpoints, commands and warnings. The list: ``selectors_list.py``."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import F
from django.http import Http404

from webapp.core.pagination import Page, keyset_page
from webapp.runs.models import Attempt, Checkpoint, Command, Event, MetricPoint, Run

PAGE_ROWS = 50
Z_95 = 1.96  # half width of a 95 % interval in standard errors
WARNING_KINDS = ("warning", "ingest_warning")


def access_run(*, run_id: int) -> Run:
    """The run with its owner and parent. Raises Http404: every signed-in viewer may see every run."""
    try:
        return Run.objects.select_related("owner", "parent").get(pk=run_id)
    except Run.DoesNotExist as error:
        raise Http404(f"There is no run {run_id}.") from error


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


def checkpoints_of(*, run: Run, cursor: str, size: int = PAGE_ROWS) -> Page[Checkpoint]:
    """Newest first, superseded ones too."""
    return keyset_page(Checkpoint.objects.filter(run=run), order=("-id",), cursor=cursor, size=size)


def commands_of(*, run: Run, limit: int = 20) -> list[Command]:
    """What people asked of the trainer, newest first."""
    return list(run.commands.select_related("by").order_by(F("created_at").desc())[:limit])


def warnings_of(*, run: Run, limit: int = 20) -> list[Event]:
    """Newest warnings of the trainer and of the ingest."""
    return list(Event.objects.filter(run=run, kind__in=WARNING_KINDS).order_by("-cursor")[:limit])
