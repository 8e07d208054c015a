"""What the first tab of a run shows: stages of the rollout, key figures, and what deserves attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, Min, Q

from trainer.events import PHASES
from webapp.environments.models import Candidate, DesignerReward, Environment, RegretPoint
from webapp.episodes.models import Episode
from webapp.runs.models import Run
from webapp.runs.selectors import Z_95, newest_values
from webapp.runs.states import ACTIVE, Status

#: Stages that exist only in a rollout that writes a new set.
_OF_REGENERATION = ("design", "gates", "hints")

_FLAGS = (
    ("hung", "hung", "bad", "a step ran into the time-out"),
    ("faulty", "faulty", "bad", "hung, or a quarter of the unhinted episodes faulted"),
    ("leaky", "leaky hint", "warn", "the hint names the answer; regret is capped at 0"),
    ("nohint", "no hint", "warn", "so there is no regret, and the reward has no regret term"),
    ("zerospread", "zero spread", "none", "every unhinted episode of a rollout ended alike: no gradient"),
    ("negative", "regret below 0", "none", "the hint made the agent lose more"),
)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of the strip; ``state`` is done, active, todo, failed or skipped."""

    name: str
    state: str
    done: int | None = None
    total: int | None = None
    note: str = ""
    counted_to: int = 0  # the newest candidate that the note counts; those after it come by the socket


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A key figure; ``value`` is None where nothing was measured; ``rollout`` says when it was."""

    key: str
    label: str
    value: float | None
    half_width: float | None = None
    arm: str = ""
    rollout: int | None = None
    is_share: bool = False


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Something to look at: how many, and the query of the environment list that shows exactly those."""

    word: str
    count: int
    query: str
    tone: str
    meaning: str


def stages_of(*, run: Run) -> list[Stage]:
    """The strip of the rollout under way, in the order of the loop."""
    phases: Mapping[str, Mapping[str, Any]] = run.phase.get("phases", {})
    has_regeneration = bool(run.phase.get("regeneration", True))
    is_over = run.status not in ACTIVE
    accepted, rejected, newest = judged_counts(run=run)
    judged = f"{accepted} ok · {rejected} rejected" if accepted or rejected else ""
    stages = []
    for name in PHASES:
        seen = phases.get(name)
        note, counted_to = (judged, newest) if name == "gates" else ("", 0)
        if not has_regeneration and name in _OF_REGENERATION:
            stages.append(Stage(name=name, state="skipped", note="kept set"))
        elif seen is None:
            stages.append(Stage(name=name, state="todo", counted_to=counted_to))
        elif seen.get("state") == "finished":
            stages.append(
                Stage(
                    name=name,
                    state="done",
                    done=seen.get("done"),
                    total=seen.get("total"),
                    note=note,
                    counted_to=counted_to,
                )
            )
        else:
            broken = is_over and run.status in (Status.FAILED, Status.LOST)
            stages.append(
                Stage(
                    name=name,
                    state="failed" if broken else "active",
                    done=seen.get("done"),
                    total=seen.get("total"),
                    note=note,
                    counted_to=counted_to,
                )
            )
    return stages


def judged_counts(*, run: Run) -> tuple[int, int, int]:
    """Accepted and rejected candidates of the rollout under way, and the id of the newest of them, 0 without any.

    One query: a page loads its run before, and by its socket hears again of candidates that came between.
    """
    if run.rollout is None:
        return 0, 0, 0
    counts = Candidate.objects.filter(run=run, rollout=run.rollout, superseded=False).aggregate(
        passed=Count("id", filter=Q(accepted=True)), rejected=Count("id", filter=Q(accepted=False)), newest=Max("id")
    )
    return counts["passed"], counts["rejected"], counts["newest"] or 0


def figures_of(*, run: Run) -> list[Figure]:
    """Newest measured value of what a run is judged by."""
    names = ("win_rate/unhinted", "win_rate/hinted", "regret/mean", "regret/standard_error", "designer/reward_mean",
             "band/learnable_share", "gates/pass_rate", "perf/tokens_per_s_sampled")  # fmt: skip
    points = newest_values(run=run, names=names)

    def figure(name: str, label: str, **more: Any) -> Figure:
        point = points.get(name)
        return Figure(
            key=name,
            label=label,
            value=point.value if point else None,
            rollout=point.rollout if point else None,
            **more,
        )

    regret, error = points.get("regret/mean"), points.get("regret/standard_error")
    belongs = regret is not None and error is not None and error.rollout == regret.rollout and error.value is not None
    half = Z_95 * error.value if belongs and error is not None and error.value is not None else None
    return [
        figure("win_rate/unhinted", "unhinted win rate", arm="unhinted"),
        figure("win_rate/hinted", "hinted win rate", arm="hinted"),
        figure("regret/mean", "regret, 95 %", half_width=half),
        figure("designer/reward_mean", "designer reward"),
        figure("band/learnable_share", "learnable band", is_share=True),
        figure("gates/pass_rate", "gates passed", is_share=True),
        figure("perf/tokens_per_s_sampled", "tokens/s sampled"),
    ]


def newest_set_rollout(*, run: Run) -> int | None:
    """The rollout that wrote the newest set of environments, None before the first."""
    newest: int | None = Environment.objects.filter(run=run, superseded=False).aggregate(newest=Max("rollout"))[
        "newest"
    ]
    return newest


def attention_of(*, run: Run) -> list[Attention]:
    """What is wrong or useless in the newest set of environments; only what occurs, worst first."""
    rollout = newest_set_rollout(run=run)
    if rollout is None:
        return []
    current = Environment.objects.filter(run=run, superseded=False, rollout=rollout)
    keys = list(current.values_list("key", flat=True))
    found = {
        "hung": hung_keys(run=run, keys=keys),
        "faulty": faulty_keys(run=run, keys=keys),
        "leaky": set(current.filter(hint_state="leaky").values_list("key", flat=True)),
        "nohint": set(current.filter(hint_state="none").values_list("key", flat=True)),
        "zerospread": zero_spread_keys(run=run, keys=keys),
        "negative": negative_regret_keys(run=run, keys=keys),
    }
    return [
        Attention(word=word, count=len(found[flag]), query=f"flag={flag}&rollout={rollout}", tone=tone, meaning=meaning)
        for flag, word, tone, meaning in _FLAGS
        if found[flag]
    ]


def negative_regret_keys(*, run: Run, keys: list[str]) -> set[str]:
    """Environments of these whose measured regret is below 0."""
    points = RegretPoint.objects.filter(run=run, superseded=False, environment_key__in=keys, regret__lt=0)
    return set(points.values_list("environment_key", flat=True))


def hung_keys(*, run: Run, keys: list[str] | None = None) -> set[str]:
    """Environments in which an episode ran into the step time-out."""
    episodes = Episode.objects.filter(run=run, superseded=False, status="env_timeout")
    if keys is not None:
        episodes = episodes.filter(environment_key__in=keys)
    return set(episodes.values_list("environment_key", flat=True))


def faulty_keys(*, run: Run, keys: list[str] | None = None) -> set[str]:
    """Environments the trainer barred or judged faulty."""
    barred = Environment.objects.filter(run=run, superseded=False, state=Environment.State.BARRED)
    judged = RegretPoint.objects.filter(run=run, superseded=False, state="faulty")
    rewarded = DesignerReward.objects.filter(run=run, superseded=False, faulty=True)
    if keys is not None:
        barred, judged, rewarded = (
            barred.filter(key__in=keys),
            judged.filter(environment_key__in=keys),
            rewarded.filter(environment_key__in=keys),
        )
    return (
        set(barred.values_list("key", flat=True))
        | set(judged.values_list("environment_key", flat=True))
        | set(rewarded.values_list("environment_key", flat=True))
    )


def zero_spread_keys(*, run: Run, keys: list[str] | None = None) -> set[str]:
    """Environments with an unhinted group (one rollout's episodes, two or more) whose rewards are all the same."""
    episodes = Episode.objects.filter(run=run, superseded=False, arm="unhinted", reward__isnull=False)
    if keys is not None:
        episodes = episodes.filter(environment_key__in=keys)
    groups = episodes.values("environment_key", "offset").annotate(
        low=Min("reward"), high=Max("reward"), played=Count("id")
    )
    return {str(group["environment_key"]) for group in groups if group["played"] >= 2 and group["low"] == group["high"]}
