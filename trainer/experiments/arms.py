"""The arms of the comparison as data: each differs from SPADE by its point only, and two train longer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from trainer.errors import UserError
from trainer.fixed_pool import BUILTIN_POOLS
from trainer.presets import load_preset, with_overrides
from trainer.provenance import model_fingerprint, settings_fingerprint

SEEDS = (0, 1, 2)
SPADE, FIXED_POOL = "spade", "fixed-pool"
LONG_SPADE, LONG_FIXED_POOL = "spade-long", "fixed-pool-long"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm: the preset it starts from, what is changed in it, and the arm of as many rollouts with the fixed pool."""

    name: str
    title: str
    preset: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    pool: str = FIXED_POOL


# Half the demo's rate: with seed 0 the designer wrote sound programs for 80 rollouts then. Chosen on the probe set (explorations).
_LONG: Mapping[str, Any] = {"schedule.rollouts": 100, "optim.learning_rate": 1e-4}


ARMS = (
    Arm(SPADE, "SPADE", "demo"),
    Arm(FIXED_POOL, "fixed pool", "demo-fixed-pool"),
    Arm("no-memory", "no memory", "demo-no-memory"),
    Arm("no-corpus", "no corpus", "demo-no-corpus"),
    Arm("designer-not-trained", "designer not trained", "demo", {"designer.train": False}),
    Arm("solve-rate", "solve-rate reward", "demo-solve-rate"),
    Arm("learning-potential", "learning-potential reward", "demo-learning-potential"),
    Arm(LONG_SPADE, "SPADE, 100 rollouts", "demo", _LONG, pool=LONG_FIXED_POOL),
    Arm(LONG_FIXED_POOL, "fixed pool, 100 rollouts", "demo-fixed-pool", _LONG, pool=LONG_FIXED_POOL),
)

# The same for all arms. One thread: a result then does not depend on the machine's cores. Every tenth checkpoint is evaluated.
# 16 plays instead of the demo's 8: chosen on the probe set (docs/experiments.md, explorations).
COMMON: Mapping[str, Any] = {
    "schedule.plays": 16,
    "engine.threads": 1,
    "checkpoint.keep_last": 1,
    "checkpoint.keep_every": 10,
}

# Sections and fields that do not change what is learned: left out of the fingerprint of an arm's settings.
_WITHOUT = ("seed", "preset", "description", "checkpoint")


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call of the comparison does and where its files go. `model`: another start model than the built-in one."""

    results: Path = Path("docs/experiments/results")
    work: Path = Path(".artifacts/experiments")
    overrides: Mapping[str, Any] = field(default_factory=dict)
    plays: int = 8
    pool_environments: int = 90
    keep_runs: bool = False
    model: Path | None = None

    def config(self, arm: Arm, seed: int) -> RunConfig:
        """Settings of one run. Another model plays from its own directory, and on a fixed pool that it wrote itself."""
        config = self.config_for_any_model(arm, seed)
        if self.model is None:
            return config
        own = {"model.path": str(self.model.resolve())}
        if config.pool.path in BUILTIN_POOLS:
            own["pool.path"] = str(self.work / f"pool-{model_fingerprint(self.model)}.jsonl")
        return with_overrides(config, own)

    def config_for_any_model(self, arm: Arm, seed: int) -> RunConfig:
        """The same with the built-in model: what fingerprints are made of, since where a model lies changes nothing."""
        values = {**COMMON, **arm.overrides, **self.overrides, "seed": seed}
        return with_overrides(load_preset(arm.preset), values)

    def fingerprint(self, arm: Arm, parts: Mapping[str, str]) -> str:
        """Hash of all that makes two runs of an arm comparable: its settings but the seed, and `parts` (sets, pool)."""
        values = self.config_for_any_model(arm, 0).model_dump(mode="json", exclude=set(_WITHOUT))
        return settings_fingerprint(values | {"parts": dict(parts), "plays": self.plays})


def arm_named(name: str) -> Arm:
    """The arm of this name. Raises `UserError` naming all arms."""
    for arm in ARMS:
        if arm.name == name:
            return arm
    raise UserError(f"there is no arm {name!r}; choose of {', '.join(arm.name for arm in ARMS)}")
