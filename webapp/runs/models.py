"""Runs and what happened to them. Writes go through ``services.py``, ``journal.py``, ``ingest.py`` and ``supervisor/``."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from webapp.runs.states import ACTIVE, AT_REST, Status


class Run(models.Model):
    """One training run. Its status is only ever changed by ``journal.move`` (conditional update, who, when, why)."""

    name = models.TextField()
    slug = models.SlugField(max_length=120, unique=True, null=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="runs")
    status = models.TextField(choices=Status.choices, default=Status.DRAFT)
    config = models.JSONField()
    preset = models.TextField(blank=True, default="")
    seed = models.BigIntegerField()
    directory = models.TextField(blank=True, default="")
    imported_from = models.TextField(blank=True, default="", db_default="")  # where it was made; "" for a run made here
    parent = models.ForeignKey("self", models.SET_NULL, null=True, related_name="clones")
    fork_checkpoint = models.TextField(blank=True, default="")  # of `parent`: the run goes on from there
    tags = models.JSONField(default=list)
    notes = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    queued_at = models.DateTimeField(null=True)
    queue_rank = models.BigIntegerField(default=0)  # the queue goes by rank, then by time
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    archived_at = models.DateTimeField(null=True)  # put aside: not in the list unless asked for
    deleted_at = models.DateTimeField(null=True)  # restorable until housekeeping removes rows and files for good

    # Filled from the event log.
    last_cursor = models.BigIntegerField(default=0)
    last_event_at = models.DateTimeField(null=True)
    attempt = models.IntegerField(default=0)  # number of the newest attempt, 0 before the first
    rollout = models.IntegerField(null=True)  # the rollout under way, counted from 0
    rollouts_done = models.IntegerField(default=0)
    total_rollouts = models.IntegerField()
    phase = models.JSONField(
        default=dict
    )  # {"rollout": 4, "phases": {"design": {"state", "done", "total", "elapsed_s"}, …}}
    latest = models.JSONField(default=dict)  # newest value of every metric, by name
    eta_s = models.FloatField(null=True)  # seconds still to go when `eta_at` was measured
    eta_at = models.DateTimeField(null=True)
    failure_owner = models.TextField(blank=True, default="")
    failure_message = models.TextField(blank=True, default="")
    warnings = models.IntegerField(default=0)
    alerts = models.IntegerField(default=0, db_default=0)  # how many the feature of that name has listed
    gap = models.BooleanField(default=False)  # the event log has a hole: what is shown is not everything

    # Set by housekeeping; older than `finished_at` once the run was resumed and has ended again.
    text_removed_at = models.DateTimeField(null=True)  # texts of transcripts; each transcript says it too
    log_removed_at = models.DateTimeField(null=True)  # log.txt

    # Held by the supervisor.
    lease = models.UUIDField(null=True)  # changes with every claim; a supervisor that no longer holds it must let go
    gpu_set = models.TextField(blank=True, default="")  # host and devices it runs on
    heartbeat_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["gpu_set"], condition=Q(status__in=ACTIVE), name="one_active_run_per_gpu_set"
            ),
        )
        indexes = (
            models.Index(fields=["status", "queued_at"], name="run_status_queued"),
            models.Index(fields=["-created_at", "-id"], name="run_newest"),
        )

    def __str__(self) -> str:
        return self.slug or self.name

    @property
    def is_at_rest(self) -> bool:
        """True when no process works on it and none will start by itself: it can be put aside or deleted."""
        return self.status in AT_REST


class Retention(models.Model):
    """How long what is kept: one row, set by an admin (``retention.py``). None: the default, which is said at each field."""

    restore_days = models.IntegerField(null=True)  # a deleted run can be restored for so long; SPADEWORK_RESTORE_DAYS
    tensor_days = models.IntegerField(null=True)  # token files after a run's end; as long as the run
    sample_days = models.IntegerField(null=True)  # measurements of the machine after a run's end; as long as the run
    transcript_days = models.IntegerField(null=True)  # texts of transcripts after a run's end; as long as the run
    log_days = models.IntegerField(null=True)  # log.txt after a run's end; as long as the run
    keep_last = models.IntegerField(null=True)  # checkpoint.keep_last of new runs; the preset's own
    keep_every = models.IntegerField(null=True)  # checkpoint.keep_every; the preset's own
    keep_best = models.IntegerField(null=True)  # checkpoint.keep_best; the preset's own


class SavedView(models.Model):
    """A way one person likes to look at the list of runs: the query of its address, under a name."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="run_views")
    name = models.TextField()
    query = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["user", "name"], name="saved_view_once"),)

    def __str__(self) -> str:
        return self.name


class RunTransition(models.Model):
    """Every change of status: who, when, why."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="transitions")
    source = models.TextField()
    target = models.TextField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )  # None: the machinery
    why = models.TextField(blank=True, default="")
    at = models.DateTimeField()

    class Meta:
        indexes = (models.Index(fields=["run", "id"], name="transition_run"),)


class Attempt(models.Model):
    """One process life of a run. A resume is a new attempt that starts at a checkpoint."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="attempts")
    number = models.IntegerField()
    start_rollout = models.IntegerField(null=True)
    checkpoint = models.TextField(null=True)  # directory name it resumed from
    superseded_from = models.IntegerField(null=True)  # rows of this attempt from this rollout on are superseded
    engine = models.JSONField(default=dict)
    versions = models.JSONField(default=dict)
    sandbox_tier = models.TextField(blank=True, default="")
    host = models.TextField(blank=True, default="")
    pid = models.IntegerField(null=True)
    process_started = models.BigIntegerField(
        null=True
    )  # start time of `pid` in clock ticks since boot; tells a reused pid
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    exit_code = models.IntegerField(null=True)  # negative: the signal that ended it
    reported_state = models.TextField(blank=True, default="")  # newest run_state of its log
    reported_owner = models.TextField(blank=True, default="")
    reported_reason = models.TextField(blank=True, default="")
    log_offset = models.BigIntegerField(default=0)  # where its output starts in log.txt, bytes

    # How far its event log is in the database.
    ingest_file = models.TextField(blank=True, default="")
    ingest_offset = models.BigIntegerField(default=0)
    ingest_seq = models.BigIntegerField(default=0)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "number"], name="attempt_once"),)


class Event(models.Model):
    """The live path of record: what the trainer logged (attempt and seq set) and what people did (both None).

    Heavy texts (transcripts, code, prompts, documents) are kept once, in the row the event was turned into; the payload here is
    compact, with the `id` of that row, and is what sockets carry.
    """

    pk = models.CompositePrimaryKey("run_id", "cursor")
    run = models.ForeignKey(
        Run, models.CASCADE, related_name="events", db_index=False
    )  # the primary key begins with it
    cursor = models.BigIntegerField()
    attempt = models.IntegerField(null=True)
    seq = models.BigIntegerField(null=True)
    rollout = models.IntegerField(null=True)
    kind = models.TextField()
    at = models.DateTimeField()
    payload = models.JSONField()
    problem = models.TextField(
        blank=True, default=""
    )  # why it could not be turned into rows; the payload is then complete

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "seq"], name="event_once"),)
        indexes = (models.Index(fields=["run", "kind", "cursor"], name="event_kind"),)


class Recorded(models.Model):
    """What an attempt recorded in a rollout. Superseded when a later attempt starts at or before that rollout.

    The run has no index of its own: every table has one that begins with it. A second one costs ingest, and for a run that the
    statistics do not know yet PostgreSQL takes it and sorts all the run's rows to show one page of them.
    """

    run = models.ForeignKey(Run, models.CASCADE, related_name="%(class)ss", db_index=False)
    attempt = models.IntegerField()
    rollout = models.IntegerField(null=True)
    superseded = models.BooleanField(default=False)

    class Meta:
        abstract = True


class MetricPoint(Recorded):
    """One metric of one rollout; None where there was nothing to measure, or what was measured is no finite number."""

    name = models.TextField()
    value = models.FloatField(null=True)
    mark = models.TextField(blank=True, default="", db_default="")  # nan, inf or -inf: measured, and not finite

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "rollout", "name"], name="metric_once"),)
        indexes = (models.Index(fields=["run", "name", "rollout"], name="metric_series"),)


class Checkpoint(Recorded):
    """A checkpoint the trainer reported as complete."""

    name = models.TextField()  # directory under checkpoints/
    next_rollout = models.IntegerField()  # the rollout a resume from it starts with
    bytes = models.BigIntegerField()
    elapsed_s = models.FloatField()
    at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "name"], name="checkpoint_once"),)


class SystemSample(models.Model):
    """What the trainer and all it started took of the machine at one moment. None: could not be measured."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="samples")
    attempt = models.IntegerField()
    at = models.DateTimeField()
    cpu_cores = models.FloatField(null=True)  # used since the sample before
    memory_bytes = models.BigIntegerField(null=True)  # memory shared by several processes is counted once
    processes = models.IntegerField()
    disk_bytes = models.BigIntegerField(null=True)  # of the run's directory
    disk_free_bytes = models.BigIntegerField(null=True)
    gpu_busy_percent = models.FloatField(null=True)  # mean over the machine's GPUs
    gpu_used_bytes = models.BigIntegerField(null=True)

    class Meta:
        indexes = (models.Index(fields=["run", "at"], name="sample_run"),)


class Command(models.Model):
    """What somebody asked the trainer to do, and what became of it."""

    ACTIONS = (
        "pause", "resume", "stop", "checkpoint", "quarantine", "release", "down_weight", "purge_memory", "restore_memory",
    )  # fmt: skip

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    run = models.ForeignKey(Run, models.CASCADE, related_name="commands")
    attempt = models.IntegerField(null=True)  # None: holds for the run, whatever the attempt
    action = models.TextField(choices=[(action, action) for action in ACTIONS])
    environment = models.TextField(null=True)  # key
    weight = models.FloatField(null=True)  # of down_weight: factor on the environment's advantages, in (0, 1]
    reason = models.TextField(blank=True, default="")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    accepted = models.BooleanField(null=True)
    message = models.TextField(blank=True, default="")
    effective_rollout = models.IntegerField(null=True)

    class Meta:
        indexes = (models.Index(fields=["run", "created_at"], name="command_run"),)
