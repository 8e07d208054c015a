"""Flags and their effects. Each function owns its transaction and its audit entry; views check the reviewer's role first.

An effect reaches the trainer only through somebody who may act on runs (EFFECT_ROLE); a reviewer's wish waits as a proposal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from webapp.accounts.audit import record
from webapp.accounts.models import User
from webapp.accounts.roles import Role, has_role
from webapp.environments.models import Environment
from webapp.episodes.models import Episode
from webapp.review import effects
from webapp.review.errors import ReviewRefused
from webapp.review.models import Act, Effect, Flag, FlagKind
from webapp.runs import journal
from webapp.runs.errors import ActRefused
from webapp.runs.models import Run
from webapp.runs.storable import storable_text

EFFECT_ROLE = Role.OPERATOR
COMMENT_CHARS = 4000
_REASON_CHARS = 300


@dataclass(frozen=True, kw_only=True)
class Pointer:
    """Where to look: an episode, a turn of it (from 0), lines of the program (from 1, both included)."""

    episode_id: int | None = None
    turn: int | None = None
    first_line: int | None = None
    last_line: int | None = None


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What whoever flags wants done: "note" or an act, with the weight of a down-weight in (0, 1)."""

    act: str = Flag.NOTE
    weight: float | None = None


@transaction.atomic
def place_flag(
    *,
    actor: User,
    environment_id: int,
    kind_id: int,
    subject: str = Flag.Subject.ENVIRONMENT,
    pointer: Pointer | None = None,
    severity: int = Flag.Severity.MAJOR,
    comment: str = "",
    wish: Wish | None = None,
) -> Flag:
    """Flag something; the wish takes effect at once when the actor may, else it waits as a proposal. Raises ReviewRefused."""
    environment = _environment(environment_id)
    kind = FlagKind.objects.filter(pk=kind_id, retired_at=None).first()
    if kind is None:
        raise ReviewRefused("This kind of flag does not exist or was retired; choose another.")
    pointer, wish = pointer or Pointer(), wish or Wish()
    _check_pointer(environment, subject, pointer)
    check_wish(wish)
    flag = Flag.objects.create(
        run_id=environment.run_id,
        environment=environment,
        subject=subject,
        episode_id=pointer.episode_id,
        turn=pointer.turn,
        first_line=pointer.first_line,
        last_line=pointer.last_line or pointer.first_line,
        kind=kind,
        severity=severity,
        comment=storable_text(comment.strip())[:COMMENT_CHARS],
        wish=wish.act,
        weight=wish.weight if wish.act == Act.DOWN_WEIGHT else None,
        by=actor,
    )
    _note(actor, flag, "flag.placed", {"severity": flag.get_severity_display(), "subject": subject, "wish": wish.act})
    if wish.act != Flag.NOTE and may_reach_trainer(actor):
        _hold(actor, flag)
    return flag


def may_reach_trainer(user: User) -> bool:
    """Whether the person's flags take effect by themselves."""
    return has_role(user, EFFECT_ROLE)


@transaction.atomic
def put_into_effect(*, actor: User, flag_id: int) -> Effect:
    """Carry out a proposal. Raises ReviewRefused when there is none or the actor may not."""
    flag = _flag(flag_id)
    _require_effect_role(actor)
    if not flag.is_proposal:
        raise ReviewRefused("This flag has nothing that could be put into effect; look at the page again.")
    return _hold(actor, flag)


@transaction.atomic
def undo_effect(*, actor: User, effect_id: int, reason: str = "") -> Effect:
    """Take an effect back; the flags that asked for it stay, as notes. Raises ReviewRefused."""
    _require_effect_role(actor)
    effect = Effect.objects.select_related("environment__run", "command").filter(pk=effect_id).first()
    if effect is None:
        raise ReviewRefused("This effect is gone.")
    _undo(actor, effect, reason)
    return effect


@transaction.atomic
def withdraw_flag(*, actor: User, flag_id: int, reason: str = "") -> Flag:
    """Take a flag back (its author, or whoever may act on runs). The last flag that holds an effect undoes it. Raises ReviewRefused."""
    flag = _flag(flag_id)
    if flag.withdrawn_at is not None:
        raise ReviewRefused("This flag has been withdrawn already.")
    if flag.by_id != actor.pk and not may_reach_trainer(actor):
        raise ReviewRefused(f"Only its author or an {EFFECT_ROLE.value} can withdraw this flag.")
    flag.withdrawn_at = timezone.now()
    flag.withdrawn_by = actor
    flag.withdrawn_reason = storable_text(reason.strip())[:COMMENT_CHARS]
    flag.save(update_fields=["withdrawn_at", "withdrawn_by", "withdrawn_reason"])
    _note(actor, flag, "flag.withdrawn", {"reason": flag.withdrawn_reason})
    effect = flag.effect
    if effect is not None and effect.undone_at is None and not effect.flags.filter(withdrawn_at=None).exists():
        _require_effect_role(actor)
        _undo(actor, effect, f"flag {flag.pk} was withdrawn")
    return flag


def _hold(actor: User, flag: Flag) -> Effect:
    """Tie the flag to the effect of its act, asking the trainer when this is the first that wants it."""
    environment = flag.environment
    _lock_run(environment)
    effect = Effect.objects.filter(environment=environment, act=flag.wish, undone_at=None).first()
    if effect is None:
        reason = f"flag {flag.pk}: {flag.kind.label}, {flag.get_severity_display()}"
        if flag.comment:
            reason = f"{reason}: {flag.comment}"[:_REASON_CHARS]
        try:
            command = effects.ask(
                actor=actor, environment=environment, act=flag.wish, weight=flag.weight, reason=reason
            )
        except ActRefused as error:
            raise ReviewRefused(str(error)) from error
        effect = Effect.objects.create(
            environment=environment, act=flag.wish, weight=flag.weight, command=command, asked_by=actor
        )
    elif effect.act == Act.DOWN_WEIGHT and effect.weight != flag.weight:
        raise ReviewRefused(f"It is down-weighted to {effect.weight:g} already; undo that first to set another weight.")
    flag.effect = effect
    flag.save(update_fields=["effect"])
    _note(actor, flag, "flag.put_into_effect", {"act": effect.act, "reaches_trainer": effect.command_id is not None})
    return effect


def _undo(actor: User, effect: Effect, reason: str) -> None:
    _lock_run(effect.environment)
    if not Effect.objects.filter(pk=effect.pk, undone_at=None).exists():
        raise ReviewRefused("This effect has been undone already.")
    reason = storable_text(reason.strip())[:_REASON_CHARS]
    try:
        effect.undo = effects.ask_to_undo(actor=actor, effect=effect, reason=reason)
    except ActRefused as error:
        raise ReviewRefused(f"{error} Wait until the trainer has answered the first request, then undo it.") from error
    effect.undone_at = timezone.now()
    effect.undone_by = actor
    effect.save(update_fields=["undo", "undone_at", "undone_by"])
    detail = {"act": effect.act, "reason": reason, "reaches_trainer": effect.undo_id is not None}
    record(actor=actor, action="flag.effect_undone", target=effect.environment, detail=detail)
    _tell(effect.environment, actor, {"effect": effect.pk, "what": "undone"})


def _check_pointer(environment: Environment, subject: str, pointer: Pointer) -> None:
    """Whether the pointer leads somewhere and the subject has what it needs. Raises ReviewRefused."""
    if subject not in Flag.Subject.values:
        raise ReviewRefused("Say what the flag is about.")
    if subject == Flag.Subject.HINT and not environment.hint_text:
        raise ReviewRefused("This environment has no hint that could be flagged.")
    if subject in (Flag.Subject.EPISODE, Flag.Subject.TURN) and pointer.episode_id is None:
        raise ReviewRefused("Say which episode it is.")
    if subject == Flag.Subject.TURN and pointer.turn is None:
        raise ReviewRefused("Say which turn it is.")
    if subject == Flag.Subject.LINES and pointer.first_line is None:
        raise ReviewRefused("Say which lines they are.")
    _check_episode(environment, pointer)
    if pointer.first_line is not None:
        lines = environment.code.removesuffix("\n").count("\n") + 1
        if not 1 <= pointer.first_line <= (pointer.last_line or pointer.first_line) <= lines:
            raise ReviewRefused(f"The program has lines 1 to {lines}.")
    elif pointer.last_line is not None:
        raise ReviewRefused("Lines need a first one.")


def _check_episode(environment: Environment, pointer: Pointer) -> None:
    if pointer.episode_id is None:
        if pointer.turn is not None:
            raise ReviewRefused("A turn needs its episode.")
        return
    episode = Episode.objects.filter(pk=pointer.episode_id, environment=environment).first()
    if episode is None:
        raise ReviewRefused("That episode is not one of this environment.")
    if pointer.turn is not None and not 0 <= pointer.turn < episode.turns:
        raise ReviewRefused(f"That episode has turns 1 to {episode.turns}." if episode.turns else "It has no turns.")


def check_wish(wish: Wish) -> None:
    """Whether the wish can be had at all. Raises ReviewRefused."""
    if wish.act != Flag.NOTE and wish.act not in Act.values:
        raise ReviewRefused("That is not an effect a flag can have.")
    if wish.act == Act.DOWN_WEIGHT and (wish.weight is None or not 0 < wish.weight < 1):
        raise ReviewRefused(
            "A down-weight needs a weight between 0 and 1; to leave the environment out, quarantine it."
        )


def _require_effect_role(actor: User) -> None:
    if not may_reach_trainer(actor):
        raise ReviewRefused(f"What reaches a trainer needs the role {EFFECT_ROLE.value}.")


def _note(actor: User, flag: Flag, action: str, detail: dict[str, Any]) -> None:
    """Audit row, and an event that makes open pages look again."""
    label = f"flag {flag.pk} on {flag.environment}"
    record(actor=actor, action=action, target=flag, label=label, detail={"kind": flag.kind.key, **detail})
    _tell(flag.environment, actor, {"flag": flag.pk, "what": action.removeprefix("flag.")})


def _tell(environment: Environment, actor: User, payload: dict[str, Any]) -> None:
    payload = {"environment": environment.key, "by": actor.get_username(), **payload}
    journal.append(run_id=environment.run_id, kind="flag", payload=payload)


def _lock_run(environment: Environment) -> None:
    """Before any look at effects: two people on one environment go one after the other."""
    Run.objects.select_for_update().get(pk=environment.run_id)


def _environment(environment_id: int) -> Environment:
    environment = Environment.objects.select_related("run").filter(pk=environment_id).first()
    if environment is None:
        raise ReviewRefused("This environment is gone.")
    return environment


def _flag(flag_id: int) -> Flag:
    flags = Flag.objects.select_for_update(of=("self",), no_key=True).select_related(
        "environment__run", "kind", "effect__command", "effect__environment__run"
    )
    flag = flags.filter(pk=flag_id).first()
    if flag is None:
        raise ReviewRefused("This flag is gone.")
    return flag
