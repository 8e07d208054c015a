"""One policy update: agent samples of this rollout and designer samples that have come due (spec 2, steps 4 and 5)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainer.errors import InfrastructureError, NotFiniteError
from trainer.events import DesignerRewarded, Warned
from trainer.learn.advantage import ema_advantages, ema_update, group_advantages
from trainer.learn.engine import TrainRow
from trainer.regret import Scored, designer_weight, mean, population_variance, score_designs
from trainer.rollout.dialogue import Row
from trainer.rollout.play import Episode
from trainer.session import Session
from trainer.state import DesignSample

MAX_SKIPPED = 3
"""Updates in a row that may be skipped for a loss or gradient that is not finite."""

_TRUNCATED = frozenset({"turn_limit", "truncated_by_env", "length", "context_full"})


@dataclass
class Batch:
    """Rows of one update with the facts its metrics need. Samples are episodes and designs; a sample may have several rows."""

    rows: list[TrainRow] = field(default_factory=list)
    agent_rewards: list[float] = field(default_factory=list)
    agent_advantages: list[float] = field(default_factory=list)
    designer_advantages: list[float] = field(default_factory=list)
    filtered: int = 0
    staleness: list[int] = field(default_factory=list)


def make_batch(session: Session, episodes: Sequence[Episode], rollout: int) -> Batch:
    """Advantages of the agent's groups, rewards of the designs that are due, and their training rows."""
    batch = Batch()
    _add_agent_samples(session, batch, episodes, rollout)
    _add_designer_samples(session, batch, rollout)
    return batch


def train(session: Session, batch: Batch, rollout: int) -> None:
    """Update the policy on the batch and hand the new weights to the sampler. An empty batch changes nothing."""
    with session.meter.running("learn", total=len(batch.rows)):
        if batch.rows:
            started = time.monotonic()
            learned = _update(session, batch, rollout)
            session.model_seconds += time.monotonic() - started
            session.record.learned = {**learned, **batch_metrics(batch)}
            session.meter.advance("learn", len(batch.rows))
        else:
            session.log.emit(
                Warned(message="no sample to train on in this rollout; the policy stays as it is", where="learn")
            )
    session.meter.finish("learn")
    with session.meter.running("sync", total=1):
        # Also after an empty batch: it empties the sampler's caches, so that every rollout starts as a resumed one does.
        started = time.monotonic()
        session.policy.sampler.load_weights(session.learner.weights())
        session.model_seconds += time.monotonic() - started
    session.meter.finish("sync", done=1)


def _update(session: Session, batch: Batch, rollout: int) -> dict[str, float | None]:
    """One update, or none when it is not finite: the last good weights stay, and the log says so.

    Raises `InfrastructureError` after `MAX_SKIPPED` in a row: the policy would never learn again.
    """
    state = session.state
    try:
        learned = dict(session.learner.update(batch.rows, rollout=rollout))
    except NotFiniteError as error:
        state.skipped_updates += 1
        if state.skipped_updates >= MAX_SKIPPED:
            raise InfrastructureError(
                f"{MAX_SKIPPED} updates in a row were not finite; the weights are those of rollout {rollout - MAX_SKIPPED}. "
                "Lower optim.learning_rate, or fork from an earlier checkpoint."
            ) from error
        session.log.emit(
            Warned(message=f"this rollout's update was skipped, the last good weights are kept: {error}", where="learn")
        )
        return {"optim/skipped": 1.0}
    state.skipped_updates = 0
    return {**learned, "optim/skipped": 0.0}


def due_samples(waiting: Sequence[DesignSample], rollout: int, *, delay: int, last: bool) -> list[DesignSample]:
    """Designs trained in this rollout: those written `delay` rollouts ago or earlier, and in the last rollout all that wait."""
    return [s for s in waiting if last or s.rollout + delay <= rollout]


def _add_agent_samples(session: Session, batch: Batch, episodes: Sequence[Episode], rollout: int) -> None:
    """Unhinted episodes with a reward, group by group. Hinted episodes are never trained."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.arm == "unhinted" and episode.reward is not None and not _withdrawn(session, episode):
            groups.setdefault(episode.environment.key, []).append(episode)
    for key, group in groups.items():
        rewards = [e.reward for e in group if e.reward is not None]
        weight = session.state.training_weight(key)
        advantages = [weight * advantage for advantage in _advantages(session, key, rewards)]
        batch.agent_rewards += rewards
        batch.agent_advantages += advantages
        for episode, advantage in zip(group, advantages, strict=True):
            filtered = session.config.loss.compact_filter and episode.status in _TRUNCATED
            batch.filtered += filtered
            batch.staleness.append(0)
            batch.rows += _episode_rows(session, episode, advantage, rollout, masked=filtered)


def _withdrawn(session: Session, episode: Episode) -> bool:
    return episode.environment.key in session.state.quarantined


def _advantages(session: Session, key: str, rewards: Sequence[float]) -> list[float]:
    config = session.config.advantage
    if config.baseline == "group":
        return group_advantages(rewards, zero_spread=config.zero_spread)
    before = session.state.baseline.get(key)
    session.state.baseline[key] = ema_update(before, value=sum(rewards) / len(rewards), decay=config.ema_decay)
    return ema_advantages(rewards, baseline=before)


def _episode_rows(
    session: Session, episode: Episode, advantage: float, rollout: int, *, masked: bool
) -> list[TrainRow]:
    """The rows of one episode: one, or one per turn when earlier thinking is dropped from the history.

    One that has no reply, since its first observation fills the context, is a sample all the same: a row without a token (spec 8).
    """
    assert episode.dialogue is not None, "only opened episodes have a reward"
    parts = episode.rows() or [Row(episode.dialogue.context_ids, (), (), ())]
    return [
        TrainRow(
            sample=episode.key,
            role="agent",
            prompt_ids=part.prompt_ids,
            token_ids=part.token_ids,
            mask=(0,) * len(part.token_ids) if masked else part.mask,
            sampler_logprobs=part.logprobs,
            advantage=advantage,
            temperature=session.config.agent.temperature,
            rollout=rollout,
            weight=1.0 / len(parts),
        )
        for part in parts
    ]


def _add_designer_samples(session: Session, batch: Batch, rollout: int) -> None:
    """Score the designs whose window is complete (all that wait in the last rollout) and let them join the batch."""
    config, state = session.config, session.state
    last = rollout == config.schedule.rollouts - 1
    due = due_samples(state.waiting, rollout, delay=config.schedule.designer_delay, last=last)
    state.waiting = [s for s in state.waiting if s not in due]
    due = [s for s in due if s.environment not in state.quarantined]
    if not due:
        return
    weight = designer_weight(
        designer_samples=len(due),
        agent_samples=len(batch.agent_rewards),
        interval=config.schedule.regenerate_every,
        cap=config.reward.designer_weight_cap,
    )
    designs = [s.design() for s in due]
    scored = [
        score
        if score.reward is None
        else replace(score, reward=score.reward * state.training_weight(score.environment))
        for score in score_designs(designs, config=config.reward, weight=weight, trackers=state.trackers)
    ]
    session.record.scored, session.record.designer_weight = scored, weight
    for sample, score in zip(due, scored, strict=True):
        flushed = sample.rollout + config.schedule.designer_delay > rollout
        session.log.emit(_reward_event(session, sample, score, weight, flushed=flushed))
        if config.designer.train and sample.token_ids:
            batch.rows.append(_designer_row(session, sample, score))
            batch.designer_advantages.append(score.reward or 0.0)
            batch.staleness.append(rollout - sample.rollout)


def _reward_event(
    session: Session, sample: DesignSample, score: Scored, weight: float, *, flushed: bool
) -> DesignerRewarded:
    return DesignerRewarded(
        environment=score.environment,
        skill=score.skill,
        variant=session.config.reward.variant,
        win_rate=score.win_rate,
        regret=sample.regret,
        anchor=score.anchor,
        regret_term=score.regret_term,
        raw=score.raw,
        skill_mean=score.skill_mean,
        weight=weight,
        environment_weight=session.state.training_weight(score.environment),
        reward=score.reward if session.config.designer.train else None,
        faulty=sample.faulty,
        flushed=flushed,
    )


def _designer_row(session: Session, sample: DesignSample, score: Scored) -> TrainRow:
    """A masked design stays in the batch as a sample without gradient (spec 8)."""
    return TrainRow(
        sample=sample.environment,
        role="designer",
        prompt_ids=sample.prompt_ids,
        token_ids=sample.token_ids,
        mask=(int(score.reward is not None),) * len(sample.token_ids),
        sampler_logprobs=sample.logprobs,
        advantage=score.reward or 0.0,
        temperature=session.config.designer.temperature if sample.temperature is None else sample.temperature,
        rollout=sample.rollout,
    )


def batch_metrics(batch: Batch) -> Mapping[str, float | None]:
    """Per-role figures of a batch; means over the role's own samples."""

    def trained(role: str) -> float:
        return float(sum(sum(row.mask) for row in batch.rows if row.role == role))

    agent, designer = batch.agent_advantages, batch.designer_advantages
    return {
        "reward/agent_mean": mean(batch.agent_rewards),
        "reward/agent_std": _spread(batch.agent_rewards),
        "advantage/agent_mean": mean(agent),
        "advantage/agent_std": _spread(agent),
        "advantage/agent_abs_mean": mean([abs(a) for a in agent]),
        "advantage/agent_frac_zero": mean([float(a == 0) for a in agent]),
        "advantage/designer_mean": mean(designer),
        "advantage/designer_std": _spread(designer),
        "advantage/designer_abs_mean": mean([abs(a) for a in designer]),
        "advantage/designer_frac_zero": mean([float(a == 0) for a in designer]),
        "samples/agent": float(len(agent)),
        "samples/designer": float(len(designer)),
        "samples/filtered_share": batch.filtered / len(agent) if agent else None,
        "tokens/agent": trained("agent"),
        "tokens/designer": trained("designer"),
        "staleness/mean": mean([float(s) for s in batch.staleness]),
        "staleness/max": float(max(batch.staleness)) if batch.staleness else None,
    }


def _spread(values: Sequence[float]) -> float | None:
    return population_variance(values) ** 0.5 if values else None
