"""Reading flags: of one environment or episode, the list of all, and what they keep out of exports and queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet
from django.http import Http404
from django.urls import reverse

from webapp.accounts.models import User
from webapp.core.pagination import Page, keyset_page
from webapp.environments.models import Environment
from webapp.episodes.models import Episode
from webapp.episodes.selectors import TURNS_A_PAGE
from webapp.review.effects import WITHHOLDING, EffectState, state_of
from webapp.review.models import Effect, Flag, FlagKind
from webapp.review.services import may_reach_trainer
from webapp.review.trained import Trained, trained_before_each

PAGE_ROWS = 50
SEVERITIES = {str(severity.label): severity.value for severity in Flag.Severity}
STATES = {
    "open": "not withdrawn",
    "proposed": "proposed, waits for an operator",
    "held": "with an effect",
    "withdrawn": "withdrawn",
}


_OF_RUN = ("config", "phase", "latest", "notes")
#: Long fields beside an effect and beside a flag that no list shows anything of.
HEAVY_OF_EFFECTS = (
    "environment__code", "environment__measures", *(f"environment__run__{name}" for name in _OF_RUN),
)  # fmt: skip
HEAVY = (
    *HEAVY_OF_EFFECTS, *(f"run__{name}" for name in _OF_RUN), *(f"effect__{name}" for name in HEAVY_OF_EFFECTS),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a flag points: a few words and the address with the anchor."""

    text: str
    url: str


@dataclass(frozen=True, kw_only=True)
class ShownFlag:
    """A flag as pages show it, for one reader."""

    flag: Flag
    place: Place
    state: EffectState | None  # None: a note, a proposal, or withdrawn without ever having had an effect
    trained: Trained | None  # what updates had used before the effect came; None without an effect
    may_withdraw: bool
    may_put_into_effect: bool
    may_undo: bool


@dataclass(frozen=True, kw_only=True)
class FlagFilter:
    """What the list is narrowed to; empty means no narrowing."""

    kind: str = ""
    severity: str = ""
    state: str = ""
    subject: str = ""
    run: int | None = None
    skill: str = ""
    by: str = ""


def offered_kinds() -> list[FlagKind]:
    """Kinds that can be chosen, in their order."""
    return list(FlagKind.objects.filter(retired_at=None))


def kinds_by_use() -> list[FlagKind]:
    """Kinds that can be chosen, the most used first."""
    standing = Count("flags", filter=Q(flags__withdrawn_at=None))
    return list(FlagKind.objects.filter(retired_at=None).annotate(used=standing).order_by("-used", "position", "id"))


def all_kinds() -> list[FlagKind]:
    """Every kind with how many flags have it (``used``), offered ones first."""
    kinds = FlagKind.objects.annotate(used=Count("flags")).order_by("position", "id")
    return sorted(kinds, key=lambda kind: kind.retired_at is not None)


def access_environment(*, environment_id: int) -> Environment:
    """The environment with its run. Raises Http404."""
    try:
        return Environment.objects.select_related("run").get(pk=environment_id, run__deleted_at=None)
    except Environment.DoesNotExist as error:
        raise Http404("There is no such environment.") from error


def access_flag(*, flag_id: int) -> Flag:
    """The flag with its environment and run. Raises Http404."""
    try:
        return Flag.objects.select_related("environment__run").get(pk=flag_id, run__deleted_at=None)
    except Flag.DoesNotExist as error:
        raise Http404("There is no such flag.") from error


def access_effect(*, effect_id: int) -> Effect:
    """The effect with its environment and run. Raises Http404."""
    try:
        return Effect.objects.select_related("environment__run").get(pk=effect_id, environment__run__deleted_at=None)
    except Effect.DoesNotExist as error:
        raise Http404("There is no such effect.") from error


def flags_of_environment(*, environment: Environment, reader: User) -> list[ShownFlag]:
    """Every flag of it, its episodes and its lines, standing ones first, newest first."""
    flags = sorted(
        _loaded(Flag.objects.filter(environment=environment)), key=lambda flag: flag.withdrawn_at is not None
    )
    return _shown(flags, reader)


def flags_of_episode(*, episode: Episode, reader: User) -> list[ShownFlag]:
    """Flags that point at the episode or a turn of it."""
    flags = sorted(_loaded(Flag.objects.filter(episode=episode)), key=lambda flag: flag.withdrawn_at is not None)
    return _shown(flags, reader)


def list_flags(
    *, chosen: FlagFilter, reader: User, cursor: str = "", size: int = PAGE_ROWS
) -> tuple[Page[Flag], list[ShownFlag]]:
    """Newest first. Raises BadRequest for a damaged cursor."""
    page = keyset_page(_loaded(narrowed(chosen)), order=("-at", "-id"), cursor=cursor, size=size)
    return page, _shown(page.rows, reader)


def narrowed(chosen: FlagFilter) -> QuerySet[Flag]:
    """The flags a filter leaves. Those of deleted runs come back with their run."""
    flags = Flag.objects.filter(run__deleted_at=None)
    if chosen.kind:
        flags = flags.filter(kind__key=chosen.kind)
    if chosen.severity in SEVERITIES:
        flags = flags.filter(severity=SEVERITIES[chosen.severity])
    if chosen.subject:
        flags = flags.filter(subject=chosen.subject)
    if chosen.run is not None:
        flags = flags.filter(run_id=chosen.run)
    if chosen.skill:
        flags = flags.filter(environment__skill=chosen.skill)
    if chosen.by:
        flags = flags.filter(by__username=chosen.by)
    if chosen.state:
        flags = flags.filter(_in_state(chosen.state))
    return flags


def _in_state(state: str) -> Q:
    if state == "withdrawn":
        return Q(withdrawn_at__isnull=False)
    if state == "proposed":
        return Q(withdrawn_at=None, effect=None) & ~Q(wish=Flag.NOTE)
    if state == "held":
        return Q(withdrawn_at=None, effect__isnull=False, effect__undone_at=None)
    return Q(withdrawn_at=None)


def withheld(*, environments: QuerySet[Environment]) -> QuerySet[Environment]:
    """Those of ``environments`` that exports leave out and queues do not offer: quarantined or purged by a flag and not undone."""
    held = Effect.objects.filter(act__in=WITHHOLDING, undone_at=None).values("environment")
    return environments.filter(pk__in=held)


def flagged_environments() -> QuerySet[Flag, int]:
    """Ids of environments that somebody flagged, in whole or in part, withdrawn or not."""
    return Flag.objects.values_list("environment", flat=True)


def place_of(flag: Flag) -> Place:
    """Where to look, as precise as the flag says. Needs ``environment`` loaded."""
    environment = flag.environment
    if flag.episode_id is not None:
        url = reverse("runs:episode", args=[flag.run_id, flag.episode_id])
        if flag.turn_number is not None:
            start = f"?turn={flag.turn_number}" if flag.turn_number > TURNS_A_PAGE else ""  # beyond the first page
            return Place(text=f"turn {flag.turn_number}", url=f"{url}{start}#t{flag.turn_number}")
        return Place(text="episode", url=url)
    url = reverse("runs:environment", args=[flag.run_id, environment.key])
    if environment.superseded:
        url = f"{url}?attempt={environment.attempt}"
    if flag.first_line is not None:
        word = "line" if flag.first_line == flag.last_line else "lines"
        return Place(text=f"{word} {flag.lines}", url=f"{url}#L{flag.first_line}")
    return Place(text=flag.subject, url=url)


def _loaded(flags: QuerySet[Flag]) -> QuerySet[Flag]:
    return flags.select_related(
        "kind", "by", "withdrawn_by", "run", "environment__run", "effect__environment__run", "effect__command", "effect__undo",
        "effect__asked_by", "effect__undone_by",
    ).defer(*HEAVY).order_by("-at", "-id")  # fmt: skip


def _shown(flags: Iterable[Flag], reader: User) -> list[ShownFlag]:
    may_act = may_reach_trainer(reader)
    flags = list(flags)
    effects = {flag.effect.pk: flag.effect for flag in flags if flag.effect is not None}
    trained = (
        trained_before_each(wanted={effect.pk: (effect.environment, _since(effect)) for effect in effects.values()})
        if effects
        else {}
    )
    shown = []
    for flag in flags:
        effect = flag.effect
        stands = flag.withdrawn_at is None
        shown.append(
            ShownFlag(
                flag=flag,
                place=place_of(flag),
                state=state_of(effect) if effect is not None else None,
                trained=trained[effect.pk] if effect is not None else None,
                may_withdraw=stands and (may_act or flag.by_id == reader.pk),
                may_put_into_effect=may_act and flag.is_proposal,
                may_undo=may_act and stands and effect is not None and effect.undone_at is None,
            )
        )
    return shown


def _since(effect: Effect) -> int | None:
    """The rollout from which the trainer obeys; None while it does not."""
    command = effect.command
    return command.effective_rollout if command is not None and command.accepted else None
