"""API of runs: reading them and what they measured. Acts are in ``api_control.py``, checkpoints in ``api_checkpoints.py``."""

from __future__ import annotations

from django.core.exceptions import BadRequest
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.api.views import ApiView, actor_of, answers, lists, page_response, paging, sent
from webapp.runs import selectors, selectors_list, selectors_queue, services
from webapp.runs.configuration import presets
from webapp.runs.models import Run
from webapp.runs.serializers import (
    AttemptSerializer,
    CommandSerializer,
    EditedRunSerializer,
    MetricNamesSerializer,
    PresetSerializer,
    QueueSerializer,
    RolloutSerializer,
    RunDetailSerializer,
    RunSerializer,
    SeriesSerializer,
)
from webapp.runs.series import MAX_NAMES, MAX_POINTS, metric_names, read_series, rollouts_of
from webapp.runs.views_list import filter_of

_COMMANDS_SHOWN = 100
_FILTERS = {
    "q": "Text in name, notes, tags or owner.",
    "regex": "1: q is a regular expression.",
    "status": "One state, or active for all that hold or wait for a machine.",
    "preset": "Made from this preset.",
    "tag": "Has this tag.",
    "owner": "User name.",
    "show": "archived, deleted or all; runs in use by default.",
    "sort": f"{', '.join(selectors_list.SORTED_BY)}; - before it turns the order round. Newest first by default.",
}


def detail(run_id: int) -> dict[str, object]:
    """The run as it is now. Raises Http404."""
    return dict(RunDetailSerializer(selectors_list.list_row(run_id=run_id)).data)


class RunsReading:
    """GET of the list, shared with the view that also creates (see ``api_control``)."""

    @lists("runs_list", RunSerializer, filters=_FILTERS)
    def get(self, request: Request) -> Response:
        """Runs, newest first."""
        query = request.query_params
        page = selectors_list.list_runs(chosen=filter_of(query), sort=query.get("sort", ""), **paging(request)).page
        return page_response(request, page, RunSerializer(page.rows, many=True).data)


class OneRun(ApiView):
    """One run."""

    @answers("runs_read", RunDetailSerializer)
    def get(self, request: Request, run_id: int) -> Response:
        """Its state, settings and newest metrics."""
        return Response(detail(run_id))

    @answers("runs_edit", RunDetailSerializer, takes=EditedRunSerializer)
    def patch(self, request: Request, run_id: int) -> Response:
        """Rename, tag, annotate."""
        run, actor, values = selectors.access_run(run_id=run_id), actor_of(request), sent(request, EditedRunSerializer)
        if "name" in values:
            services.rename_run(actor=actor, run_id=run.pk, name=values["name"])
        if "tags" in values:
            services.tag_run(actor=actor, run_id=run.pk, tags=values["tags"])
        if "notes" in values:
            services.annotate_run(actor=actor, run_id=run.pk, notes=values["notes"])
        return Response(detail(run.pk))


class Attempts(ApiView):
    """Process lives of a run."""

    @answers("runs_attempts", AttemptSerializer(many=True))  # type: ignore[arg-type]
    def get(self, request: Request, run_id: int) -> Response:
        """Newest first."""
        rows = selectors.attempts_of(run=selectors.access_run(run_id=run_id))
        return Response(AttemptSerializer(rows, many=True).data)


class Commands(ApiView):
    """What people asked of the trainer."""

    @answers("runs_commands", CommandSerializer(many=True))  # type: ignore[arg-type]
    def get(self, request: Request, run_id: int) -> Response:
        """The newest hundred with the trainer's answers."""
        rows = selectors.commands_of(run=selectors.access_run(run_id=run_id), limit=_COMMANDS_SHOWN)
        return Response(CommandSerializer(rows, many=True).data)


class Rollouts(ApiView):
    """Rollouts of a run with their metrics."""

    @lists("runs_rollouts", RolloutSerializer)
    def get(self, request: Request, run_id: int) -> Response:
        """First to last; what a resume left behind is not among them."""
        page, rows = rollouts_of(run=selectors.access_run(run_id=run_id), **paging(request))
        return page_response(request, page, RolloutSerializer(rows, many=True).data)


class MetricNames(ApiView):
    """Names of metrics."""

    @answers("runs_metrics", MetricNamesSerializer)
    def get(self, request: Request, run_id: int) -> Response:
        """Every metric the run has reported, sorted."""
        return Response({"names": metric_names(run=selectors.access_run(run_id=run_id))})


class MetricSeries(ApiView):
    """Metrics over rollouts."""

    @answers(
        "runs_series", SeriesSerializer, many=("name",),
        query={"name": f"Metric; repeat it for up to {MAX_NAMES}.",
               "points": f"Most points a series, 4 to {MAX_POINTS}; lowest and highest of each bucket are kept."},
    )  # fmt: skip
    def get(self, request: Request, run_id: int) -> Response:
        """The line that holds, thinned to ``points``, and the tails that resumes left behind."""
        run, names = selectors.access_run(run_id=run_id), request.query_params.getlist("name")
        if not 1 <= len(names) <= MAX_NAMES:
            raise BadRequest(f"Name 1 to {MAX_NAMES} metrics, each as ?name=…; their names are at metrics/.")
        text = request.query_params.get("points", str(MAX_POINTS))
        if not text.isascii() or not text.isdecimal() or not 4 <= int(text[:9]) <= MAX_POINTS:
            raise BadRequest(f"points must be a whole number from 4 to {MAX_POINTS}.")
        return Response({"series": {one.name: one.as_json(int(text)) for one in read_series(run=run, names=names)}})


class Presets(ApiView):
    """Settings to start from."""

    @answers("presets_list", PresetSerializer(many=True))  # type: ignore[arg-type]
    def get(self, request: Request) -> Response:
        """All presets with all their settings."""
        return Response(PresetSerializer(presets(), many=True).data)


class RunQueue(ApiView):
    """The queue for machines."""

    @answers("queue_read", QueueSerializer)
    def get(self, request: Request) -> Response:
        """Active runs, and those that wait in their order."""
        rows: dict[str, list[Run]] = {
            "active": selectors_queue.active_runs(),
            "waiting": selectors_queue.queued_runs(),
        }
        return Response({name: RunSerializer(runs, many=True).data for name, runs in rows.items()})
