"""Flags, what they do to a run, kinds of flags; queues and the labels given in them. Writes go through the ``services`` files."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from webapp.environments.models import Environment
from webapp.episodes.models import Episode
from webapp.runs.models import Command, Run

FINE = "fine"  # the label of a review that found nothing wrong


class FlagKind(models.Model):
    """What can be wrong. Retired kinds stay on the flags that have them and are offered no more."""

    key = models.SlugField(max_length=60, unique=True)
    label = models.CharField(max_length=80, unique=True)
    description = models.TextField(blank=True, default="")
    position = models.IntegerField()  # order of lists, ascending
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("position", "id")

    def __str__(self) -> str:
        return self.label


class Act(models.TextChoices):
    """What a flag may do beyond being read."""

    DOWN_WEIGHT = "down_weight", "down-weight"
    QUARANTINE = "quarantine", "quarantine"
    PURGE_MEMORY = "purge_memory", "purge from memory"


class Effect(models.Model):
    """Something done to an environment because of flags; holds until it is undone. One of each act at a time.

    ``command`` is None where no trainer will read it (the run had ended, or a resume left the environment behind): the effect then
    counts for exports and queues only. Whether the trainer obeys is read from the commands, never stored here.
    """

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="effects")
    act = models.TextField(choices=Act.choices)
    weight = models.FloatField(null=True)  # of a down-weighted environment's samples, in [0, 1); None for other acts
    command = models.ForeignKey(Command, models.SET_NULL, null=True, related_name="+")
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(auto_now_add=True)
    undo = models.ForeignKey(Command, models.SET_NULL, null=True, related_name="+")
    undone_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    undone_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["environment", "act"], condition=Q(undone_at=None), name="one_effect_of_each_act"
            ),
        )

    def __str__(self) -> str:
        return f"{self.get_act_display()} of {self.environment}"


class Flag(models.Model):
    """Somebody's judgement about an environment, its hint, an episode, a turn, or lines of the program.

    ``episode``, ``turn`` and the lines are what it is about or, for a flag of something larger, the evidence.
    """

    class Subject(models.TextChoices):
        ENVIRONMENT = "environment", "environment"
        HINT = "hint", "hint"
        EPISODE = "episode", "episode"
        TURN = "turn", "turn"
        LINES = "lines", "lines"

    class Severity(models.IntegerChoices):
        MINOR = 1, "minor"
        MAJOR = 2, "major"
        CRITICAL = 3, "critical"

    NOTE = "note"
    WISHES = ((NOTE, "note"), *Act.choices)

    run = models.ForeignKey(Run, models.CASCADE, related_name="flags")
    environment = models.ForeignKey(Environment, models.CASCADE, related_name="flags")
    subject = models.TextField(choices=Subject.choices)
    episode = models.ForeignKey(Episode, models.CASCADE, null=True, related_name="flags")
    turn = models.IntegerField(null=True)  # counted from 0, as the transcript is
    first_line = models.IntegerField(null=True)  # of the program, counted from 1
    last_line = models.IntegerField(null=True)
    kind = models.ForeignKey(FlagKind, models.PROTECT, related_name="flags")
    severity = models.IntegerField(choices=Severity.choices, default=Severity.MAJOR)
    comment = models.TextField(blank=True, default="")
    wish = models.TextField(choices=WISHES, default=NOTE)  # what whoever flagged wants done
    weight = models.FloatField(null=True)  # for the wish to down-weight
    effect = models.ForeignKey(Effect, models.SET_NULL, null=True, related_name="flags")  # None: a note or a proposal
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="flags")
    at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True)
    withdrawn_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    withdrawn_reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = (
            models.CheckConstraint(
                name="flag_points_at_its_subject",
                condition=(
                    Q(subject__in=["environment", "hint"])
                    | Q(subject="episode", episode__isnull=False)
                    | Q(subject="turn", episode__isnull=False, turn__isnull=False)
                    | Q(subject="lines", first_line__isnull=False)
                ),
            ),
            models.CheckConstraint(
                name="flag_lines_in_order",
                condition=Q(first_line=None, last_line=None) | Q(first_line__gte=1, last_line__gte=F("first_line")),
            ),
        )
        indexes = (
            models.Index(fields=["environment", "-id"], name="flag_environment"),
            models.Index(fields=["run", "-id"], name="flag_run"),
            models.Index(fields=["-at", "-id"], name="flag_newest"),
        )

    def __str__(self) -> str:
        return f"flag {self.pk}"

    @property
    def is_proposal(self) -> bool:
        """Something more than a note is wanted, and nobody has put it into effect."""
        return self.wish != self.NOTE and self.effect_id is None and self.withdrawn_at is None

    @property
    def lines(self) -> str:
        """ "12" or "12–14", empty without lines."""
        if self.first_line is None:
            return ""
        return str(self.first_line) if self.last_line == self.first_line else f"{self.first_line}–{self.last_line}"

    @property
    def turn_number(self) -> int | None:
        """The turn as people count, from 1."""
        return None if self.turn is None else self.turn + 1


class Queue(models.Model):
    """Environments of one run that people are to judge, the most suspicious first."""

    name = models.CharField(max_length=120)
    run = models.ForeignKey(Run, models.CASCADE, related_name="queues")
    signals = models.JSONField(default=list)  # keys of signals.SIGNALS that count; empty: every environment is an item
    threshold = models.FloatField(default=0.0)  # least suspicion of an item
    skill = models.TextField(blank=True, default="")  # only environments of this skill; empty: all
    reviewers_per_item = models.PositiveSmallIntegerField(default=1)
    blind = models.BooleanField(default=True)  # others' labels stay hidden until all are given
    reservation_minutes = models.PositiveSmallIntegerField(default=15)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True)

    # How far the rules have looked.
    scanned_through = models.IntegerField(default=-1)  # newest rollout whose environments were looked at
    scanned_attempt = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.name

    @property
    def hides_labels(self) -> bool:
        """Blind, with somebody to be blind to."""
        return self.blind and self.reviewers_per_item > 1


class QueueItem(models.Model):
    """One environment in a queue, with why it is there. It is done when each of its reviews is given."""

    queue = models.ForeignKey(Queue, models.CASCADE, related_name="items")
    environment = models.ForeignKey(Environment, models.CASCADE, related_name="queue_items")
    score = models.FloatField()  # suspicion when it was added
    reasons = models.JSONField(default=list)  # signals.Reason, the heaviest first; empty: added by hand
    added_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")  # None: a rule
    added_at = models.DateTimeField(auto_now_add=True)
    completed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["queue", "environment"], name="item_once"),)
        indexes = (models.Index(fields=["queue", "-score", "id"], name="item_order"),)

    def __str__(self) -> str:
        return f"{self.environment} in {self.queue}"


class Review(models.Model):
    """One of an item's places for a label: open, reserved for somebody until a time, or given.

    A place is taken by a conditional update that must change exactly one row; nobody can hold two places of one item.
    """

    item = models.ForeignKey(QueueItem, models.CASCADE, related_name="reviews")
    place = models.PositiveSmallIntegerField()  # 0 … reviewers_per_item − 1
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="reviews")
    reserved_until = models.DateTimeField(null=True)
    given_at = models.DateTimeField(null=True)
    kind = models.ForeignKey(FlagKind, models.PROTECT, null=True, related_name="reviews")  # None, once given: fine
    severity = models.IntegerField(choices=Flag.Severity.choices, default=Flag.Severity.MAJOR)
    comment = models.TextField(blank=True, default="")
    wish = models.TextField(choices=Flag.WISHES, default=Flag.NOTE)
    weight = models.FloatField(null=True)
    flag = models.OneToOneField(Flag, models.SET_NULL, null=True, related_name="review")

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["item", "place"], name="review_place_once"),
            models.UniqueConstraint(
                fields=["item", "reviewer"], condition=Q(reviewer__isnull=False), name="review_reviewer_once"
            ),
        )
        indexes = (models.Index(fields=["reviewer", "-given_at"], name="review_of_person"),)

    @property
    def label(self) -> str:
        """The kind's key, or "fine". Only of a given one."""
        return self.kind.key if self.kind is not None else FINE


class Skip(models.Model):
    """Somebody passed an item over; it is not offered to them again until they ask."""

    item = models.ForeignKey(QueueItem, models.CASCADE, related_name="skips")
    reviewer = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["item", "reviewer"], name="skip_once"),)
