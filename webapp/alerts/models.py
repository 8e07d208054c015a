"""Alerts, the webhooks that want them, and every delivery. Writes: ``recording.py``, ``services.py``, ``delivering.py``."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from webapp.runs.models import Run


class Kind(models.TextChoices):
    """What can be alerted; the label is what pages say."""

    NOT_FINITE = "not_finite", "not finite"
    UPDATE_SKIPPED = "update_skipped", "update skipped"
    NEVER_WON = "never_won", "nothing won"
    ALWAYS_WON = "always_won", "everything won"
    NO_SPREAD = "no_spread", "no spread in any group"
    GATE_COLLAPSE = "gate_collapse", "gates reject almost everything"
    RUN_LOST = "run_lost", "run lost"
    RUN_FAILED = "run_failed", "run failed"
    RUN_COMPLETED = "run_completed", "run completed"
    RUN_STOPPED = "run_stopped", "run stopped"


class Alert(models.Model):
    """Something to look at. One that goes on over rollouts is one alert, from ``rollout`` to ``last_rollout``."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="alert_rows")
    kind = models.TextField(choices=Kind.choices)
    attempt = models.IntegerField()
    rollout = models.IntegerField(default=-1)  # -1: of the run as a whole
    last_rollout = models.IntegerField(default=-1)
    message = models.TextField()
    at = models.DateTimeField()  # when it happened, not when it was taken in
    # Of an attempt that a resume left behind, from where it was resumed on; listed, and not counted in Run.alerts.
    superseded = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "kind", "rollout"], name="alert_once"),)
        indexes = (models.Index(fields=["run", "-id"], name="alert_of_run"),)

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.run}"

    @property
    def span(self) -> str:
        """ "12" or "12–15", empty for one of the run as a whole."""
        if self.rollout < 0:
            return ""
        return str(self.rollout) if self.rollout == self.last_rollout else f"{self.rollout}–{self.last_rollout}"

    @property
    def is_bad(self) -> bool:
        """Something went wrong, rather than came to its end."""
        return self.kind not in (Kind.RUN_COMPLETED, Kind.RUN_STOPPED)


class Webhook(models.Model):
    """An address that alerts are sent to. The secret that signs them is derived from ``salt`` and is stored nowhere."""

    name = models.CharField(max_length=80)
    url = models.CharField(max_length=500)
    kinds = models.JSONField(default=list)  # empty: all
    salt = models.CharField(max_length=64)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    failures = models.IntegerField(default=0)  # tries in a row that failed
    disabled_at = models.DateTimeField(null=True)
    disabled_reason = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One alert (None: a test) on its way to one webhook; ``body`` is fixed when it is made, so that every try sends the same."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        DELIVERED = "delivered", "delivered"
        FAILED = "failed", "given up"

    webhook = models.ForeignKey(Webhook, models.CASCADE, related_name="deliveries")
    alert = models.ForeignKey(Alert, models.CASCADE, null=True, related_name="deliveries")
    body = models.TextField()
    state = models.TextField(choices=State.choices, default=State.WAITING)
    tries = models.IntegerField(default=0)
    next_at = models.DateTimeField()  # not before; while a worker is at it, when it is taken for dead
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    status = models.IntegerField(null=True)  # HTTP status of the newest try; None when no answer came
    answer = models.TextField(blank=True, default="")  # its beginning, or why none came

    class Meta:
        constraints = (models.UniqueConstraint(fields=["webhook", "alert"], name="delivery_once"),)
        indexes = (
            models.Index(fields=["webhook", "-id"], name="delivery_newest"),
            models.Index(fields=["state", "next_at"], name="delivery_due"),
        )
