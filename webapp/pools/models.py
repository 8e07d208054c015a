"""A pool: chosen environments of any runs, and the archive that was built of those that passed the gates once more."""

from __future__ import annotations

from django.db import models

from webapp.environments.models import Environment, SandboxJob


class Pool(SandboxJob):
    """Chosen environments. While it is built, ``tested`` of ``total`` programs have been through the gates again."""

    class State(models.TextChoices):
        DRAFT = "draft", "draft"
        BUILDING = "building", "building"
        READY = "ready", "ready"
        FAILED = "failed", "failed"

    name = models.TextField()
    licence = models.TextField(blank=True, default="")
    state = models.TextField(choices=State.choices, default=State.DRAFT)
    tested = models.IntegerField(default=0)
    total = models.IntegerField(default=0)
    finished_at = models.DateTimeField(null=True)
    archive_bytes = models.BigIntegerField(null=True)
    archive_sha256 = models.TextField(blank=True, default="")

    class Meta:
        indexes = (models.Index(fields=["-id"], name="pool_newest"),)

    def __str__(self) -> str:
        return self.name


class PoolItem(models.Model):
    """One environment of a pool and what the gates said of it when the pool was built (None: not judged in this build)."""

    pool = models.ForeignKey(Pool, models.CASCADE, related_name="items")
    environment = models.ForeignKey(Environment, models.CASCADE, related_name="pool_items")
    accepted = models.BooleanField(null=True)
    failed_stage = models.TextField(blank=True, default="")
    reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["pool", "environment"], name="pool_item_once"),)
