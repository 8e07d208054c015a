"""Texts and numbers of synthetic runs (``make_run.py``)."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.config import RunConfig

ATTACKS = (
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(2)>",
    '"></a><script>alert(3)</script>',
    "[x](javascript:alert(4))",
    "<iframe srcdoc='<script>alert(5)</script>'></iframe>",
    "{{ 7|add:7 }}{% now 'Y' %}",
    "\u202eevil\u202c zero\u200bwidth \x1b[31mred\x1b[0m",
    "' onmouseover='alert(6)' x='",
)
NAMES = (
    "GridProbe",
    "TankBalance",
    "PatternLock",
    "SwitchBoard",
    "RouteFinder",
    "MoldGrowth",
    "ScaleWeigh",
    "TideTable",
)
STAGES = ("extract", "parse", "load", "contract", "determinism", "interactivity", "not-guessable", "solvable")
CODE = '''"""{title}: {document}."""
import random


class {name}Env:
    """Find the hidden cell of a {size} by {size} grid; every probe answers with its distance."""

    def __init__(self, max_turns=8, **kwargs):
        self.max_turns = max_turns
        self.size = {size}

    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.goal = (self.rng.randrange(self.size), self.rng.randrange(self.size))
        self.turn = 0
        return f"Grid of {{self.size}}. Probe a cell with \\\\boxed{{{{probe R C}}}}.", {{}}

    def step(self, action):
        self.turn += 1
        try:
            row, column = (int(part) for part in action.strip("\\\\boxed{{}}").split()[1:3])
        except (ValueError, IndexError):
            return "Say \\\\boxed{{probe R C}}.", 0.0, False, self.turn >= self.max_turns, {{}}
        distance = abs(row - self.goal[0]) + abs(column - self.goal[1])
        if distance == 0:
            return "Found.", 1.0, True, False, {{"turns": self.turn}}
        return f"Distance {{distance}}.", 0.0, self.turn >= self.max_turns, False, {{}}

    def solution(self):
        return ["\\\\boxed{{probe %d %d}}" % self.goal]

    def close(self):
        pass
'''


def metrics_of(
    rollout: int, made: Sequence[Any], won: Mapping[str, Mapping[str, Sequence[float]]], generator: random.Random
) -> dict[str, float | None]:
    """What a trainer reports at the end of a rollout: rates from the episodes, the rest invented."""
    unhinted = [value for item in made for value in won[item.key]["unhinted"]]
    hinted = [value for item in made for value in won[item.key]["hinted"]]
    regrets = [item.regret for item in made if item.regret is not None] if hinted else []
    groups = [won[item.key]["unhinted"] for item in made]
    mean = sum(regrets) / len(regrets) if regrets else None
    all_won = sum(all(value > 0 for value in group) for group in groups) / max(1, len(groups))
    all_lost = sum(not any(group) for group in groups) / max(1, len(groups))
    spread = (
        math.sqrt(sum((value - mean) ** 2 for value in regrets) / (len(regrets) - 1) / len(regrets))
        if mean is not None and len(regrets) > 1
        else None
    )
    noise = generator.gauss
    return {
        "win_rate/unhinted": sum(unhinted) / len(unhinted) if unhinted else None,
        "win_rate/hinted": sum(hinted) / len(hinted) if hinted else None,
        "regret/mean": mean, "regret/standard_error": spread, "regret/n": float(len(regrets)) if hinted else None,
        "designer/reward_mean": 0.42 + 0.1 * math.tanh(rollout / 10) + noise(0, 0.03),
        "designer/anchor_mean": 0.5 + 0.1 * math.tanh(rollout / 12) + noise(0, 0.04),
        "designer/regret_term_mean": 0.4 + noise(0, 0.05) if regrets else None,
        "group/frac_all_won": all_won, "group/frac_all_lost": all_lost, "group/frac_mixed": 1 - all_won - all_lost,
        "band/learnable_share": min(1.0, max(0.0, 0.45 + 0.01 * rollout + noise(0, 0.06))),
        "gates/pass_rate": 0.86 + noise(0, 0.03) if hinted else None,
        "loss/total": 0.02 * math.exp(-rollout / 15) + noise(0, 0.002), "loss/policy": 0.018 * math.exp(-rollout / 15) + noise(0, 0.002),
        "loss/entropy": 0.9 - 0.005 * rollout + noise(0, 0.01), "optim/grad_norm": abs(noise(0.4, 0.1)), "optim/lr": 2e-4,
        "policy/ratio_mean": 1.0 + noise(0, 0.002), "policy/clip_frac_low": abs(noise(0.01, 0.004)),
        "policy/clip_frac_high": abs(noise(0.008, 0.004)), "sampler_gap/logp_abs_mean": abs(noise(2e-6, 1e-6)),
        "perf/tokens_per_s_sampled": 2100 + noise(0, 120), "perf/tokens_per_s_trained": 5200 + noise(0, 250),
        "time/design": 1.2, "time/play": 3.4 + noise(0, 0.3), "time/learn": 2.0, "time/rollout": 8 + noise(0, 0.5),
        "learn/tokens": 9000.0, "learn/rows": 96.0,
    }  # fmt: skip


def hash_of(key: str, play: int) -> int:
    """A stable number for (environment, play)."""
    return int.from_bytes(random.Random(f"{key}:{play}").randbytes(7), "big")


def synthetic_config(*, rollouts: int = 24, environments: int = 6, plays: int = 8) -> RunConfig:
    """Settings of a small run."""
    return RunConfig.model_validate({
        "preset": "demo", "description": "synthetic", "seed": 7, "prompts": "compact",
        "model": {"context_tokens": 1024}, "designer": {"max_tokens": 640}, "agent": {"max_tokens": 48, "max_turns": 8},
        "hint": {"max_tokens": 96},
        "schedule": {"rollouts": rollouts, "environments": environments, "plays": plays, "hinted_plays": plays,
                     "regenerate_every": 2, "designer_delay": 2},
    })  # fmt: skip
