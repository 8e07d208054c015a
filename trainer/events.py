"""The event log of a run: the contract between the trainer and everything that shows or stores what it did.

One JSON object a line: `seq` (gapless in the attempt, from 1), `time` (Unix seconds), `rollout` (None before the first), `kind`,
`payload`. The models below are the payloads; `KINDS` maps a kind to its model. Readers must ignore payload fields they do not know.
Non-finite numbers never enter the log: a value that is not a number is None and its reason stands beside it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Arm = Literal["unhinted", "hinted"]
Phase = Literal["design", "gates", "hints", "play", "learn", "sync", "save"]
PHASES: tuple[Phase, ...] = ("design", "gates", "hints", "play", "learn", "sync", "save")
RunState = Literal["running", "paused", "stopping", "stopped", "completed", "failed"]
EpisodeStatus = Literal[
    "won", "lost", "turn_limit", "truncated_by_env", "length", "context_full",
    "env_error", "env_timeout", "sandbox_error", "sampler_error",
]  # fmt: skip
FAULTS: frozenset[str] = frozenset({"env_error", "env_timeout", "sandbox_error", "sampler_error"})


class Payload(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class RunStarted(Payload):
    """First event of an attempt."""

    attempt: int
    start_rollout: int  # first rollout this attempt will do
    total_rollouts: int
    checkpoint: str | None  # checkpoint directory name it resumed from, None at the start of a run
    pid: int
    engine: dict[str, Any]  # device, threads, dtype, parameters, sampler, learner
    versions: dict[str, str]
    sandbox_tier: str
    forked_from: dict[str, Any] | None = None  # run, checkpoint and changed settings of the run this one is a fork of


class RunStateChanged(Payload):
    """The run as a whole moved. `failed` carries owner and message of the error."""

    state: RunState
    reason: str = ""
    owner: str | None = None


class CorpusLoaded(Payload):
    source: str
    documents: int
    skipped: dict[str, int] = Field(default_factory=dict)  # reason -> lines skipped


class RolloutStarted(Payload):
    regeneration: bool
    offset: int
    active_skills: list[str]
    environments: int  # slots to fill at a regeneration, else environments that will be played
    expected_unhinted: int
    expected_hinted: int


class PhaseProgress(Payload):
    """Stage of the current rollout: `done` of `total` units (slots, environments, episodes, samples)."""

    phase: Phase
    state: Literal["started", "progress", "finished"]
    done: int
    total: int
    elapsed_s: float


class DocumentUsed(Payload):
    """A corpus document, once per attempt, at its first use."""

    document: str  # stable id
    title: str
    text: str  # as shown to the designer (cut)
    words: int
    metadata: dict[str, Any] = Field(default_factory=dict)


class StageResult(Payload):
    stage: str
    outcome: Literal["passed", "failed", "skipped", "unverifiable"]
    message: str = ""
    line: int | None = None
    elapsed_s: float | None = None
    evidence: dict[str, Any] = Field(default_factory=dict)
    measures: dict[str, Any] = Field(default_factory=dict)


class CandidateJudged(Payload):
    """One design attempt, accepted or not."""

    environment: str  # key of the slot it was for, e.g. "r0004-s03"
    candidate: str  # "r0004-s03-a1"
    slot: int
    attempt: int  # 1-based try of this slot
    skill: str
    document: str | None
    examples: list[str]  # environment keys of the memory records shown
    counter_examples: list[str]
    prompt: str  # as rendered
    reply: str
    code: str
    class_name: str | None
    prompt_tokens: int
    reply_tokens: int
    finish_reason: str
    accepted: bool
    failed_stage: str | None
    reason: str = ""
    stages: list[StageResult]


class EnvironmentAdded(Payload):
    """An accepted candidate became an environment of the current set."""

    environment: str
    candidate: str
    slot: int
    skill: str
    class_name: str
    code: str
    document: str | None
    examples: list[str]
    counter_examples: list[str]
    sandbox_tier: str
    measures: dict[str, Any] = Field(default_factory=dict)


class HintWritten(Payload):
    environment: str
    state: Literal["ok", "none", "leaky"]
    text: str | None
    tries: int
    reason: str = ""
    reply_tokens: int = 0


class Turn(Payload):
    """One turn: what the agent saw, said and got."""

    observation: str  # seen before acting (with the injected hint, as shown to the agent)
    reply: str  # text the agent sampled
    action: str | None  # what went to step(); None when the environment was not stepped
    reward: float | None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, float] = Field(default_factory=dict)
    observation_tokens: int
    reply_tokens: int
    logprob_mean: float | None = None


class EpisodeFinished(Payload):
    episode: str  # "r0004-s03/o0/u/05": environment / offset / arm / play
    environment: str
    arm: Arm
    offset: int
    play: int
    seed: int
    status: EpisodeStatus
    reward: float | None  # None exactly for faults
    turns: list[Turn]
    final_observation: str  # "" when there was none
    prompt_tokens: int  # system and first observation
    total_tokens: int
    trained_tokens: int  # mask-1 tokens
    fault: str = ""  # message of the fault
    elapsed_s: float


class RegretMeasured(Payload):
    """At offset 0. `regret` is None when the state is not ok or leaky."""

    environment: str
    skill: str
    state: Literal["ok", "no_hint", "leaky", "faulty"]
    regret: float | None
    standard_error: float | None
    unhinted_mean: float | None
    hinted_mean: float | None
    unhinted_n: int
    hinted_n: int
    success_share: float | None


class MemoryAdded(Payload):
    environment: str
    skill: str
    class_name: str
    snippet: str
    success_share: float
    regret: float | None
    tags: list[str] = Field(default_factory=list)


class MemoryRemoved(Payload):
    environment: str
    reason: Literal["oldest", "quarantined", "purged"]


class MemoryRestored(Payload):
    """A purged record is back in its old place."""

    environment: str
    reason: str = ""


class DesignerRewarded(Payload):
    """A designer sample's window is complete and it joins this rollout's batch. `reward` is None when masked."""

    environment: str
    skill: str
    variant: str
    win_rate: float | None
    regret: float | None
    anchor: float | None
    regret_term: float | None
    raw: float
    skill_mean: float | None
    weight: float
    environment_weight: float = 1.0  # what a person gave the environment (`down_weight`)
    reward: float | None  # (raw − skill_mean) · weight · environment_weight: what is trained
    faulty: bool
    flushed: bool = False  # trained at the end of the run


class EnvironmentStateChanged(Payload):
    environment: str
    state: Literal["active", "barred", "quarantined", "retired"]
    reason: str


class EnvironmentWeighted(Payload):
    """From this rollout on the advantages of the environment's samples are multiplied by `weight`, in (0, 1]."""

    environment: str
    weight: float
    reason: str = ""


class MetricsReported(Payload):
    """Once per rollout, names of `trainer/metrics.py`; None where there was nothing to measure, or no finite number came out.

    `not_finite` names the latter.
    """

    values: dict[str, float | None]
    not_finite: dict[str, Literal["nan", "inf", "-inf"]] = Field(default_factory=dict)


class CheckpointSaved(Payload):
    name: str  # directory under checkpoints/
    next_rollout: int  # the rollout a resume from it starts with
    bytes: int
    elapsed_s: float


class CommandAcknowledged(Payload):
    """Answer to a line of control.jsonl."""

    command: str  # id of the command
    action: str
    accepted: bool
    message: str = ""
    effective_rollout: int | None = None


class Warned(Payload):
    message: str
    where: str = ""


class RolloutFinished(Payload):
    elapsed_s: float
    phase_s: dict[str, float]
    tokens_sampled: int
    tokens_trained: int
    eta_s: float | None


KINDS: dict[str, type[Payload]] = {
    "run_started": RunStarted,
    "run_state": RunStateChanged,
    "corpus": CorpusLoaded,
    "rollout_started": RolloutStarted,
    "phase": PhaseProgress,
    "document": DocumentUsed,
    "candidate": CandidateJudged,
    "environment": EnvironmentAdded,
    "hint": HintWritten,
    "episode": EpisodeFinished,
    "regret": RegretMeasured,
    "memory_added": MemoryAdded,
    "memory_removed": MemoryRemoved,
    "memory_restored": MemoryRestored,
    "designer_reward": DesignerRewarded,
    "environment_state": EnvironmentStateChanged,
    "environment_weight": EnvironmentWeighted,
    "metrics": MetricsReported,
    "checkpoint": CheckpointSaved,
    "command": CommandAcknowledged,
    "warning": Warned,
    "rollout_finished": RolloutFinished,
}


class Event(BaseModel):
    """One line of the log."""

    model_config = ConfigDict(extra="ignore")

    seq: int = Field(ge=1)
    time: float
    rollout: int | None
    kind: str
    payload: dict[str, Any]
