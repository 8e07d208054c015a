"""Sessions in which somebody tries a checkpoint, and what was asked and answered in them. The rows are the truth."""

from __future__ import annotations

from django.db import models

from webapp.environments.models import Environment, SandboxJob
from webapp.runs.models import Run


class Trial(SandboxJob):
    """One person's session with one checkpoint. While a worker holds the model, it holds the lease."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting for a worker"
        LOADING = "loading", "loading the weights"
        READY = "ready", "ready"
        ENDED = "ended", "ended"
        EXPIRED = "expired", "expired"
        FAILED = "failed", "failed"
        LOST = "lost", "lost"

    run = models.ForeignKey(Run, models.CASCADE, related_name="trials")
    checkpoint = models.TextField()  # name of its directory
    state = models.TextField(choices=State.choices, default=State.WAITING)
    facts = models.JSONField(default=dict)  # what the trainer said of the model when it was ready
    host = models.TextField(blank=True, default="")
    conversation = models.IntegerField(default=1)  # number of the one that goes on
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = (models.Index(fields=["by", "state"], name="trial_person"),)

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint}"


#: States in which a session can still be used.
OPEN = (Trial.State.WAITING, Trial.State.LOADING, Trial.State.READY)
#: States in which a worker must hold its lease; without it the session is lost.
HELD = (Trial.State.LOADING, Trial.State.READY)


class Exchange(models.Model):
    """One thing asked of the model, and its answer: a message and its reply, or a play and its turns."""

    class Kind(models.TextChoices):
        CHAT = "chat", "chat"
        PLAY = "play", "play"

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        RUNNING = "running", "running"
        DONE = "done", "done"
        REFUSED = "refused", "refused"
        LOST = "lost", "lost"

    trial = models.ForeignKey(Trial, models.CASCADE, related_name="exchanges")
    kind = models.TextField(choices=Kind.choices)
    state = models.TextField(choices=State.choices, default=State.WAITING)
    asked_at = models.DateTimeField(auto_now_add=True)
    answered_at = models.DateTimeField(null=True)
    failure = models.TextField(blank=True, default="")  # why there is no answer
    answer = models.JSONField(default=dict)  # `reply` or `played` of the trainer
    # A chat
    conversation = models.IntegerField(default=0)
    system = models.TextField(blank=True, default="")
    text = models.TextField(blank=True, default="")
    temperature = models.FloatField(null=True)
    reply_tokens = models.IntegerField(null=True)  # limit that was asked for
    # A play
    environment = models.ForeignKey(Environment, models.CASCADE, null=True, related_name="+")
    seed = models.BigIntegerField(null=True)
    arm = models.TextField(blank=True, default="")
    play = models.IntegerField(default=0)  # number of the draw
    turns = models.JSONField(default=list)  # trainer.events.Turn, texts cut
    observation = models.TextField(blank=True, default="")  # what the model looks at now, or saw last

    class Meta:
        indexes = (models.Index(fields=["trial", "kind", "id"], name="exchange_of_trial"),)

    @property
    def is_open(self) -> bool:
        """The model still owes an answer."""
        return self.state in (self.State.WAITING, self.State.RUNNING)


OWED = (Exchange.State.WAITING, Exchange.State.RUNNING)
