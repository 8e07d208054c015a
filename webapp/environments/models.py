"""Candidates, environments and what was measured on them; memory and corpus documents. Filled from the event log."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from webapp.runs.models import Recorded


class CorpusDocument(Recorded):
    """A document the designer was shown, at its first use in the run (`rollout`)."""

    key = models.TextField()  # the corpus's stable id
    title = models.TextField()
    text = models.TextField()  # as shown (cut)
    words = models.IntegerField()
    metadata = models.JSONField(default=dict)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "key"], name="document_once"),)

    def __str__(self) -> str:
        return self.title


class Candidate(Recorded):
    """One design attempt, accepted or not."""

    key = models.TextField()  # "r0004-s03-a1"
    environment_key = models.TextField()  # the slot it was for, "r0004-s03"
    slot = models.IntegerField()
    design_attempt = models.IntegerField()  # 1-based try of this slot
    skill = models.TextField()
    document = models.ForeignKey(CorpusDocument, models.SET_NULL, null=True, related_name="candidates")
    document_key = models.TextField(null=True)
    examples = models.JSONField(default=list)  # environment keys of the memory records shown
    counter_examples = models.JSONField(default=list)
    prompt = models.TextField()
    reply = models.TextField()
    code = models.TextField()
    class_name = models.TextField(null=True)
    prompt_tokens = models.IntegerField()
    reply_tokens = models.IntegerField()
    finish_reason = models.TextField()
    accepted = models.BooleanField()
    failed_stage = models.TextField(null=True)
    reason = models.TextField(blank=True, default="")
    stages = models.JSONField(default=list)  # trainer.events.StageResult

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "key"], name="candidate_once"),)
        indexes = (models.Index(fields=["run", "environment_key"], name="candidate_slot"),)

    def __str__(self) -> str:
        return self.key


class Environment(Recorded):
    """An accepted program, its hint and its state. (run, key) names one row that is not superseded."""

    class State(models.TextChoices):
        ACTIVE = "active", "active"
        BARRED = "barred", "barred"
        QUARANTINED = "quarantined", "quarantined"
        RETIRED = "retired", "retired"

    class HintState(models.TextChoices):
        PENDING = "", "not written yet"
        OK = "ok", "ok"
        NONE = "none", "no hint"
        LEAKY = "leaky", "leaky"

    key = models.TextField()  # "r0004-s03"
    slot = models.IntegerField()
    skill = models.TextField()
    class_name = models.TextField()
    code = models.TextField()
    code_digest = models.TextField()  # SHA-256 of the code, hex
    candidate = models.ForeignKey(Candidate, models.SET_NULL, null=True, related_name="environments")
    candidate_key = models.TextField()
    document = models.ForeignKey(CorpusDocument, models.SET_NULL, null=True, related_name="environments")
    document_key = models.TextField(null=True)
    examples = models.JSONField(default=list)
    counter_examples = models.JSONField(default=list)
    sandbox_tier = models.TextField(blank=True, default="")
    measures = models.JSONField(default=dict)
    added_at = models.DateTimeField()
    hint_state = models.TextField(choices=HintState.choices, blank=True, default="")
    hint_text = models.TextField(null=True)
    hint_tries = models.IntegerField(default=0)
    hint_reason = models.TextField(blank=True, default="")
    hint_reply_tokens = models.IntegerField(default=0)
    state = models.TextField(choices=State.choices, default=State.ACTIVE)
    state_reason = models.TextField(blank=True, default="")
    state_rollout = models.IntegerField(null=True)  # since when `state` holds
    training_weight = models.FloatField(default=1.0)  # factor on the advantages of its samples, in (0, 1]

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "attempt", "key"], name="environment_once"),
            models.UniqueConstraint(fields=["run", "key"], condition=Q(superseded=False), name="environment_current"),
        )
        indexes = (
            models.Index(fields=["run", "-rollout", "slot"], name="environment_newest"),
            models.Index(fields=["run", "skill"], name="environment_skill"),
        )

    def __str__(self) -> str:
        return f"{self.class_name} {self.key}"


class EnvironmentTransition(Recorded):
    """A change of an environment's state, as the trainer reported it."""

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="transitions")
    state = models.TextField()
    reason = models.TextField(blank=True, default="")
    at = models.DateTimeField()

    class Meta:
        indexes = (models.Index(fields=["run"], name="transition_of_run"),)


class RegretPoint(Recorded):
    """Measured at offset 0. `regret` is None when the state is not ok or leaky."""

    environment = models.ForeignKey(Environment, models.CASCADE, null=True, related_name="regret_points")
    environment_key = models.TextField()
    skill = models.TextField()
    state = models.TextField()  # ok, no_hint, leaky, faulty
    regret = models.FloatField(null=True)
    standard_error = models.FloatField(null=True)
    unhinted_mean = models.FloatField(null=True)
    hinted_mean = models.FloatField(null=True)
    unhinted_n = models.IntegerField()
    hinted_n = models.IntegerField()
    success_share = models.FloatField(null=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "environment_key"], name="regret_once"),)
        indexes = (models.Index(fields=["run", "rollout"], name="regret_rollout"),)


class DesignerReward(Recorded):
    """A designer sample that joined the batch of `rollout`. `reward` is None when masked."""

    environment = models.ForeignKey(Environment, models.CASCADE, null=True, related_name="designer_rewards")
    environment_key = models.TextField()
    skill = models.TextField()
    variant = models.TextField()
    win_rate = models.FloatField(null=True)
    regret = models.FloatField(null=True)
    anchor = models.FloatField(null=True)
    regret_term = models.FloatField(null=True)
    raw = models.FloatField()
    skill_mean = models.FloatField(null=True)
    weight = models.FloatField()
    environment_weight = models.FloatField(
        default=1.0
    )  # training_weight when the reward was computed; part of `reward`
    reward = models.FloatField(null=True)
    faulty = models.BooleanField()
    flushed = models.BooleanField(default=False)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["run", "attempt", "environment_key"], name="designer_reward_once"),
        )
        indexes = (models.Index(fields=["run", "rollout"], name="designer_reward_rollout"),)


class MemoryRecord(Recorded):
    """A memory record: added in `rollout`, removed in `removed_rollout` (None: still there)."""

    environment = models.ForeignKey(Environment, models.CASCADE, null=True, related_name="memory_records")
    environment_key = models.TextField()
    skill = models.TextField()
    class_name = models.TextField()
    snippet = models.TextField()
    success_share = models.FloatField()
    regret = models.FloatField(null=True)
    tags = models.JSONField(default=list)
    removed_rollout = models.IntegerField(null=True)
    removed_attempt = models.IntegerField(null=True)
    removed_reason = models.TextField(blank=True, default="")  # oldest, quarantined, purged

    class Meta:
        constraints = (models.UniqueConstraint(fields=["run", "attempt", "environment_key"], name="memory_once"),)
        indexes = (models.Index(fields=["run", "rollout"], name="memory_rollout"),)


class SandboxJob(models.Model):
    """Something a person asked of the sandbox. The row is the truth; a worker holds it by a lease while it works on it."""

    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(auto_now_add=True)  # when somebody last asked something of it
    lease = models.UUIDField(null=True)
    leased_until = models.DateTimeField(null=True)
    failure = models.TextField(blank=True, default="")  # why our side could not do it; the program is not to blame

    class Meta:
        abstract = True


class Variant(models.Model):
    """An environment's program edited by a person. It is judged and played in the sandbox and never sent into a run."""

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="variants")
    parent = models.ForeignKey("self", models.SET_NULL, null=True, related_name="children")  # None: the environment
    number = models.IntegerField()  # counted from 1 for each environment
    code = models.TextField()
    code_digest = models.TextField()  # SHA-256 of the code, hex
    note = models.TextField(blank=True, default="")  # what was changed and why
    by = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["environment", "number"], name="variant_once"),)

    def __str__(self) -> str:
        return f"{self.environment.key} variant {self.number}"


class GateRun(SandboxJob):
    """The sandbox's gates over an environment's (or a variant's) program once more; kept beside what the trainer recorded."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="gate_runs")
    variant = models.ForeignKey(Variant, models.CASCADE, null=True, related_name="gate_runs")
    state = models.TextField(choices=State.choices, default=State.WAITING)
    accepted = models.BooleanField(null=True)
    failed_stage = models.TextField(null=True)
    class_name = models.TextField(null=True)
    stages = models.JSONField(default=list)  # as trainer.events.StageResult
    measures = models.JSONField(default=dict)
    sandbox_tier = models.TextField(blank=True, default="")
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = (models.Index(fields=["environment", "-id"], name="gate_run_newest"),)


class PlaySession(SandboxJob):
    """A person's play: seed and actions, from which any worker rebuilds it by replay, and what the program answered."""

    class State(models.TextChoices):
        OPEN = "open", "open"
        OVER = "over", "over"
        CLOSED = "closed", "given up"
        EXPIRED = "expired", "expired"

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="play_sessions")
    variant = models.ForeignKey(Variant, models.CASCADE, null=True, related_name="play_sessions")
    seed = models.BigIntegerField()
    max_turns = models.IntegerField()
    state = models.TextField(choices=State.choices, default=State.OPEN)
    actions = models.JSONField(default=list)  # what the person did, in order
    replies = models.JSONField(default=list)  # what came back: first of the reset, then one for each action
    status = models.TextField(blank=True, default="")  # trainer.events.EpisodeStatus once it is over
    reward = models.FloatField(null=True)  # None while it goes on, and for faults
    fault = models.JSONField(null=True)  # kind, stage, message, line, traceback of the program's own failure
    sandbox_tier = models.TextField(blank=True, default="")

    class Meta:
        indexes = (
            models.Index(fields=["by", "state"], name="play_session_person"),
            models.Index(fields=["environment", "seed"], name="play_session_seed"),
        )

    @property
    def is_waiting(self) -> bool:
        """Something was asked that no worker has answered yet."""
        return self.state == self.State.OPEN and len(self.replies) <= len(self.actions)
