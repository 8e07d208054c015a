"""SPADE, games setting: one policy writes environments, plays them with and without a hint, and learns from both.

    for every rollout r:
        every k rollouts: the designer writes a new set of environments, through the gates; one hint each
        the agent plays every environment n times; in the set's first rollout also n times with the hint, same seeds
        in that first rollout: regret = mean hinted return - mean unhinted return; environments enter the memory
        agent advantage  = return, standardised in its group
        designer reward  = how near the win rate is to the middle + how much the hint helps, over the set's whole window
        one update on the agent's episodes and on the designs that were written k rollouts ago
        the sampler gets the new weights; everything a resume needs is saved

Only unhinted episodes and accepted designs are trained. Left out here: engines (`rollout/`, `learn/`), the sandbox that runs every
generated line, and starting and ending a run (`run.py`). Source: arXiv 2608.19197; where its code errs we follow our spec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from trainer.designer import Designed, design_environments
from trainer.draw import draw_environments
from trainer.errors import LimitError
from trainer.events import EnvironmentStateChanged, RolloutFinished, RolloutStarted
from trainer.hints import write_hints
from trainer.measure import measure_rollout
from trainer.outcomes import collect_returns, measure_regrets, remember
from trainer.rollout.play import bar_faulty, play_rollout
from trainer.session import Session
from trainer.skills import active_skills
from trainer.update import make_batch, train


def run_rollouts(session: Session) -> None:
    """Do all rollouts that are left. Raises `Cancelled` at a safe point when the run is to stop."""
    for rollout in range(session.state.next_rollout, session.config.schedule.rollouts):
        run_rollout(session, rollout)


def run_rollout(session: Session, rollout: int) -> None:
    """One iteration of the algorithm; afterwards `state.next_rollout` is the next one and is saved."""
    offset = rollout % session.config.schedule.regenerate_every
    begin(session, rollout, offset)
    if offset == 0:
        renew_environments(session, rollout)
    episodes = play_rollout(session, session.state.playable(), offset)
    bar_faulty(session, episodes)
    collect_returns(session, episodes, offset)
    if offset == 0:
        measure_regrets(session, episodes)
        remember(session, rollout)
    session.control.safe_point()
    batch = make_batch(session, episodes, rollout)
    train(session, batch, rollout)
    finish(session, rollout)


def begin(session: Session, rollout: int, offset: int) -> None:
    """Announce the rollout."""
    schedule = session.config.schedule
    session.log.enter_rollout(rollout)
    session.start_record()
    session.meter.start_rollout()
    number = schedule.environments if offset == 0 else len(session.state.playable())
    session.log.emit(
        RolloutStarted(
            regeneration=offset == 0,
            offset=offset,
            active_skills=active_skills(
                schedule.skills,
                active=0 if session.state.pool else schedule.active_skills,  # a fixed pool knows no rotation
                rollout=rollout,
                interval=schedule.regenerate_every,
            ),
            environments=number,
            expected_unhinted=number * schedule.plays,
            expected_hinted=number * schedule.hinted_plays if offset == 0 else 0,
        )
    )
    session.control.safe_point()


def renew_environments(session: Session, rollout: int) -> None:
    """Write a new set with its hints, or draw one from the fixed pool; the old one goes only when the new one is complete.

    Raises `LimitError` when none passed.
    """
    designed = draw_environments(session, rollout) if session.state.pool else design_environments(session, rollout)
    if not designed:
        raise LimitError(_nothing_passed(session, rollout))
    if session.config.schedule.hinted_plays:
        write_hints(session, [d.environment for d in designed])
    for old in session.state.environments:
        session.pool.retire(old.key)
        session.state.baseline.pop(old.key, None)
        if not session.state.is_out(old.key):
            session.log.emit(
                EnvironmentStateChanged(environment=old.key, state="retired", reason="a new set was written")
            )
    adopt(session, designed)


def adopt(session: Session, designed: Sequence[Designed]) -> None:
    """The new set is the current one; its designs wait for their window."""
    session.state.environments = [d.environment for d in designed]
    session.state.waiting += [d.sample for d in designed if d.sample is not None]
    session.state.keep_programs([d.environment.code for d in designed])
    session.state.count(environments=len(designed))
    session.record.renewed = True


def finish(session: Session, rollout: int) -> None:
    """Report the rollout and save what a resume needs: prepared aside, reported, then made the newest checkpoint."""
    session.state.next_rollout = rollout + 1
    saves = session.saves_after(rollout)
    with session.meter.running("save", total=1):
        session.tensors.write(session.run.tensors(rollout))
        session.mark_finished()
        if saves:
            session.checkpoints.prepare(session.learner, session.finished)
    session.meter.finish("save", done=1)
    reported = measure_rollout(session)
    session.values = reported.values
    session.log.emit(reported)
    session.log.emit(RolloutFinished(**_summary(session, rollout)))
    session.log.sync()
    if saves:
        session.commit_checkpoint()


def _summary(session: Session, rollout: int) -> dict[str, Any]:
    elapsed, learned = session.meter.elapsed_s, session.record.learned
    return {
        "elapsed_s": round(elapsed, 4),
        "phase_s": {phase: round(seconds, 4) for phase, seconds in session.meter.phase_s.items()},
        "tokens_sampled": session.policy.use.tokens,
        "tokens_trained": sum(int(learned.get(f"tokens/{role}") or 0) for role in ("agent", "designer")),
        "eta_s": session.eta_s(rollout, elapsed),
    }


def _nothing_passed(session: Session, rollout: int) -> str:
    reasons = Counter(f"{c.failed_stage}: {c.reason}"[:200] for c in session.record.candidates)
    common = reasons.most_common(1)[0][0] if reasons else "no candidate"
    return (
        f"rollout {rollout}: none of {len(session.record.candidates)} design attempts passed the gates (most often {common}); "
        "raise designer.attempts or designer.max_tokens, or start from a model that writes better programs"
    )
