"""What a rollout's episodes say about the environments: returns of the window, regret, memory (spec 2, step 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from trainer.events import MemoryAdded, MemoryRemoved, RegretMeasured
from trainer.fixed_pool import frozen_id
from trainer.memory import MemoryRecord
from trainer.regret import mean, measure_regret, success_share
from trainer.rollout.play import Episode
from trainer.session import Session
from trainer.state import Environment, HintState

WIN_RATE_DECAY = 0.8
"""Of the unhinted win rate's mean over rollouts: what was known weighs 0.8, the new rollout 0.2. The first rollout sets it."""

RegretState = Literal["ok", "no_hint", "leaky", "faulty"]
_STATES: dict[HintState, RegretState] = {"ok": "ok", "leaky": "leaky", "none": "no_hint"}


def collect_returns(session: Session, episodes: Sequence[Episode], offset: int) -> None:
    """Add this rollout's unhinted returns to the window of each environment (faults have none), to a pool, and to the run's mean."""
    for environment in session.state.environments:
        sample = session.state.sample_of(environment.key)
        if sample is not None:
            sample.window[offset] = returns(episodes, environment, "unhinted")
        if session.state.pool is not None:
            session.state.pool.observe(frozen_id(environment.candidate), returns(episodes, environment, "unhinted"))
    session.state.count(episodes=len(episodes))
    now = mean([e.reward for e in episodes if e.arm == "unhinted" and e.reward is not None])
    if now is not None:
        before = session.state.win_rate_ema
        session.state.win_rate_ema = now if before is None else WIN_RATE_DECAY * before + (1 - WIN_RATE_DECAY) * now


def measure_regrets(session: Session, episodes: Sequence[Episode]) -> None:
    """Regret of every environment at offset 0. No hint, no regret; a leaky hint's regret is capped at 0."""
    for environment in session.state.environments:
        if environment.key in session.state.quarantined:
            continue
        unhinted, hinted = (returns(episodes, environment, arm) for arm in ("unhinted", "hinted"))
        regret = measure_regret(unhinted, hinted)
        faulty = environment.key in session.state.barred
        value: float | None = None
        if regret is not None and not faulty:
            value = min(regret.value, 0.0) if environment.hint_state == "leaky" else regret.value
        state = _STATES[environment.hint_state]
        if faulty or (value is None and state != "no_hint"):
            state = "faulty"
        measured = RegretMeasured(
            environment=environment.key,
            skill=environment.skill,
            state=state,
            regret=value,
            standard_error=regret.standard_error if regret is not None and value is not None else None,
            unhinted_mean=sum(unhinted) / len(unhinted) if unhinted else None,
            hinted_mean=sum(hinted) / len(hinted) if hinted else None,
            unhinted_n=len(unhinted),
            hinted_n=len(hinted),
            success_share=success_share(unhinted),
        )
        session.log.emit(measured)
        session.record.regrets.append(measured)
        sample = session.state.sample_of(environment.key)
        if sample is not None:
            sample.hinted_mean, sample.regret = measured.hinted_mean, measured.regret
            sample.leaky = environment.hint_state == "leaky"


def remember(session: Session, rollout: int) -> None:
    """Write the set to the memory. Environments nothing is known about, or that are faulty, are no example for anybody."""
    measured = {r.environment: r for r in session.record.regrets}
    for environment in session.state.playable():
        share = measured[environment.key].success_share
        if share is None:
            continue
        tags = () if environment.hint_state == "ok" else (f"hint: {environment.hint_state}",)
        regret = measured[environment.key].regret
        record = MemoryRecord(
            environment.key, environment.skill, environment.class_name, environment.code, share, regret, rollout, tags
        )
        removed = session.state.memory.add(record)
        kept = session.state.memory.records[-1]
        session.log.emit(
            MemoryAdded(
                environment=kept.environment, skill=kept.skill, class_name=kept.class_name, snippet=kept.snippet,
                success_share=share, regret=regret, tags=list(tags),
            )
        )  # fmt: skip
        for old in removed:
            session.log.emit(MemoryRemoved(environment=old.environment, reason="oldest"))


def returns(episodes: Sequence[Episode], environment: Environment, arm: str) -> list[float]:
    """Outcome rewards of one arm of one environment."""
    mine = (e for e in episodes if e.environment.key == environment.key and e.arm == arm)
    return [e.reward for e in mine if e.reward is not None]
