"""What updates had already used of an environment when an effect came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Count, Q, Sum

from webapp.environments.models import Candidate, DesignerReward, Environment
from webapp.episodes.models import Episode


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Samples of an environment that updates had already used: agent episodes with their tokens, and its design."""

    episodes: int
    tokens: int
    designs: int
    shown_to: int  # later design attempts whose prompt showed it from memory


def trained_before(*, environment: Environment, rollout: int | None = None) -> Trained:
    """What was trained before ``rollout`` (exclusive); None: in all finished rollouts of the run."""
    return trained_before_each(wanted={0: (environment, rollout)})[0]


def trained_before_each(*, wanted: Mapping[int, tuple[Environment, int | None]]) -> dict[int, Trained]:
    """The same of many, each under the caller's own number, in three queries. Needs the environments' runs loaded."""
    environments = {environment.pk: environment for environment, _ in wanted.values()}
    played = list(
        Episode.objects.filter(environment__in=list(environments), trained_tokens__gt=0, rollout__isnull=False)
        .order_by()
        .values_list("environment_id", "superseded", "rollout")
        .annotate(n=Count("id"), tokens=Sum("trained_tokens"))
    )
    designs = list(
        DesignerReward.objects.filter(
            environment__in=list(environments), reward__isnull=False, rollout__isnull=False
        ).values_list("environment_id", "superseded", "rollout")
    )
    shown = _shown_to(environments.values())
    found = {}
    for number, (environment, rollout) in wanted.items():
        end = environment.run.rollouts_done if rollout is None else rollout
        pk, is_superseded = environment.pk, environment.superseded
        own = [
            (n, tokens or 0)
            for of, line, at, n, tokens in played
            if of == pk and line == is_superseded and at is not None and at < end
        ]
        designed = [
            at for of, line, at in designs if of == pk and line == is_superseded and at is not None and at < end
        ]
        found[number] = Trained(
            episodes=sum(n for n, _ in own), tokens=sum(tokens for _, tokens in own), designs=len(designed),
            shown_to=sum(at < end for at in shown.get((environment.run_id, environment.key), ())),
        )  # fmt: skip
    return found


def _shown_to(environments: Iterable[Environment]) -> dict[tuple[int, str], list[int]]:
    """By run and key of the environment the rollout of each design attempt whose prompt showed it."""
    asked = {(environment.run_id, environment.key) for environment in environments}
    runs, keys = {run for run, _ in asked}, sorted({key for _, key in asked})
    rows = Candidate.objects.filter(
        Q(examples__has_any_keys=keys) | Q(counter_examples__has_any_keys=keys), run__in=runs, superseded=False,
        rollout__isnull=False,
    )  # fmt: skip
    found: dict[tuple[int, str], list[int]] = {one: [] for one in asked}
    for run, rollout, examples, counters in rows.values_list("run_id", "rollout", "examples", "counter_examples"):
        for key in {*examples, *counters}:
            if (run, key) in asked and rollout is not None:
                found[run, key].append(rollout)
    return found
