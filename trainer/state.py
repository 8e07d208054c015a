"""Everything a run carries from one rollout to the next, weights aside: what a checkpoint holds and a resume restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trainer.config import RunConfig
from trainer.corpus import Corpus
from trainer.errors import UserError
from trainer.fixed_pool import FixedPool
from trainer.memory import Memory
from trainer.regret import Design, SkillTrackers

HintState = Literal["ok", "none", "leaky"]
STATE_FORMAT = 1
RECENT_PROGRAMS = 36


@dataclass(slots=True)
class Environment:
    """One accepted environment of the current set."""

    key: str
    candidate: str
    slot: int
    skill: str
    class_name: str
    code: str
    document: str | None
    hint_state: HintState = "none"
    hint: str | None = None


@dataclass(slots=True)
class DesignSample:
    """The accepted design call of a slot, waiting for its window: token ids, what sampled them, and the returns so far."""

    environment: str
    skill: str
    rollout: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    window: dict[int, list[float]] = field(default_factory=dict)
    hinted_mean: float | None = None
    regret: float | None = None
    leaky: bool = False
    faulty: bool = False
    temperature: float | None = (
        None  # what it was sampled at, also when a fork goes on at another; None: an older checkpoint's
    )

    def design(self) -> Design:
        return Design(self.environment, self.skill, self.window, self.hinted_mean, self.regret, self.faulty, self.leaky)


@dataclass
class TrainingState:
    """The mutable state of the loop. `next_rollout` is the one a resume starts with."""

    memory: Memory
    corpus: Corpus | None
    trackers: SkillTrackers
    pool: FixedPool | None = None
    next_rollout: int = 0
    environments: list[Environment] = field(default_factory=list)
    waiting: list[DesignSample] = field(default_factory=list)
    recent_programs: list[str] = field(default_factory=list)  # newest last, for the diversity metric
    baseline: dict[str, float] = field(default_factory=dict)
    win_rate_ema: float | None = None  # of the unhinted win rate over rollouts
    skipped_updates: int = 0  # updates in a row whose loss or gradient was not finite
    barred: dict[str, str] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)  # (0, 1], as people have set them
    control_offset: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)  # what was measured at the first start (threads)

    @classmethod
    def fresh(cls, config: RunConfig, corpus: Corpus | None, pool: FixedPool | None = None) -> TrainingState:
        trackers = SkillTrackers(config.reward.gamma_fast, config.reward.gamma_slow)
        return cls(memory=Memory(config.memory), corpus=corpus, trackers=trackers, pool=pool)

    def playable(self) -> list[Environment]:
        """Environments of the current set that are neither barred nor quarantined, by slot."""
        return [e for e in self.environments if not self.is_out(e.key)]

    def keep_programs(self, programs: Sequence[str]) -> None:
        """Remember the newest programs for the diversity metric."""
        self.recent_programs = [*self.recent_programs, *programs][-RECENT_PROGRAMS:]

    def is_out(self, key: str) -> bool:
        return key in self.barred or key in self.quarantined

    def training_weight(self, key: str) -> float:
        """Factor on the advantages of the environment's samples; 1 unless a person has changed it."""
        return self.weights.get(key, 1.0)

    def sample_of(self, key: str) -> DesignSample | None:
        return next((s for s in self.waiting if s.environment == key), None)

    def count(self, **amounts: int) -> None:
        """Add to the run's totals."""
        for name, amount in amounts.items():
            self.totals[name] = self.totals.get(name, 0) + amount

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, independent of later changes. Floats survive a JSON round trip exactly."""
        return {
            "format": STATE_FORMAT,
            "next_rollout": self.next_rollout,
            "environments": [asdict(e) for e in self.environments],
            "waiting": [_sample_to_dict(s) for s in self.waiting],
            "memory": self.memory.state(),
            "purged": self.memory.purged_state(),
            "corpus": self.corpus.state() if self.corpus else None,
            "pool": self.pool.state() if self.pool else None,
            "trackers": self.trackers.state(),
            "recent_programs": list(self.recent_programs),
            "baseline": dict(self.baseline),
            "win_rate_ema": self.win_rate_ema,
            "skipped_updates": self.skipped_updates,
            "barred": dict(self.barred),
            "quarantined": dict(self.quarantined),
            "weights": dict(self.weights),
            "control_offset": self.control_offset,
            "totals": dict(self.totals),
            "engine": dict(self.engine),
        }

    def load_dict(self, values: Mapping[str, Any]) -> list[str]:
        """Take over a checkpoint's state; returns warnings (a corpus that changed)."""
        if values.get("format") != STATE_FORMAT:
            raise UserError(
                f"the checkpoint's state has format {values.get('format')}; this version reads {STATE_FORMAT}"
            )
        self.next_rollout = int(values["next_rollout"])
        self.environments = [Environment(**e) for e in values["environments"]]
        self.waiting = [_sample_from_dict(s) for s in values["waiting"]]
        self.memory.load_state(values["memory"], values.get("purged", ()))
        self.trackers.load_state(values["trackers"])
        self.recent_programs = list(values.get("recent_programs", []))
        self.baseline = dict(values["baseline"])
        self.win_rate_ema = values.get("win_rate_ema")
        self.skipped_updates = int(values.get("skipped_updates", 0))
        self.barred = dict(values["barred"])
        self.quarantined = dict(values["quarantined"])
        self.weights = dict(values.get("weights", {}))
        self.control_offset = int(values["control_offset"])
        self.totals = dict(values["totals"])
        self.engine = dict(values["engine"])
        if self.pool is not None and values.get("pool") is not None:
            self.pool.load_state(values["pool"])
        if self.corpus is None or values["corpus"] is None:
            return []
        warning = self.corpus.load_state(values["corpus"])
        return [warning] if warning else []


def _sample_to_dict(sample: DesignSample) -> dict[str, Any]:
    values = {name: getattr(sample, name) for name in DesignSample.__slots__}
    return values | {"window": {str(offset): list(rewards) for offset, rewards in sample.window.items()}}


def _sample_from_dict(values: Mapping[str, Any]) -> DesignSample:
    window = {int(offset): [float(r) for r in rewards] for offset, rewards in values["window"].items()}
    tuples = {name: tuple(values[name]) for name in ("prompt_ids", "token_ids", "logprobs")}
    return DesignSample(**{**values, **tuples, "window": window})
