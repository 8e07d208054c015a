"""API of runs: creating them and acting on them, by the services and the validation of the pages."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from trainer.config import RunConfig
from webapp.accounts.models import User
from webapp.api.views import ApiView, actor_of, answers, sent
from webapp.runs import services, services_queue
from webapp.runs.api import RunsReading, detail
from webapp.runs.checkpoint_files import resolve_name
from webapp.runs.configuration import apply_overrides, parse_config, read_config, why_not_startable
from webapp.runs.errors import ActRefused, InvalidConfig
from webapp.runs.estimate import estimate_of
from webapp.runs.models import Run
from webapp.runs.retention import with_checkpoint_defaults
from webapp.runs.selectors import access_run
from webapp.runs.serializers import (
    CreatedRunSerializer,
    DryRunSerializer,
    MovedSerializer,
    NewRunSerializer,
    PlaceSerializer,
    PlannedRunSerializer,
    ReasonSerializer,
    RunDetailSerializer,
)
from webapp.runs.services_fork import fork_run, why_not_forkable
from webapp.runs.suggestions import refused
from webapp.runs.views import ACTS

#: Acts that take a reason.
_WITH_REASON = ("pause", "unpause", "stop")


def _planned(values: dict[str, Any]) -> tuple[RunConfig, Run | None]:
    """The settings, and the run they come from. Raises InvalidConfig, Http404."""
    if "parent" not in values:
        offered = with_checkpoint_defaults(read_config(preset=values["preset"], overrides={}))
        return apply_overrides(offered, values["overrides"]), None
    parent = access_run(run_id=values["parent"])
    return apply_overrides(parse_config(parent.config), values["overrides"]), parent


class Runs(RunsReading, ApiView):
    """Runs."""

    @answers("runs_create", CreatedRunSerializer, takes=NewRunSerializer, status=201)
    def post(self, request: Request) -> Response:
        """Create a draft from a preset, as a clone of a parent, or as a fork from its checkpoint; with ``start`` queue it."""
        values, actor = sent(request, NewRunSerializer), actor_of(request)
        config, parent = _planned(values)
        run = _created(actor, config, parent, values)
        not_started = ""
        if values["start"]:
            try:
                services.start_run(actor=actor, run_id=run.pk)
            except ActRefused as error:
                not_started = str(error)
        return Response({**detail(run.pk), "not_started": not_started}, status=201)


def _created(actor: User, config: RunConfig, parent: Run | None, values: dict[str, Any]) -> Run:
    about: dict[str, Any] = {"name": values["name"], "notes": values["notes"]}
    if parent is not None and "checkpoint" in values:
        tags = values.get("tags", parent.tags)
        return fork_run(
            actor=actor, run_id=parent.pk, checkpoint=values["checkpoint"], config=config, tags=tags, **about
        )
    if parent is None:
        return services.create_run(actor=actor, config=config, tags=values.get("tags", ()), **about)
    run = services.clone_run(actor=actor, run_id=parent.pk, name=values["name"], config=config)
    if "tags" in values:
        run = services.tag_run(actor=actor, run_id=run.pk, tags=values["tags"])
    if values["notes"]:
        run = services.annotate_run(actor=actor, run_id=run.pk, notes=values["notes"])
    return run


class DryRun(ApiView):
    """What a run would do."""

    @answers("runs_dry_run", DryRunSerializer, takes=PlannedRunSerializer)
    def post(self, request: Request) -> Response:
        """Validate settings as a start would, and estimate what a run of them does and takes; nothing is created."""
        values = sent(request, PlannedRunSerializer)
        config, parent = _planned(values)
        if problems := refused(config.model_dump(mode="json"), parent.config if parent else None):
            raise InvalidConfig(problems)
        obstacles = [why_not_startable(config)]
        if parent is not None and "checkpoint" in values:
            name = resolve_name(run=parent, name=values["checkpoint"])
            obstacles.append(why_not_forkable(run=parent, checkpoint=name, config=config))
        estimate = estimate_of(config=config)
        names = (
            "environments", "unhinted", "hinted", "checkpoints", "checkpoint_bytes", "log_bytes", "total_bytes", "free_bytes",
        )  # fmt: skip
        body = {name: getattr(estimate, name) for name in names}
        return Response(
            {**body, "obstacles": [one for one in obstacles if one], "config": config.model_dump(mode="json")}
        )


class RunAct(ApiView):
    """An act on a run."""

    @extend_schema(
        operation_id="runs_act", request=ReasonSerializer, responses=RunDetailSerializer,
        parameters=[OpenApiParameter("act", OpenApiTypes.STR, OpenApiParameter.PATH, enum=list(ACTS))],
    )  # fmt: skip
    def post(self, request: Request, run_id: int, act: str) -> Response:
        """Start (queue a draft), pause, unpause, stop, resume from the newest checkpoint, checkpoint now, archive, delete, restore.

        ``reason`` is kept with pause, unpause and stop. The answer is the run as it is then; the trainer's own answer to what was
        asked of it is among the run's commands.
        """
        run, service = access_run(run_id=run_id), ACTS.get(act)
        if service is None:
            raise Http404(f"There is no act {act}; there are {', '.join(ACTS)}.")
        reason = sent(request, ReasonSerializer)["reason"]
        service(
            actor=actor_of(request), run_id=run.pk, **({"reason": reason} if act in _WITH_REASON and reason else {})
        )
        return Response(detail(run.pk))


class QueueMove(ApiView):
    """A place in the queue."""

    @answers("queue_move", MovedSerializer, takes=PlaceSerializer)
    def post(self, request: Request, run_id: int) -> Response:
        """Move a run that waits."""
        run, to = access_run(run_id=run_id), sent(request, PlaceSerializer)["to"]
        return Response({"place": services_queue.move_in_queue(actor=actor_of(request), run_id=run.pk, to=to)})
