"""Runs as the API shows and takes them."""

from __future__ import annotations

from math import isfinite
from typing import Any

from rest_framework import serializers

from webapp.runs.checkpoint_files import StoredCheckpoint
from webapp.runs.models import Attempt, Checkpoint, Command, Run
from webapp.runs.selectors_list import LIST_METRICS
from webapp.runs.states import acts_in

_RUN_FIELDS = (
    "id", "slug", "name", "status", "owner", "preset", "seed", "tags", "parent", "fork_checkpoint", "created_at", "queued_at",
    "started_at", "finished_at", "archived_at", "deleted_at", "attempt", "rollout", "rollouts_done", "total_rollouts", "eta_s",
    "last_event_at", "warnings", "gap", "failure_owner", "failure_message",
)  # fmt: skip


class RunSerializer(serializers.ModelSerializer[Run]):
    """A run as in the list. Times are ISO 8601 with zone; rollouts count from 0."""

    owner = serializers.CharField(source="owner.username", default=None, allow_null=True, read_only=True)
    parent = serializers.IntegerField(source="parent_id", allow_null=True, read_only=True)  # type: ignore[assignment]
    figures = serializers.SerializerMethodField(
        help_text="Newest measured value of the list's columns, null before; regret_error: the standard error of that regret."
    )

    class Meta:
        model = Run
        fields = (*_RUN_FIELDS, "figures")

    def get_figures(self, run: Run) -> dict[str, float | None]:
        """By column of the list."""
        return {column: getattr(run, column, None) for column in LIST_METRICS}


class RunDetailSerializer(RunSerializer):
    """A run with its settings, its newest metrics, and what can be done with it now."""

    acts = serializers.SerializerMethodField(help_text="Acts that its state allows now.")

    class Meta:
        model = Run
        fields = (*_RUN_FIELDS, "figures", "notes", "config", "latest", "phase", "acts")

    def get_acts(self, run: Run) -> list[str]:
        """Names of acts."""
        return acts_in(run.status)


class CreatedRunSerializer(RunDetailSerializer):
    """A new run. ``not_started`` says why a run that was to start was kept as a draft; empty otherwise."""

    not_started = serializers.CharField(read_only=True)

    class Meta:
        model = Run
        fields = (*RunDetailSerializer.Meta.fields, "not_started")


class PlannedRunSerializer(serializers.Serializer[Any]):
    """Settings of a run: a preset, or a parent (with ``checkpoint`` a fork, else a clone), with some replaced by dotted name."""

    preset = serializers.CharField(required=False, max_length=120)
    parent = serializers.IntegerField(required=False, min_value=1)  # type: ignore[assignment]
    checkpoint = serializers.CharField(required=False, max_length=120, help_text="Its name or number, best or latest.")
    overrides = serializers.DictField(
        child=serializers.JSONField(), default=dict, help_text='Such as {"schedule.rollouts": 20}.'
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Exactly one origin; a checkpoint is a parent's."""
        if ("preset" in attrs) == ("parent" in attrs):
            raise serializers.ValidationError("Send either preset or parent.")
        if "checkpoint" in attrs and "parent" not in attrs:
            raise serializers.ValidationError({"checkpoint": "A checkpoint needs the parent it belongs to."})
        return attrs


class NewRunSerializer(PlannedRunSerializer):
    """A run to create."""

    name = serializers.CharField(required=False, allow_blank=True, max_length=120, default="")
    tags = serializers.ListField(child=serializers.CharField(max_length=40), max_length=20, required=False)
    notes = serializers.CharField(required=False, allow_blank=True, default="")
    start = serializers.BooleanField(default=False, help_text="Queue it at once; otherwise it stays a draft.")


class EditedRunSerializer(serializers.Serializer[Any]):
    """What can be changed later; what is left out stays."""

    name = serializers.CharField(required=False, max_length=120)
    tags = serializers.ListField(child=serializers.CharField(max_length=40), max_length=20, required=False)
    notes = serializers.CharField(required=False, allow_blank=True)


class ReasonSerializer(serializers.Serializer[Any]):
    """Why something is done; others read it."""

    reason = serializers.CharField(required=False, allow_blank=True, max_length=500, default="")


class DryRunSerializer(serializers.Serializer[Any]):
    """What a run of these settings would do and take. Bytes are null where no earlier run of the model says them."""

    obstacles = serializers.ListField(child=serializers.CharField(), help_text="Why it could not start here; empty.")
    environments = serializers.IntegerField()
    unhinted = serializers.IntegerField(help_text="Episodes without the hint.")
    hinted = serializers.IntegerField(help_text="Episodes with the hint.")
    checkpoints = serializers.IntegerField()
    checkpoint_bytes = serializers.IntegerField(allow_null=True)
    log_bytes = serializers.IntegerField(allow_null=True)
    total_bytes = serializers.IntegerField(allow_null=True)
    free_bytes = serializers.IntegerField(allow_null=True)
    config = serializers.JSONField(help_text="The settings as they would be frozen.")


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    """One process life of a run."""

    class Meta:
        model = Attempt
        fields = (
            "number", "start_rollout", "checkpoint", "superseded_from", "engine", "versions", "sandbox_tier", "host", "started_at",
            "finished_at", "exit_code", "reported_state", "reported_reason",
        )  # fmt: skip


class CheckpointSerializer(serializers.ModelSerializer[Checkpoint]):
    """A complete checkpoint. ``superseded``: a resume left it behind. What lies on the disk now is in the context's ``files``."""

    stored = serializers.SerializerMethodField(help_text="Whole on the disk now; only then it is downloaded or forked.")
    best = serializers.SerializerMethodField(help_text="The best of those on the disk, by checkpoint.best_metric.")
    best_value = serializers.SerializerMethodField(help_text="Its value of that metric; null where there is none.")
    model_bytes = serializers.SerializerMethodField(help_text="Of the Hugging Face directory; null when not stored.")
    all_bytes = serializers.SerializerMethodField(help_text="With the optimiser; null when not stored.")

    class Meta:
        model = Checkpoint
        fields = (
            "id", "name", "attempt", "rollout", "next_rollout", "bytes", "elapsed_s", "at", "superseded", "stored", "best", "best_value",
            "model_bytes", "all_bytes",
        )  # fmt: skip

    def _files(self, row: Checkpoint) -> StoredCheckpoint | None:
        found: StoredCheckpoint | None = self.context["files"].get(row.pk)
        return found

    def get_stored(self, row: Checkpoint) -> bool:
        """Whether its files are there."""
        return self._files(row) is not None

    def get_best(self, row: Checkpoint) -> bool:
        """Whether a fork of ``best`` goes on from it."""
        files = self._files(row)
        return files is not None and files.is_best

    def get_best_value(self, row: Checkpoint) -> float | None:
        """Null too when the value is not finite."""
        files = self._files(row)
        value = None if files is None else files.best_value
        return value if value is not None and isfinite(value) else None

    def get_model_bytes(self, row: Checkpoint) -> int | None:
        """Of the files, before they are in a tar."""
        files = self._files(row)
        return None if files is None else files.model_bytes

    def get_all_bytes(self, row: Checkpoint) -> int | None:
        """Of the files, before they are in a tar."""
        files = self._files(row)
        return None if files is None else files.all_bytes


class CommandSerializer(serializers.ModelSerializer[Command]):
    """What somebody asked of the trainer, and its answer; ``accepted`` is null before it."""

    by = serializers.CharField(source="by.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = Command
        fields = (
            "id", "action", "attempt", "environment", "weight", "reason", "by", "created_at", "sent_at", "acknowledged_at", "accepted",
            "message", "effective_rollout",
        )  # fmt: skip


class PresetSerializer(serializers.Serializer[Any]):
    """Settings to start from; ``why_not`` says why a run of them cannot start on this machine."""

    name = serializers.CharField()
    description = serializers.CharField()
    why_not = serializers.CharField()
    config = serializers.SerializerMethodField()

    def get_config(self, preset: Any) -> dict[str, Any]:
        """All settings."""
        values: dict[str, Any] = preset.config.model_dump(mode="json")
        return values


class RolloutSerializer(serializers.Serializer[Any]):
    """All metrics of one rollout of the line that holds; null where there was nothing to measure or no finite number."""

    rollout = serializers.IntegerField()
    attempt = serializers.IntegerField()
    metrics = serializers.DictField(child=serializers.FloatField(allow_null=True))
    not_finite = serializers.DictField(child=serializers.CharField(), help_text="Metric → nan, inf or -inf.")


class MetricNamesSerializer(serializers.Serializer[Any]):
    """Every metric the run has reported."""

    names = serializers.ListField(child=serializers.CharField())


class SeriesSerializer(serializers.Serializer[Any]):
    """Metrics by name: ``x`` (rollout), ``y`` (null: gap), marks of values that are not finite, tails that resumes left."""

    series = serializers.DictField(child=serializers.JSONField())


class QueueSerializer(serializers.Serializer[Any]):
    """What holds a machine, and what waits, in the order in which it will start."""

    active = RunSerializer(many=True)
    waiting = RunSerializer(many=True)


class PlaceSerializer(serializers.Serializer[Any]):
    """Where to move a run that waits."""

    to = serializers.ChoiceField(choices=("first", "up", "down", "last"))


class MovedSerializer(serializers.Serializer[Any]):
    """The new place, from 1."""

    place = serializers.IntegerField()
