"""What flags do to a run: asking the trainer, undoing it, and reading from its answers what holds.

Functions that ask run inside the caller's transaction; who may call them is the caller's affair.
"""

from __future__ import annotations

from dataclasses import dataclass

from webapp.accounts.models import User
from webapp.environments.models import Environment
from webapp.review.models import Act, Effect
from webapp.runs import services as runs
from webapp.runs.models import Command
from webapp.runs.states import ACTIVE, Status

#: A trainer of a run in one of these states will never read a command again, or has not been planned yet.
_NOBODY_READS = (Status.DRAFT, Status.COMPLETED)
#: Acts after which exports leave an environment out and queues do not offer it.
WITHHOLDING = (Act.QUARANTINE, Act.PURGE_MEMORY)
FULL_WEIGHT = 1.0


@dataclass(frozen=True, kw_only=True)
class EffectState:
    """``word`` is what the chip says, ``detail`` the rest of the sentence; ``tone`` is one of the chip's."""

    word: str
    detail: str = ""
    tone: str = "none"


def is_read_by_a_trainer(environment: Environment) -> bool:
    """Whether a command about the environment will ever be read: at once, or when the run is resumed."""
    return not environment.superseded and environment.run.status not in _NOBODY_READS


def ask(*, actor: User, environment: Environment, act: str, weight: float | None, reason: str) -> Command | None:
    """Ask the trainer for the act; None where none will read it. Raises ActRefused."""
    if not is_read_by_a_trainer(environment):
        return None
    run_id, key = environment.run_id, environment.key
    if act == Act.QUARANTINE:
        return runs.quarantine_environment(actor=actor, run_id=run_id, environment_key=key, reason=reason)
    if act == Act.PURGE_MEMORY:
        return runs.purge_memory_record(actor=actor, run_id=run_id, environment_key=key, reason=reason)
    if weight is None:
        raise ValueError("a down-weight needs its weight")
    return runs.down_weight_environment(actor=actor, run_id=run_id, environment_key=key, weight=weight, reason=reason)


def ask_to_undo(*, actor: User, effect: Effect, reason: str) -> Command | None:
    """Ask the trainer to take the act back; None where it never was asked, refused it, or will not read this. Raises ActRefused."""
    environment = effect.environment
    is_in_vain = effect.command is None or effect.command.accepted is False
    if is_in_vain or not is_read_by_a_trainer(environment):
        return None
    run_id, key = environment.run_id, environment.key
    if effect.act == Act.QUARANTINE:
        return runs.release_environment(actor=actor, run_id=run_id, environment_key=key, reason=reason)
    if effect.act == Act.PURGE_MEMORY:
        return runs.restore_memory_record(actor=actor, run_id=run_id, environment_key=key, reason=reason)
    return runs.down_weight_environment(
        actor=actor, run_id=run_id, environment_key=key, weight=FULL_WEIGHT, reason=reason
    )


def state_of(effect: Effect) -> EffectState:
    """What holds now, proven by the trainer's answers. Needs ``environment__run``, ``command`` and ``undo`` loaded."""
    run = effect.environment.run
    if effect.undone_at is not None:
        return _undone(effect)
    command = effect.command
    if command is None:
        return EffectState(
            word="recorded", detail=f"no trainer reads it ({_why_nobody(effect.environment)}); {_elsewhere(effect)}"
        )
    if command.acknowledged_at is not None:
        return _answered(effect, command)
    if run.status in _NOBODY_READS:
        return EffectState(word="recorded", detail=f"the run ended before the trainer read it; {_elsewhere(effect)}")
    if run.status in ACTIVE:
        handed = "handed to the trainer" if command.sent_at else "waits for the supervisor"
        return EffectState(word="asked", detail=f"{handed}; no answer yet", tone="wait")
    return EffectState(
        word="asked", detail=f"the run is {run.status}: takes effect when it goes on; {_elsewhere(effect)}", tone="wait"
    )


def _answered(effect: Effect, command: Command) -> EffectState:
    since = "" if command.effective_rollout is None else f" from rollout {command.effective_rollout}"
    if command.accepted:
        return EffectState(word=f"in effect{since}", detail=_what_holds(effect), tone="good")
    if effect.act == Act.QUARANTINE and effect.environment.state == Environment.State.QUARANTINED:
        held = effect.environment.state_rollout
        already = "" if held is None else f" from rollout {held}"
        return EffectState(word=f"in effect{already}", detail="it was in quarantine already", tone="good")
    return EffectState(word="refused by the trainer", detail=command.message or "it gave no reason", tone="bad")


def _undone(effect: Effect) -> EffectState:
    undo = effect.undo
    if undo is None:
        return EffectState(word="undone", detail="nothing had to be asked of a trainer")
    if undo.acknowledged_at is None:
        if effect.environment.run.status in _NOBODY_READS:
            return EffectState(word="undone", detail="the run ended before the trainer read it")
        return EffectState(word="undo asked", detail="no answer of the trainer yet", tone="wait")
    if undo.accepted:
        since = "" if undo.effective_rollout is None else f" from rollout {undo.effective_rollout}"
        return EffectState(word=f"undone{since}")
    return EffectState(word="undo refused by the trainer", detail=undo.message or "it gave no reason", tone="bad")


def _why_nobody(environment: Environment) -> str:
    return "a resume left the environment behind" if environment.superseded else f"the run is {environment.run.status}"


def _elsewhere(effect: Effect) -> str:
    return "exports and queues leave it out" if effect.act in WITHHOLDING else "exports say so"


def _what_holds(effect: Effect) -> str:
    if effect.act == Act.QUARANTINE:
        return "not played, not trained, not in memory"
    if effect.act == Act.PURGE_MEMORY:
        return "shown to no designer"
    return f"advantages times {effect.weight:g}" if effect.weight is not None else ""
