"""What the steps of the loop share: one run's settings, parts and state, and the record of the rollout in progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox import Report
from trainer.checkpoint import Checkpoints
from trainer.config import RunConfig
from trainer.control import Control
from trainer.eventlog import EventLog
from trainer.events import (
    CandidateJudged,
    CheckpointSaved,
    EnvironmentStateChanged,
    EpisodeFinished,
    HintWritten,
    RegretMeasured,
)
from trainer.learn.engine import Learner
from trainer.meter import Meter
from trainer.policy import Policy
from trainer.prompts import PromptSet
from trainer.regret import Scored
from trainer.rollout.pool import EnvironmentPool
from trainer.rundir import RunDirectory
from trainer.state import TrainingState
from trainer.tensors import TensorFile

_ETA_ROLLOUTS = 8


@dataclass
class RolloutRecord:
    """What happened in the rollout so far: the material of its metrics."""

    candidates: list[CandidateJudged] = field(default_factory=list)
    slots: int = 0
    renewed: bool = False  # whether this rollout brought a new set of environments
    hints: list[HintWritten] = field(default_factory=list)
    episodes: list[EpisodeFinished] = field(default_factory=list)
    regrets: list[RegretMeasured] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    designer_weight: float | None = None
    learned: dict[str, float | None] = field(default_factory=dict)
    unreadable_audits: int = 0


@dataclass
class Session:
    """One attempt of one run."""

    config: RunConfig
    run: RunDirectory
    log: EventLog
    state: TrainingState
    control: Control
    policy: Policy
    learner: Learner
    pool: EnvironmentPool
    prompts: PromptSet
    checkpoints: Checkpoints
    meter: Meter
    model_directory: Path
    record: RolloutRecord = field(default_factory=RolloutRecord)
    tensors: TensorFile = field(default_factory=TensorFile)
    shown_documents: set[str] = field(default_factory=set)
    admitted: dict[str, Report] = field(default_factory=dict)  # verdicts on the fixed pool, by id
    model_seconds: float = 0.0
    finished: dict[str, Any] = field(default_factory=dict)
    values: Mapping[str, float | None] = field(default_factory=dict)  # metrics of the last finished rollout
    rollout_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_ETA_ROLLOUTS))

    def mark_finished(self) -> None:
        """Keep the state as it is between two rollouts: what a checkpoint asked for in the middle of the next one holds."""
        self.finished = self.state.to_dict()

    def saves_after(self, rollout: int) -> bool:
        """Whether a checkpoint is due after this rollout."""
        done = rollout + 1
        return done % self.config.checkpoint.every == 0 or done == self.config.schedule.rollouts

    def save_now(self) -> str:
        """Write a checkpoint of the last finished rollout unless it is there; says what there is. Only at safe points:
        the policy's weights are then still those of that rollout."""
        done = int(self.finished["next_rollout"])
        if done == 0:
            return "no rollout has finished yet; a resume starts from the beginning"
        if self.checkpoints.exists(done):
            return f"checkpoint {done:06d} holds the last finished rollout"
        self.checkpoints.prepare(self.learner, self.finished)
        return f"checkpoint {self.commit_checkpoint()} written"

    def commit_checkpoint(self) -> str:
        """Make the prepared checkpoint the newest one and report it; returns its name."""
        saved = self.checkpoints.commit(self.values.get(self.config.checkpoint.best_metric))
        self.log.emit(
            CheckpointSaved(
                name=saved.name, next_rollout=saved.next_rollout, bytes=saved.bytes, elapsed_s=saved.elapsed_s
            )
        )
        self.log.sync()
        return saved.name

    def eta_s(self, rollout: int, elapsed_s: float) -> float | None:
        """Seconds the rollouts that are left will take at the recent pace; None after the last one."""
        self.rollout_seconds.append(elapsed_s)
        left = self.config.schedule.rollouts - rollout - 1
        return round(left * sum(self.rollout_seconds) / len(self.rollout_seconds), 1) if left else None

    def bar(self, key: str, reason: str) -> None:
        """Keep a faulty environment out of later rollouts; its design earns the faulty reward (spec 6 and 7)."""
        if key in self.state.barred:
            return
        self.state.barred[key] = reason[:500]
        sample = self.state.sample_of(key)
        if sample is not None:
            sample.faulty = True
        self.log.emit(EnvironmentStateChanged(environment=key, state="barred", reason=reason[:500]))

    def start_record(self) -> None:
        """Forget the rollout before."""
        self.record = RolloutRecord()
        self.tensors = TensorFile()
        self.model_seconds = 0.0
        self.pool.seconds = 0.0
        self.policy.use.take()
