"""Reading environments and candidates of one run. Memory, corpus and regret: ``selectors_sources``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db.models import Avg, Count, Q, QuerySet
from django.http import Http404

from webapp.core.listing import narrowed
from webapp.core.pagination import Page, keyset_page
from webapp.environments.models import (
    Candidate,
    DesignerReward,
    Environment,
    RegretPoint,
)
from webapp.environments.selectors_signals import SIGNALS, group_keys, truncated_keys
from webapp.episodes.models import Episode
from webapp.episodes.selectors import SAME_LINE
from webapp.runs.models import Command, Run
from webapp.runs.overview import faulty_keys, hung_keys

PAGE_ROWS = 50
LIST = "environments"  # its name for features that add columns and filters
FLAGS = {flag: word for flag, (word, _) in SIGNALS.items()}
STATES = tuple(Environment.State.values)


@dataclass(frozen=True, kw_only=True)
class EnvironmentFilter:
    """What the list is narrowed to; empty means no narrowing."""

    search: str = ""
    skill: str = ""
    state: str = ""
    flag: str = ""
    rollout: int | None = None
    document: str = ""
    added: tuple[tuple[str, str], ...] = ()  # filters of other features (core/listing.py), as (name, value)


@dataclass(slots=True, kw_only=True)
class Measured:
    """What was measured on one environment; None where nothing was."""

    plays: dict[int, int] = field(default_factory=dict)  # offset -> unhinted episodes with a reward
    win_unhinted: float | None = None  # mean outcome over the whole window
    win_hinted: float | None = None
    unhinted_n: int = 0
    hinted_n: int = 0
    faults: int = 0
    regret: RegretPoint | None = None
    reward: DesignerReward | None = None

    @property
    def regret_value(self) -> float | None:
        """None while it is not measured, and where it cannot be."""
        return self.regret.regret if self.regret else None

    @property
    def regret_error(self) -> float | None:
        """Standard error of the regret."""
        return self.regret.standard_error if self.regret else None


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One row of the list."""

    environment: Environment
    measured: Measured


def list_environments(
    *, run: Run, chosen: EnvironmentFilter, cursor: str = "", size: int = PAGE_ROWS
) -> tuple[Page[Environment], list[Listed]]:
    """Newest set first. Raises BadRequest for a damaged cursor."""
    rows = _narrowed(run, chosen).defer("code", "measures")
    page = keyset_page(rows, order=("-rollout", "slot", "id"), cursor=cursor, size=size)
    return page, with_measures(environments=page.rows)


def matching_ids(*, run: Run, chosen: EnvironmentFilter, keys: Sequence[str] | None = None) -> list[int]:
    """Ids of all environments that the filters let through, in the order of the list; with ``keys`` those of the run with these keys."""
    rows = _narrowed(run, EnvironmentFilter() if keys is not None else chosen)
    if keys is not None:
        rows = rows.filter(key__in=list(keys))
    return list(rows.order_by("-rollout", "slot", "id").values_list("pk", flat=True))


def newest_environments(*, run: Run, limit: int) -> list[Listed]:
    """The newest ones that hold."""
    rows = (
        Environment.objects.filter(run=run, superseded=False)
        .defer("code", "measures")
        .order_by("-rollout", "slot")[:limit]
    )
    return with_measures(environments=list(rows))


def find_environments(*, run_id: int, text: str, limit: int) -> list[Environment]:
    """Environments that hold whose name or key has the text in it, newest set first; key, name and state only."""
    rows = Environment.objects.filter(run_id=run_id, rollout__isnull=False, superseded=False)
    called = Q(class_name__icontains=text) | Q(key__icontains=text)
    return list(rows.filter(called).only("key", "class_name", "state").order_by("-rollout", "slot", "id")[:limit])


def _narrowed(run: Run, chosen: EnvironmentFilter) -> QuerySet[Environment]:
    rows = Environment.objects.filter(run=run, rollout__isnull=False, superseded=False).select_related("document")
    if chosen.search:
        rows = rows.filter(
            Q(class_name__icontains=chosen.search)
            | Q(key__icontains=chosen.search)
            | Q(hint_text__icontains=chosen.search)
        )
    if chosen.skill:
        rows = rows.filter(skill=chosen.skill)
    if chosen.state:
        rows = rows.filter(state=chosen.state)
    if chosen.rollout is not None:
        rows = rows.filter(rollout=chosen.rollout)
    if chosen.document:
        rows = rows.filter(document_key=chosen.document)
    if chosen.flag:
        rows = rows.filter(_flagged(run, chosen.flag))
    return narrowed(LIST, rows, chosen.added)


def _flagged(run: Run, flag: str) -> Q:
    if flag == "hung":
        return Q(key__in=hung_keys(run=run))
    if flag == "faulty":
        return Q(key__in=faulty_keys(run=run))
    if flag in ("allwon", "alllost", "zerospread"):
        return Q(key__in=group_keys(run=run, flag=flag))
    if flag == "truncated":
        return Q(key__in=truncated_keys(run=run))
    if flag == "leaky":
        return Q(hint_state="leaky")
    if flag == "nohint":
        return Q(hint_state="none")
    negative = RegretPoint.objects.filter(run=run, superseded=False, regret__lt=0).values("environment_key")
    return Q(key__in=negative)


def with_measures(*, environments: Sequence[Environment]) -> list[Listed]:
    """The environments with their statistics, in three queries whatever their number."""
    measured = {environment.pk: Measured() for environment in environments}
    groups = (
        Episode.objects.filter(SAME_LINE, environment__in=list(measured))
        .values("environment_id", "arm", "offset")
        .annotate(mean=Avg("reward"), n=Count("reward"), all=Count("id"))
        .order_by("environment_id", "arm", "offset")
    )
    sums: dict[tuple[int, str], float] = {}
    for group in groups:
        one = measured[group["environment_id"]]
        one.faults += group["all"] - group["n"]
        at = (group["environment_id"], group["arm"])
        sums[at] = sums.get(at, 0.0) + (group["mean"] or 0.0) * group["n"]
        if group["arm"] == "unhinted":
            one.plays[group["offset"]] = group["n"]
            one.unhinted_n += group["n"]
        else:
            one.hinted_n += group["n"]
    for (pk, arm), total in sums.items():
        one = measured[pk]
        if arm == "unhinted" and one.unhinted_n:
            one.win_unhinted = total / one.unhinted_n
        elif arm == "hinted" and one.hinted_n:
            one.win_hinted = total / one.hinted_n
    for point in RegretPoint.objects.filter(SAME_LINE, environment__in=list(measured)):
        measured[point.environment_id or 0].regret = point
    for reward in DesignerReward.objects.filter(SAME_LINE, environment__in=list(measured)):
        measured[reward.environment_id or 0].reward = reward
    return [Listed(environment=environment, measured=measured[environment.pk]) for environment in environments]


def access_environment(*, run: Run, key: str, attempt: int | None = None) -> Environment:
    """The environment of this key that holds; with ``attempt`` the one of that attempt. Raises Http404."""
    rows = Environment.objects.filter(run=run, key=key).select_related("document", "candidate")
    rows = rows.filter(superseded=False) if attempt is None else rows.filter(attempt=attempt)
    found = rows.first() or (
        Environment.objects.filter(run=run, key=key).order_by("-attempt").first() if attempt is None else None
    )
    if found is None:
        raise Http404(f"There is no environment {key} in this run.")
    return found


def access_candidate(*, run: Run, key: str, attempt: int | None = None) -> Candidate:
    """The newest candidate of this key, or the one of ``attempt``. Raises Http404."""
    rows = Candidate.objects.filter(run=run, key=key).select_related("document").order_by("superseded", "-attempt")
    found = (rows if attempt is None else rows.filter(attempt=attempt)).first()
    if found is None:
        raise Http404(f"There is no candidate {key} in this run.")
    return found


def list_candidates(
    *, run: Run, skill: str = "", stage: str = "", accepted: bool | None = None, cursor: str = "", size: int = PAGE_ROWS
) -> Page[Candidate]:
    """Design attempts, newest first, without their texts. Raises BadRequest for a damaged cursor."""
    rows = Candidate.objects.filter(run=run, superseded=False).defer("prompt", "reply", "code", "stages")
    if skill:
        rows = rows.filter(skill=skill)
    if stage:
        rows = rows.filter(failed_stage=stage)
    if accepted is not None:
        rows = rows.filter(accepted=accepted)
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)


def rejection_counts(*, run: Run) -> list[tuple[str, int]]:
    """Stage and how many candidates it rejected, most first."""
    rows = (
        Candidate.objects.filter(run=run, superseded=False, accepted=False)
        .values("failed_stage")
        .annotate(n=Count("id"))
        .order_by("-n")
    )
    return [(row["failed_stage"] or "unknown", row["n"]) for row in rows]


def attempts_for_slot(*, environment: Environment) -> list[Candidate]:
    """Every design attempt of the environment's slot, first to last."""
    return list(
        Candidate.objects.filter(
            run_id=environment.run_id, attempt=environment.attempt, environment_key=environment.key
        ).order_by("design_attempt")
    )


@dataclass(frozen=True, kw_only=True)
class Relative:
    """A memory record an environment was prompted with (or that was prompted with it); ``environment`` may be gone."""

    key: str
    environment: Environment | None


def relatives(*, run: Run, keys: Sequence[str]) -> list[Relative]:
    """The environments of these keys, in their order."""
    found = {
        row.key: row for row in Environment.objects.filter(run=run, key__in=list(keys), superseded=False).defer("code")
    }
    return [Relative(key=key, environment=found.get(key)) for key in keys]


def children_of(*, environment: Environment, limit: int = 50) -> list[Environment]:
    """Environments whose prompt showed this one as an example or counter-example."""
    rows = Environment.objects.filter(run_id=environment.run_id, superseded=False).filter(
        Q(examples__contains=[environment.key]) | Q(counter_examples__contains=[environment.key])
    )
    return list(rows.defer("code").order_by("rollout", "slot")[:limit])


@dataclass(frozen=True, kw_only=True)
class OffsetRow:
    """Both arms of one offset."""

    offset: int
    unhinted_mean: float | None
    unhinted_n: int
    hinted_mean: float | None
    hinted_n: int
    faults: int
    turns: float | None
    tokens: float | None


def statistics_by_offset(*, environment: Environment) -> list[OffsetRow]:
    """What was measured at each offset of the window."""
    arms = Episode.objects.filter(SAME_LINE, environment=environment).values("offset").order_by("offset")
    unhinted, hinted = Q(arm="unhinted"), Q(arm="hinted")
    rows = arms.annotate(
        unhinted_mean=Avg("reward", filter=unhinted),
        unhinted_n=Count("reward", filter=unhinted),
        hinted_mean=Avg("reward", filter=hinted),
        hinted_n=Count("reward", filter=hinted),
        faults=Count("id", filter=Q(reward__isnull=True)),
        mean_turns=Avg("turns"),
        mean_tokens=Avg("total_tokens"),
    )
    return [
        OffsetRow(
            offset=row["offset"], unhinted_mean=row["unhinted_mean"], unhinted_n=row["unhinted_n"], hinted_mean=row["hinted_mean"],
            hinted_n=row["hinted_n"], faults=row["faults"], turns=row["mean_turns"], tokens=row["mean_tokens"],
        )
        for row in rows
    ]  # fmt: skip


def commands_on(*, environment: Environment) -> list[Command]:
    """Quarantine and release commands, newest first, with what the trainer answered."""
    return list(
        Command.objects.filter(run_id=environment.run_id, environment=environment.key)
        .select_related("by")
        .order_by("-created_at")[:20]
    )


def skills_of(*, run: Run) -> list[str]:
    """Skills that environments or candidates of the run have, sorted."""
    return sorted(Candidate.objects.filter(run=run).values_list("skill", flat=True).distinct())


def set_rollouts(*, run: Run) -> list[int]:
    """Rollouts that wrote a set, newest first."""
    rows = Environment.objects.filter(run=run, superseded=False, rollout__isnull=False).order_by("-rollout")
    return [rollout for rollout in rows.values_list("rollout", flat=True).distinct() if rollout is not None]
