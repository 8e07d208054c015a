"""Regret, win rate, anchor and every designer reward (spec 7; formulas of the variants: spec 02, E.5). Pure functions.

A window is what the unhinted arm of one environment returned: offset -> rewards. Faulted episodes have no reward and are not in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainer.config import RewardConfig

Window = Mapping[int, Sequence[float]]

_VARIANCE_TARGET = 0.25
_VARIANCE_WIDTH = 0.02
_FRONTIER_MAXIMUM = 0.25


@dataclass(frozen=True, slots=True)
class Design:
    """One designer sample whose window is complete.

    `regret` is None when it could not be measured (no hint, faults) and already capped at 0 when the hint is `leaky`.
    """

    environment: str
    skill: str
    window: Window
    hinted_mean: float | None
    regret: float | None
    faulty: bool = False
    leaky: bool = False


@dataclass(frozen=True, slots=True)
class Scored:
    """Reward of a design and what it was made of. `reward` is None when the sample is masked."""

    environment: str
    skill: str
    raw: float
    reward: float | None
    win_rate: float | None
    anchor: float | None
    regret_term: float | None
    micro_lp: float | None
    skill_mean: float | None
    masked: bool
    faulty: bool


@dataclass
class LearningPotential:
    """Fast and slow exponential means of the return, for one skill (variant `learning_potential`)."""

    gamma_fast: float
    gamma_slow: float
    fast: float | None = None
    slow: float | None = None

    def update(self, value: float) -> None:
        """new = (1 − γ)·old + γ·value; the first value sets both."""
        self.fast = value if self.fast is None else (1 - self.gamma_fast) * self.fast + self.gamma_fast * value
        self.slow = value if self.slow is None else (1 - self.gamma_slow) * self.slow + self.gamma_slow * value

    @property
    def signed(self) -> float:
        """(fast − slow) / (2(γ_fast − γ_slow)); 0 before the first value."""
        if self.fast is None or self.slow is None:
            return 0.0
        return (self.fast - self.slow) / (2 * (self.gamma_fast - self.gamma_slow))

    @property
    def rho(self) -> float:
        """Absolute learning potential."""
        return abs(self.signed)


@dataclass
class SkillTrackers:
    """One `LearningPotential` per skill; part of the checkpoint."""

    gamma_fast: float
    gamma_slow: float
    trackers: dict[str, LearningPotential] = field(default_factory=dict)

    def of(self, skill: str) -> LearningPotential:
        return self.trackers.setdefault(skill, LearningPotential(self.gamma_fast, self.gamma_slow))

    def state(self) -> dict[str, list[float | None]]:
        return {skill: [t.fast, t.slow] for skill, t in self.trackers.items()}

    def load_state(self, state: Mapping[str, Sequence[float | None]]) -> None:
        self.trackers = {s: LearningPotential(self.gamma_fast, self.gamma_slow, f, w) for s, (f, w) in state.items()}


@dataclass(frozen=True, slots=True)
class Regret:
    """Regret of one environment at offset 0 with its standard error (unpaired; None below two episodes in an arm)."""

    value: float
    standard_error: float | None


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean, None for nothing."""
    return sum(values) / len(values) if values else None


def population_variance(values: Sequence[float]) -> float:
    middle = sum(values) / len(values)
    return sum((v - middle) ** 2 for v in values) / len(values)


def measure_regret(unhinted: Sequence[float], hinted: Sequence[float]) -> Regret | None:
    """Mean hinted − mean unhinted return; None when an arm has no rewarded episode."""
    if not unhinted or not hinted:
        return None
    value = sum(hinted) / len(hinted) - sum(unhinted) / len(unhinted)
    if len(unhinted) < 2 or len(hinted) < 2:
        return Regret(value, None)
    squares = sum(population_variance(arm) / (len(arm) - 1) for arm in (unhinted, hinted))
    return Regret(value, math.sqrt(squares))


def success_share(rewards: Sequence[float]) -> float | None:
    """Share of episodes with reward > 0."""
    return sum(r > 0 for r in rewards) / len(rewards) if rewards else None


def flat(window: Window) -> list[float]:
    """All rewards of a window in offset order."""
    return [r for offset in sorted(window) for r in window[offset]]


def anchor(win_rate: float, *, low: float, high: float, ramp: float) -> float:
    """1 inside [low, high]; outside 1 − distance/ramp, not below 0."""
    distance = low - win_rate if win_rate < low else max(0.0, win_rate - high)
    return max(0.0, 1.0 - distance / ramp)


def solver_variance(rewards: Sequence[float]) -> float:
    """exp(−(var − 0.25)²/0.02): largest where half of the episodes are won; 0 below two episodes."""
    if len(rewards) < 2:
        return 0.0
    return math.exp(-((population_variance(rewards) - _VARIANCE_TARGET) ** 2) / _VARIANCE_WIDTH)


def improvement(window: Window, *, form: str) -> float:
    """Improvement of the return inside the window (micro learning progress); 0 below two offsets.

    `late_minus_early`: mean of the later offsets minus mean of the earlier ones, a middle offset counts as late.
    `slope`: least-squares slope of the offsets' means weighted by their counts, times the length of the window.
    """
    offsets = [o for o in sorted(window) if window[o]]
    if len(offsets) < 2:
        return 0.0
    if form == "late_minus_early":
        half = len(offsets) // 2
        early = [r for o in offsets[:half] for r in window[o]]
        late = [r for o in offsets[half:] for r in window[o]]
        return sum(late) / len(late) - sum(early) / len(early)
    counts = [float(len(window[o])) for o in offsets]
    means = [sum(window[o]) / len(window[o]) for o in offsets]
    total = sum(counts)
    x_mean = sum(c * o for c, o in zip(counts, offsets, strict=True)) / total
    y_mean = sum(c * m for c, m in zip(counts, means, strict=True)) / total
    cross = sum(c * (o - x_mean) * (m - y_mean) for c, o, m in zip(counts, offsets, means, strict=True))
    spread = sum(c * (o - x_mean) ** 2 for c, o in zip(counts, offsets, strict=True))
    return cross / spread * (offsets[-1] - offsets[0])


def designer_weight(*, designer_samples: int, agent_samples: int, interval: int, cap: float) -> float:
    """min(cap, agent / designer × interval); 1 when either count is 0. Samples are episodes, not rows."""
    if designer_samples == 0 or agent_samples == 0:
        return 1.0
    return min(cap, agent_samples / designer_samples * interval)


def score_designs(
    designs: Sequence[Design], *, config: RewardConfig, weight: float, trackers: SkillTrackers
) -> list[Scored]:
    """Rewards of all designs that come due together.

    reward = (raw − mean raw of the same skill in this batch) × weight; masked designs leave that mean and get None.
    For `learning_potential` the trackers are first updated with each skill's mean return in this batch.
    """
    if config.variant == "learning_potential":
        _update_trackers(designs, trackers)
    parts = [_raw(design, config, trackers) for design in designs]
    by_skill: dict[str, list[float]] = {}
    for design, part in zip(designs, parts, strict=True):
        if not part.masked:
            by_skill.setdefault(design.skill, []).append(part.raw)
    scored: list[Scored] = []
    for design, part in zip(designs, parts, strict=True):
        skill_mean = mean(by_skill.get(design.skill, []))
        reward = None if part.masked or skill_mean is None else (part.raw - skill_mean) * weight
        scored.append(
            Scored(
                design.environment, design.skill, part.raw, reward, part.win_rate, part.anchor, part.regret_term,
                part.micro_lp, skill_mean, part.masked, design.faulty,
            )
        )  # fmt: skip
    return scored


@dataclass(frozen=True, slots=True)
class _Raw:
    raw: float
    masked: bool = False
    win_rate: float | None = None
    anchor: float | None = None
    regret_term: float | None = None
    micro_lp: float | None = None


def _raw(design: Design, config: RewardConfig, trackers: SkillTrackers) -> _Raw:
    """Raw reward of one design. A design nothing is known about is masked, never rewarded with 0."""
    rewards = flat(design.window)
    win_rate = mean(rewards)
    near = None if win_rate is None else anchor(win_rate, low=config.band_low, high=config.band_high, ramp=config.ramp)
    if design.faulty:
        return _Raw(config.faulty_reward, win_rate=win_rate, anchor=near)
    if win_rate is None or near is None:
        return _Raw(0.0, masked=True)
    form = config.micro_lp_form
    match config.variant:
        case "solve_rate":
            return _Raw(near, win_rate=win_rate, anchor=near)
        case "regret":
            if design.hinted_mean is None or design.regret is None:
                return _Raw(0.0, masked=True, win_rate=win_rate, anchor=near)
            term = 0.0 if design.leaky else max(0.0, design.hinted_mean - win_rate)
            return _Raw(term, win_rate=win_rate, anchor=near, regret_term=term)
        case "micro_lp":
            progress = improvement(design.window, form=form)
            return _Raw(max(0.0, progress), win_rate=win_rate, anchor=near, micro_lp=progress)
        case "learning_potential":
            slow = trackers.of(design.skill).slow or 0.0
            bonus = solver_variance(rewards) if config.solver_variance else 0.0
            return _Raw(abs(win_rate - slow) + bonus, win_rate=win_rate, anchor=near)
        case "blend":
            return _blend(design, config, win_rate, near)


def _blend(design: Design, config: RewardConfig, win_rate: float, near: float) -> _Raw:
    raw = config.anchor_weight * near
    term: float | None = None
    if design.regret is not None:
        term = design.regret / config.regret_scale
        if config.regret_floor:
            term = min(1.0, max(0.0, term))
        raw += config.regret_weight * term
    progress = improvement(design.window, form=config.micro_lp_form)
    if not config.micro_lp_signed:
        progress = max(0.0, progress)
    raw += config.micro_lp_weight * progress / config.micro_lp_scale
    if config.frontier_weight:
        distance = win_rate * (1 - win_rate) - _FRONTIER_MAXIMUM
        raw += config.frontier_weight * distance / config.frontier_scale
    return _Raw(raw, raw < 0, win_rate, near, term, progress)


def _update_trackers(designs: Sequence[Design], trackers: SkillTrackers) -> None:
    means: dict[str, list[float]] = {}
    for design in designs:
        value = mean(flat(design.window))
        if value is not None:
            means.setdefault(design.skill, []).append(value)
    for skill, values in means.items():
        trackers.of(skill).update(sum(values) / len(values))
