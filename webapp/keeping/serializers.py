"""Disk use, retention and imports as the API shows and takes them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from webapp.keeping.forms import MOST_CHECKPOINTS, MOST_DAYS, MOST_EVERY
from webapp.keeping.models import DiskUse, ImportJob
from webapp.runs.import_copy import Copying


class DiskUseSerializer(serializers.ModelSerializer[DiskUse]):
    """What a run's directory held when it was last measured."""

    run = serializers.IntegerField(source="run_id", read_only=True)
    name = serializers.CharField(source="run.name", read_only=True)
    status = serializers.CharField(source="run.status", read_only=True)
    owner = serializers.CharField(source="run.owner.username", default=None, allow_null=True, read_only=True)
    deleted_at = serializers.DateTimeField(source="run.deleted_at", allow_null=True, read_only=True)
    is_ours = serializers.BooleanField(
        read_only=True, help_text="False: imported where it lies, so deleting the run frees nothing."
    )

    class Meta:
        model = DiskUse
        fields = (
            "run", "name", "status", "owner", "deleted_at", "total_bytes", "checkpoint_bytes", "tensor_bytes", "log_bytes", "is_ours",
            "measured_at",
        )  # fmt: skip


class TotalsSerializer(serializers.Serializer[Any]):
    """Sums over all measured runs, in bytes."""

    runs = serializers.IntegerField(help_text="All of it.")
    checkpoints = serializers.IntegerField()
    tensors = serializers.IntegerField(help_text="Token files.")
    logs = serializers.IntegerField(help_text="Event logs and printed output.")
    deleted = serializers.IntegerField(help_text="Of deleted runs, freed when they can no longer be restored.")
    database = serializers.IntegerField()
    unmeasured = serializers.IntegerField(help_text="How many runs are not in the sums yet.")
    free = serializers.IntegerField(allow_null=True, help_text="Of the disk of SPADEWORK_HOME; null when unknown.")
    disk = serializers.IntegerField(allow_null=True, help_text="Its size; null when unknown.")


def _days(text: str) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=MOST_DAYS, help_text=text
    )  # fmt: skip


def _kept(text: str, *, least: int, most: int) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=least, max_value=most, help_text=f"{text} Null: the preset's own."
    )  # fmt: skip


class RetentionSettingsSerializer(serializers.Serializer[Any]):
    """How long what is kept; null is the default, what is left out stays."""

    restore_days = _days("A deleted run can be restored for so long; null: SPADEWORK_RESTORE_DAYS.")
    tensor_days = _days("Token files after a run's end; null: as long as the run.")
    sample_days = _days("Machine measurements after a run's end; null: as long as the run.")
    transcript_days = _days("Transcripts after a run's end; null: as long as the run.")
    log_days = _days("Printed logs after a run's end; null: as long as the run.")
    keep_last = _kept("checkpoint.keep_last of runs started from a preset.", least=1, most=MOST_CHECKPOINTS)
    keep_every = _kept("checkpoint.keep_every.", least=0, most=MOST_EVERY)
    keep_best = _kept("checkpoint.keep_best.", least=0, most=MOST_CHECKPOINTS)


class ChangedRetentionSerializer(RetentionSettingsSerializer):
    """New settings; ``confirmed`` is the digest of their plan, needed when they remove something."""

    confirmed = serializers.CharField(required=False, allow_blank=True, max_length=64, default="")


class RemovalSerializer(serializers.Serializer[Any]):
    """What goes for good at the next housekeeping, within the hour."""

    runs = serializers.IntegerField(help_text="Deleted runs whose time for restoring is over.")
    run_bytes = serializers.IntegerField()
    names = serializers.ListField(child=serializers.CharField(), help_text="Of the first of these runs.")
    tensor_files = serializers.IntegerField(help_text="Token files.")
    tensor_bytes = serializers.IntegerField()
    samples = serializers.IntegerField(help_text="Machine measurements.")
    transcripts = serializers.IntegerField()
    transcript_bytes = serializers.IntegerField(help_text="In the database.")
    event_log_bytes = serializers.IntegerField(
        help_text="Of the event logs they are also taken out of, with all else these hold."
    )
    logs = serializers.IntegerField(help_text="Printed logs.")
    log_bytes = serializers.IntegerField()


class RetentionSerializer(RetentionSettingsSerializer):
    """The settings that hold."""

    restore_days_in_force = serializers.IntegerField(help_text="With the default where restore_days is null.")
    removes = RemovalSerializer()


class RetentionPlanSerializer(serializers.Serializer[Any]):
    """What settings would remove; ``digest`` confirms exactly this."""

    removes = RemovalSerializer()
    digest = serializers.CharField()


class ImportSerializer(serializers.ModelSerializer[ImportJob]):
    """A run directory being taken in: ``done`` of ``total`` events. ``run`` is the run it became, ``failure`` why it did not."""

    run = serializers.IntegerField(source="run_id", allow_null=True, read_only=True)
    by = serializers.CharField(source="by.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = ImportJob
        fields = (
            "id", "path", "name", "copying", "accept_damage", "state", "done", "total", "run", "failure", "by", "created_at",
            "finished_at",
        )  # fmt: skip


class NewImportSerializer(serializers.Serializer[Any]):
    """A run directory to import."""

    path = serializers.CharField(max_length=1000, help_text="Below SPADEWORK_IMPORT_ROOT, with slashes.")
    name = serializers.CharField(
        required=False, allow_blank=True, max_length=120, default="", help_text="By default the directory's."
    )
    copying = serializers.ChoiceField(
        choices=Copying.values, default=str(Copying.NOTHING), help_text="What is copied into our own runs."
    )
    accept_damage = serializers.BooleanField(default=False, help_text="Take in a log with holes or unreadable lines.")


class FolderSerializer(serializers.Serializer[Any]):
    """A folder to look into, or to import when it holds a run; ``run`` is the one it was imported as."""

    name = serializers.CharField()
    path = serializers.CharField()
    is_run = serializers.BooleanField()
    changed_at = serializers.DateTimeField()
    run = serializers.IntegerField(source="run.pk", default=None, allow_null=True)


class ListingSerializer(serializers.Serializer[Any]):
    """Folders in a folder. ``left_out`` entries are links, have names that cannot be shown, or are too many."""

    path = serializers.CharField(allow_blank=True)
    is_run = serializers.BooleanField()
    folders = FolderSerializer(many=True)
    left_out = serializers.IntegerField()
