"""Flags and queues as the API shows and takes them. Turns count from 1, as on pages."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webapp.review.models import Act, Flag, FlagKind
from webapp.review.selectors_queues import ShownItem
from webapp.review.services import COMMENT_CHARS, Pointer, Wish

_MOST = 1_000_000


class FlagKindSerializer(serializers.ModelSerializer[FlagKind]):
    """What can be wrong."""

    class Meta:
        model = FlagKind
        fields = ("key", "label", "description")


class FlagSerializer(serializers.Serializer[Any]):
    """A flag; ``state`` says whether its effect holds, by the trainer's own answers."""

    id = serializers.IntegerField(source="flag.pk")
    run = serializers.IntegerField(source="flag.run_id")
    environment = serializers.CharField(source="flag.environment.key")
    subject = serializers.CharField(source="flag.subject")
    episode = serializers.IntegerField(source="flag.episode_id", allow_null=True)
    turn = serializers.IntegerField(source="flag.turn_number", allow_null=True)
    first_line = serializers.IntegerField(source="flag.first_line", allow_null=True)
    last_line = serializers.IntegerField(source="flag.last_line", allow_null=True)
    kind = serializers.CharField(source="flag.kind.key")
    severity = serializers.CharField(source="flag.get_severity_display")
    comment = serializers.CharField(source="flag.comment")
    wish = serializers.CharField(source="flag.wish")
    weight = serializers.FloatField(source="flag.weight", allow_null=True)
    effect = serializers.IntegerField(source="flag.effect_id", allow_null=True)
    state = serializers.SerializerMethodField()
    by = serializers.CharField(source="flag.by.username", default=None, allow_null=True)
    at = serializers.DateTimeField(source="flag.at")
    withdrawn_at = serializers.DateTimeField(source="flag.withdrawn_at", allow_null=True)
    withdrawn_reason = serializers.CharField(source="flag.withdrawn_reason")

    def get_state(self, shown: Any) -> str:
        """withdrawn, proposed, note, or how the effect stands, such as "in effect from rollout 37"."""
        if shown.flag.withdrawn_at is not None:
            return "withdrawn"
        if shown.state is not None:
            return str(shown.state.word)
        return "proposed" if shown.flag.is_proposal else "note"


class NewFlagSerializer(serializers.Serializer[Any]):
    """A flag to place. ``episode``, ``turn`` and lines are what it is about or, for something larger, the evidence."""

    kind = serializers.CharField(max_length=60, help_text="Key of a kind that is offered.")
    subject = serializers.ChoiceField(choices=Flag.Subject.values, default=Flag.Subject.ENVIRONMENT.value)
    severity = serializers.ChoiceField(choices=[one.label for one in Flag.Severity], default=Flag.Severity.MAJOR.label)
    comment = serializers.CharField(required=False, allow_blank=True, max_length=COMMENT_CHARS, default="")
    wish = serializers.ChoiceField(choices=[Flag.NOTE, *Act.values], default=Flag.NOTE)
    weight = serializers.FloatField(required=False, help_text="Of the wish to down-weight, between 0 and 1.")
    episode = serializers.IntegerField(required=False, min_value=1)
    turn = serializers.IntegerField(required=False, min_value=1, max_value=_MOST)
    first_line = serializers.IntegerField(required=False, min_value=1, max_value=_MOST)
    last_line = serializers.IntegerField(required=False, min_value=1, max_value=_MOST)


def pointer_of(values: dict[str, Any]) -> Pointer:
    """Where a new flag points."""
    turn = values.get("turn")
    return Pointer(
        episode_id=values.get("episode"), turn=None if turn is None else turn - 1, first_line=values.get("first_line"),
        last_line=values.get("last_line"),
    )  # fmt: skip


def wish_of(values: dict[str, Any]) -> Wish:
    """What a new flag is to do."""
    weight = values.get("weight") if values["wish"] == Act.DOWN_WEIGHT else None
    return Wish(act=values["wish"], weight=weight)


class WithdrawalSerializer(serializers.Serializer[Any]):
    """Why a flag or its effect is taken back."""

    reason = serializers.CharField(required=False, allow_blank=True, max_length=COMMENT_CHARS, default="")


class ReviewQueueSerializer(serializers.Serializer[Any]):
    """A queue with its counts; ``own`` are the caller's labels, ``free`` the items that could be offered to them now."""

    id = serializers.IntegerField(source="queue.pk")
    name = serializers.CharField(source="queue.name")
    run = serializers.IntegerField(source="queue.run_id")
    signals = serializers.ListField(child=serializers.CharField(), source="queue.signals")
    threshold = serializers.FloatField(source="queue.threshold")
    skill = serializers.CharField(source="queue.skill")
    reviewers_per_item = serializers.IntegerField(source="queue.reviewers_per_item")
    blind = serializers.BooleanField(source="queue.blind")
    closed_at = serializers.DateTimeField(source="queue.closed_at", allow_null=True)
    items = serializers.IntegerField()
    done = serializers.IntegerField()
    own = serializers.IntegerField()
    free = serializers.IntegerField()


class QueueItemSerializer(serializers.Serializer[Any]):
    """An environment in a queue, with why it is there and how many of its labels are given."""

    id = serializers.IntegerField(source="item.pk")
    environment = serializers.CharField(source="item.environment.key")
    class_name = serializers.CharField(source="item.environment.class_name")
    score = serializers.FloatField(source="item.score")
    reasons = serializers.SerializerMethodField()
    given = serializers.IntegerField()
    wanted = serializers.IntegerField()
    completed_at = serializers.DateTimeField(source="item.completed_at", allow_null=True)

    def get_reasons(self, shown: ShownItem) -> list[dict[str, Any]]:
        """Signals, the heaviest first, with the episode and turn to look at."""
        return [
            {"label": one.label, "text": one.text, "episode": one.episode, "turn": one.turn} for one in shown.reasons
        ]


class LabelsSerializer(serializers.Serializer[Any]):
    """Labels the caller may see; ``hidden`` are those of a blind queue that they may not see yet."""

    labels = serializers.ListField(child=serializers.JSONField())
    hidden = serializers.IntegerField()
