"""What the built-in model's weights depend on: stages, sizes, rates. `build.py` carries it out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from trainer.errors import UserError


class Stage(NamedTuple):
    """A stretch of the training: its last step, plays of a design (unhinted, hinted), what a token of a play weighs, and its rate."""

    end: int
    plays: tuple[int, int]
    play_weight: float
    start_rate: float
    end_rate: float


# Copying comes while the rate falls, and plays at the full rate undo it: so designs alone come first, and plays grow in number as it falls.
STAGES = (
    Stage(107, (0, 0), 1.5, 4e-3, 4e-3),
    Stage(320, (0, 0), 1.5, 4e-3, 2e-3),
    Stage(1248, (2, 3), 1.5, 2e-3, 5.5e-4),
    Stage(1461, (3, 6), 1.5, 1.25e-3, 0.0009375),
    Stage(2011, (2, 7), 1.5, 2.5e-3, 0.0),
    Stage(3011, (3, 8), 10.0, 2.5e-3, 2.5e-3),
    Stage(4411, (3, 8), 10.0, 2.5e-3, 0.0),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything the weights depend on."""

    seed: int = 7
    stages: tuple[Stage, ...] = STAGES
    batch_tokens: int = 2048
    designs_per_chunk: int = 50
    warmup_steps: int = 60
    weight_decay: float = 0.05
    context_weight: float = 0.0
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    mlp: int = 512
    rotary_base: float = 1000.0
    query_gain: float = 1.5
    embedding_std: float = 0.1
    copy_gain: float = 0.25
    look_gain: float = 0.25
    shared_norm: float = 1.0
    context_tokens: int = 2048

    @property
    def steps(self) -> int:
        """Optimiser steps in all."""
        return self.stages[-1].end

    def stage(self, step: int) -> tuple[Stage, int]:
        """The stage of a step (the last one for steps past the end), and the step that stage begins with."""
        begin = 0
        for stage in self.stages:
            if step < stage.end:
                return stage, begin
            begin = stage.end
        return self.stages[-1], self.stages[-2].end if len(self.stages) > 1 else 0


def as_json(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain values, as it stands in `build.json` and in an unfinished build."""
    values: dict[str, Any] = json.loads(json.dumps(asdict(recipe)))
    return values


def changed(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with some of its numbers changed. Raises `UserError` for a name that is none, and for what is no such number."""
    numbers = {name: value for name, value in asdict(recipe).items() if isinstance(value, int | float)}
    for name, value in values.items():
        if name not in numbers:
            raise UserError(f"the recipe has no number {name!r}; it has {', '.join(numbers)}")
        kinds = int if isinstance(numbers[name], int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise UserError(f"{name}={value} is not {'a whole number' if kinds is int else 'a number'}")
    return replace(recipe, **values)


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then linear within each stage."""
    stage, begin = recipe.stage(step)
    passed = (step - begin) / (stage.end - begin)
    return min(1.0, (step + 1) / recipe.warmup_steps) * (
        stage.start_rate + passed * (stage.end_rate - stage.start_rate)
    )
