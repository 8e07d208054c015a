"""API of flags and review queues."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from webapp.accounts.permissions import IsOnlyReviewer, IsReviewer
from webapp.api.views import ApiView, actor_of, answers, lists, page_response, paging, sent
from webapp.environments.selectors import access_environment
from webapp.review import selectors, selectors_queues, services
from webapp.review.errors import ReviewRefused
from webapp.review.models import Flag
from webapp.review.selectors import SEVERITIES, STATES, FlagFilter
from webapp.review.serializers import (
    FlagKindSerializer,
    FlagSerializer,
    LabelsSerializer,
    NewFlagSerializer,
    QueueItemSerializer,
    ReviewQueueSerializer,
    WithdrawalSerializer,
    pointer_of,
    wish_of,
)
from webapp.review.views import filter_in
from webapp.runs.selectors import access_run

_FILTERS = {
    "kind": "Key of the kind.",
    "severity": f"{', '.join(SEVERITIES)}.",
    "state": f"{', '.join(STATES)}.",
    "subject": f"{', '.join(Flag.Subject.values)}.",
    "run": "Id of a run.",
    "skill": "Skill of the environment.",
    "by": "User name of whoever flagged.",
}


def _one(request: Request, flag_id: int) -> Response:
    """The flag as it is now, for the caller."""
    flag = selectors.access_flag(flag_id=flag_id)
    shown = selectors.flags_of_environment(environment=flag.environment, reader=actor_of(request))
    return Response(FlagSerializer(next(one for one in shown if one.flag.pk == flag_id)).data)


class FlagKinds(ApiView):
    """Kinds of flags."""

    @answers("flag_kinds_list", FlagKindSerializer(many=True))  # type: ignore[arg-type]
    def get(self, request: Request) -> Response:
        """Those that can be chosen."""
        return Response(FlagKindSerializer(selectors.offered_kinds(), many=True).data)


class Flags(ApiView):
    """Flags of all runs."""

    @lists("flags_list", FlagSerializer, filters=_FILTERS)
    def get(self, request: Request) -> Response:
        """Newest first."""
        chosen: FlagFilter = filter_in(request._request)
        page, shown = selectors.list_flags(chosen=chosen, reader=actor_of(request), **paging(request))
        return page_response(request, page, FlagSerializer(shown, many=True).data)


class OneFlag(ApiView):
    """One flag."""

    @answers("flags_read", FlagSerializer)
    def get(self, request: Request, flag_id: int) -> Response:
        """With how its effect stands."""
        return _one(request, flag_id)


class EnvironmentFlags(ApiView):
    """Flags of an environment."""

    permission_classes = [IsReviewer]  # noqa: RUF012 - DRF's own shape

    @answers("environments_flags", FlagSerializer(many=True))  # type: ignore[arg-type]
    def get(self, request: Request, run_id: int, key: str) -> Response:
        """Standing ones first."""
        environment = access_environment(run=access_run(run_id=run_id), key=key)
        shown = selectors.flags_of_environment(environment=environment, reader=actor_of(request))
        return Response(FlagSerializer(shown, many=True).data)

    @answers("flags_place", FlagSerializer, takes=NewFlagSerializer, status=201)
    def post(self, request: Request, run_id: int, key: str) -> Response:
        """Flag the environment or something of it. An operator's wish takes effect; a reviewer's waits as a proposal."""
        environment = access_environment(run=access_run(run_id=run_id), key=key)
        values = sent(request, NewFlagSerializer)
        kind = next((one for one in selectors.offered_kinds() if one.key == values["kind"]), None)
        if kind is None:
            raise ReviewRefused(f"There is no kind {values['kind']!r}; the offered ones are at flag-kinds/.")
        severity = next(one for one in Flag.Severity if one.label == values["severity"])
        flag = services.place_flag(
            actor=actor_of(request), environment_id=environment.pk, kind_id=kind.pk, subject=values["subject"],
            pointer=pointer_of(values), severity=severity, comment=values["comment"], wish=wish_of(values),
        )  # fmt: skip
        answer = _one(request, flag.pk)
        answer.status_code = 201
        return answer


class FlagWithdrawal(ApiView):
    """Taking a flag back."""

    permission_classes = [IsReviewer]  # noqa: RUF012 - DRF's own shape

    @answers("flags_withdraw", FlagSerializer, takes=WithdrawalSerializer)
    def post(self, request: Request, flag_id: int) -> Response:
        """Withdraw a flag, and the effect only it held."""
        selectors.access_flag(flag_id=flag_id)
        services.withdraw_flag(
            actor=actor_of(request), flag_id=flag_id, reason=sent(request, WithdrawalSerializer)["reason"]
        )
        return _one(request, flag_id)


class FlagEffect(ApiView):
    """What a flag does to its run."""

    @answers("flags_put_into_effect", FlagSerializer)
    def post(self, request: Request, flag_id: int) -> Response:
        """Carry out what a reviewer proposed."""
        selectors.access_flag(flag_id=flag_id)
        services.put_into_effect(actor=actor_of(request), flag_id=flag_id)
        return _one(request, flag_id)

    @answers("flags_undo_effect", FlagSerializer)
    def delete(self, request: Request, flag_id: int) -> Response:
        """Take the effect back; the flags that asked for it stay as notes."""
        flag = selectors.access_flag(flag_id=flag_id)
        if flag.effect_id is None:
            raise ReviewRefused("This flag has no effect that could be undone.")
        services.undo_effect(actor=actor_of(request), effect_id=flag.effect_id)
        return _one(request, flag_id)


class ReviewQueues(ApiView):
    """Review queues."""

    permission_classes = [IsOnlyReviewer]  # noqa: RUF012 - DRF's own shape

    @answers("review_queues_list", ReviewQueueSerializer(many=True), query={"state": "closed; open ones by default."})  # type: ignore[arg-type]
    def get(self, request: Request) -> Response:
        """Newest first."""
        is_open = request.query_params.get("state") != "closed"
        queues = selectors_queues.list_queues(reader=actor_of(request), is_open=is_open)
        return Response(ReviewQueueSerializer(queues, many=True).data)


class QueueItems(ApiView):
    """Items of a review queue."""

    permission_classes = [IsOnlyReviewer]  # noqa: RUF012 - DRF's own shape

    @lists("review_queues_items", QueueItemSerializer, filters={"state": "open, done, mine or skipped."})
    def get(self, request: Request, queue_id: int) -> Response:
        """The most suspicious first."""
        page, items = selectors_queues.list_items(
            queue=selectors_queues.access_queue(queue_id=queue_id), reader=actor_of(request),
            state=request.query_params.get("state", ""), **paging(request),
        )  # fmt: skip
        return page_response(request, page, QueueItemSerializer(items, many=True).data)


class QueueLabels(ApiView):
    """Labels given in a review queue."""

    permission_classes = [IsOnlyReviewer]  # noqa: RUF012 - DRF's own shape

    @answers("review_queues_labels", LabelsSerializer)
    def get(self, request: Request, queue_id: int) -> Response:
        """Every label the caller may see, with its context."""
        queue = selectors_queues.access_queue(queue_id=queue_id)
        labels, hidden = selectors_queues.labels_for_download(queue=queue, reader=actor_of(request))
        return Response({"labels": labels, "hidden": hidden})
