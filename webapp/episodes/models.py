"""Episodes (what lists and charts need) and transcripts (read one at a time). Filled from the event log."""

from __future__ import annotations

from django.db import models

from webapp.environments.models import Environment
from webapp.runs.models import Recorded


class Episode(Recorded):
    """One play of one environment from reset to end, in one arm."""

    class Arm(models.TextChoices):
        UNHINTED = "unhinted", "unhinted"
        HINTED = "hinted", "hinted"

    environment = models.ForeignKey(Environment, models.CASCADE, null=True, related_name="episodes")
    environment_key = models.TextField()
    key = models.TextField()  # "r0004-s03/o0/u/05": environment / offset / arm / play
    arm = models.TextField(choices=Arm.choices)
    offset = models.IntegerField()
    play = models.IntegerField()
    seed = models.BigIntegerField()
    status = models.TextField()  # trainer.events.EpisodeStatus
    reward = models.FloatField(null=True)  # None exactly for faults
    turns = models.IntegerField()
    prompt_tokens = models.IntegerField()
    total_tokens = models.IntegerField()
    trained_tokens = models.IntegerField()
    fault = models.TextField(blank=True, default="")
    elapsed_s = models.FloatField()
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "key"], name="episode_once"),)
        indexes = (
            models.Index(fields=["run", "-id"], name="episode_newest"),
            models.Index(fields=["run", "rollout", "arm"], name="episode_rollout"),
            models.Index(fields=["environment", "seed", "arm"], name="episode_pair"),
        )

    def __str__(self) -> str:
        return self.key


class Transcript(models.Model):
    """The turns of an episode: a list of `trainer.events.Turn`. Stored out of line and uncompressed, for speed of ingest."""

    episode = models.OneToOneField(Episode, models.CASCADE, primary_key=True, related_name="transcript")
    turns = models.JSONField()
    final_observation = models.TextField(blank=True, default="")
    removed_at = models.DateTimeField(null=True)  # retention emptied it then (texts.py)
