"""Imports that people asked for in the browser, and what runs take of the disk."""

from __future__ import annotations

from django.db import models

from webapp.environments.models import SandboxJob
from webapp.runs.import_copy import Copying
from webapp.runs.models import Run


class ImportJob(SandboxJob):
    """A run directory below SPADEWORK_IMPORT_ROOT to be taken in by a worker; ``done`` of ``total`` events are in."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    path = models.TextField()  # below the root, with slashes
    name = models.TextField(blank=True, default="")
    copying = models.TextField(choices=Copying.choices, default=Copying.NOTHING)
    accept_damage = models.BooleanField(default=False)
    state = models.TextField(choices=State.choices, default=State.WAITING)
    done = models.IntegerField(default=0)
    total = models.IntegerField(default=0)
    run = models.ForeignKey(Run, models.SET_NULL, null=True, related_name="+")
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = (models.Index(fields=["-id"], name="import_newest"),)
        constraints = (
            models.UniqueConstraint(
                fields=["path"], condition=models.Q(state="waiting"), name="one_import_of_a_path_at_a_time"
            ),
        )

    def __str__(self) -> str:
        return self.path


class DiskUse(models.Model):
    """What a run's directory held when it was last measured."""

    run = models.OneToOneField(Run, models.CASCADE, related_name="disk_use")
    total_bytes = models.BigIntegerField()
    checkpoint_bytes = models.BigIntegerField()
    tensor_bytes = models.BigIntegerField()
    log_bytes = models.BigIntegerField()  # event log and printed output
    is_ours = models.BooleanField()  # False: imported where it lies, so no space is freed when the run is deleted
    measured_at = models.DateTimeField()

    class Meta:
        indexes = (models.Index(fields=["-total_bytes"], name="disk_largest"),)
