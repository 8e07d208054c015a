"""What carries no signal or was not captured: degenerate groups, win rates against the band, counts expected and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Max, Min, Q, Sum

from trainer.events import FAULTS
from trainer.metrics import LEARNABLE_BAND
from webapp.core.pagination import Page, keyset_page
from webapp.environments.models import DesignerReward, Environment, EnvironmentTransition, RegretPoint
from webapp.episodes.models import Episode
from webapp.runs.models import Event, Run
from webapp.runs.overview import faulty_keys, hung_keys, negative_regret_keys

BINS = 20
PAGE_ROWS = 50
TRUNCATED = ("turn_limit", "truncated_by_env", "length", "context_full")
#: Kind -> what it is called and what it means; each is also a filter of the environment list.
SIGNALS: dict[str, tuple[str, str]] = {
    "allwon": ("all won", "every unhinted episode of a rollout was won: too easy, no gradient"),
    "alllost": ("all lost", "every unhinted episode of a rollout was lost: too hard, no gradient"),
    "zerospread": ("zero spread", "every unhinted episode of a rollout ended alike: no gradient"),
    "hung": ("hung", "a step ran into the time-out"),
    "faulty": ("faulty", "barred, or a quarter of the unhinted episodes faulted"),
    "truncated": ("truncated", "half of the unhinted episodes or more were ended by a limit"),
    "leaky": ("leaky hint", "the hint names the answer; regret is capped at 0"),
    "nohint": ("no hint", "so there is no regret"),
    "negative": ("regret below 0", "the hint made the agent lose more"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The unhinted episodes with a reward of one environment in one rollout; ``cut`` of them were ended by a limit."""

    environment: str
    low: float
    high: float
    total: float
    played: int
    cut: int

    def shows(self, flag: str) -> bool:
        """Two episodes or more that were all won, all lost, or without spread."""
        if self.played < 2:
            return False
        return {"allwon": self.low > 0, "alllost": self.high <= 0, "zerospread": self.low == self.high}[flag]


def unhinted_groups(*, run: Run, keys: list[str] | None = None) -> list[Group]:
    """Every group of the run, or of the environments with these keys: one pass over the episodes, whatever is asked of it."""
    episodes = Episode.objects.filter(run=run, superseded=False, arm="unhinted", reward__isnull=False)
    if keys is not None:
        episodes = episodes.filter(environment_key__in=keys)
    rows = episodes.order_by().values_list("environment_key", "offset").annotate(
        low=Min("reward"), high=Max("reward"), total=Sum("reward"), played=Count("id"), cut=Count("id", filter=Q(status__in=TRUNCATED)),
    )  # fmt: skip
    return [
        Group(environment=key, low=low, high=high, total=total, played=played, cut=cut)
        for key, _, low, high, total, played, cut in rows
    ]


def group_keys(*, run: Run, flag: str, keys: list[str] | None = None) -> set[str]:
    """Environments with an unhinted group (one rollout's episodes, two or more) that is all won, all lost, or without spread."""
    return {group.environment for group in unhinted_groups(run=run, keys=keys) if group.shows(flag)}


def truncated_keys(*, run: Run, keys: list[str] | None = None) -> set[str]:
    """Environments in which a limit ended half of the unhinted episodes or more."""
    return _truncated(unhinted_groups(run=run, keys=keys))


def _truncated(groups: Sequence[Group]) -> set[str]:
    cut: Counter[str] = Counter()
    played: Counter[str] = Counter()
    for group in groups:
        cut[group.environment] += group.cut
        played[group.environment] += group.played
    return {key for key in played if 2 * cut[key] >= played[key]}


@dataclass(frozen=True, kw_only=True)
class SignalRow:
    """One set of environments: how many there are, and how many show each signal."""

    rollout: int
    environments: int
    counts: dict[str, int]


def signals_by_set(*, run: Run, groups: Sequence[Group]) -> list[SignalRow]:
    """One row per rollout that wrote a set, newest first; ``groups`` are all of the run."""
    environments = Environment.objects.filter(run=run, superseded=False, rollout__isnull=False)
    rollouts = {key: rollout for key, rollout in environments.values_list("key", "rollout") if rollout is not None}
    flagged = {
        flag: {group.environment for group in groups if group.shows(flag)}
        for flag in ("allwon", "alllost", "zerospread")
    }
    flagged |= {
        "hung": hung_keys(run=run), "faulty": faulty_keys(run=run), "truncated": _truncated(groups),
        "leaky": set(environments.filter(hint_state="leaky").values_list("key", flat=True)),
        "nohint": set(environments.filter(hint_state="none").values_list("key", flat=True)),
        "negative": negative_regret_keys(run=run, keys=list(rollouts)),
    }  # fmt: skip
    sizes = Counter(rollouts.values())
    counts = {flag: Counter(rollouts[key] for key in keys if key in rollouts) for flag, keys in flagged.items()}
    return [
        SignalRow(
            rollout=rollout, environments=sizes[rollout], counts={flag: counts[flag][rollout] for flag in SIGNALS}
        )
        for rollout in sorted(sizes, reverse=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Environments by unhinted win rate in BINS equal bins of [0, 1] (the last one closed); ``in_band`` of ``total``."""

    bins: list[int]
    learnable: tuple[float, float]  # the band of the metric band/learnable_share
    anchor: tuple[float, float]  # where the designer's anchor is full, by the run's settings
    in_band: int  # learnable ones
    total: int

    @property
    def highest(self) -> int:
        """The fullest bin's count."""
        return max(self.bins, default=0)


def win_rate_histogram(*, run: Run, groups: Sequence[Group], rollout: int | None = None) -> Histogram:
    """Win rate of each environment over its window, against the band in which the designer's anchor is full."""
    environments = Environment.objects.filter(run=run, superseded=False)
    if rollout is not None:
        environments = environments.filter(rollout=rollout)
    sums = {key: [0.0, 0] for key in environments.values_list("key", flat=True)}
    for group in groups:
        if group.environment in sums:
            sums[group.environment][0] += group.total
            sums[group.environment][1] += group.played
    rates = [total / played for total, played in sums.values() if played]
    reward = run.config.get("reward", {})
    low, high = LEARNABLE_BAND
    bins = [0] * BINS
    for rate in rates:
        bins[min(BINS - 1, max(0, int(rate * BINS + 1e-9)))] += 1
    return Histogram(
        bins=bins, learnable=LEARNABLE_BAND, anchor=(float(reward.get("band_low", 0.4)), float(reward.get("band_high", 0.6))),
        in_band=sum(low <= rate <= high for rate in rates), total=len(rates),
    )  # fmt: skip


@dataclass(kw_only=True)
class LedgerRow:
    """One rollout: what the trainer announced and what is stored. ``short`` names what is missing without a stored reason."""

    rollout: int
    regeneration: bool
    is_open: bool  # the newest rollout of an active run: not all is here yet
    expected: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)


LEDGER_COLUMNS = ("environments", "hints", "unhinted", "hinted", "regret")


def capture_ledger(*, run: Run) -> list[LedgerRow]:
    """Expected against stored, one row per rollout that was announced and not left behind by a resume, newest first."""
    announced = Event.objects.filter(run=run, kind="rollout_started", rollout__isnull=False, problem="").order_by(
        "cursor"
    )
    for attempt in run.attempts.exclude(superseded_from=None):  # a resume left these rollouts behind
        announced = announced.exclude(attempt=attempt.number, rollout__gte=attempt.superseded_from)
    events = {row.rollout: row for row in announced}  # a rollout that a resume repeated: its newest announcement
    finished = set(Event.objects.filter(run=run, kind="rollout_finished").values_list("rollout", "attempt"))
    stored = _stored_counts(run)
    rows = []
    for rollout, event in sorted(events.items(), key=lambda item: item[0] or 0, reverse=True):
        payload, fresh = event.payload, bool(event.payload.get("regeneration"))
        row = LedgerRow(rollout=rollout or 0, regeneration=fresh, is_open=(rollout, event.attempt) not in finished)
        row.stored = {name: stored[name][row.rollout] for name in LEDGER_COLUMNS}
        row.expected = {
            "unhinted": int(payload.get("expected_unhinted", 0)),
            "hinted": int(payload.get("expected_hinted", 0)),
        }
        if fresh:
            row.expected |= {name: int(payload.get("environments", 0)) for name in ("environments", "hints", "regret")}
        _explain(
            row,
            int(payload.get("environments", 0)),
            {name: stored[name][row.rollout] for name in ("faults", "out", "nohint")},
        )
        rows.append(row)
    return rows


def _stored_counts(run: Run) -> dict[str, Counter[int]]:
    environments = Environment.objects.filter(run=run, superseded=False)
    episodes = Episode.objects.filter(run=run, superseded=False)
    out = EnvironmentTransition.objects.filter(run=run, superseded=False, state__in=("barred", "quarantined"))
    played = {"unhinted": Counter[int](), "hinted": Counter[int](), "faults": Counter[int]()}
    arms = episodes.filter(rollout__isnull=False).order_by().values_list("rollout", "arm")
    for rollout, arm, n, faults in arms.annotate(n=Count("id"), faults=Count("id", filter=Q(status__in=FAULTS))):
        played[arm][rollout] += n
        played["faults"][rollout] += faults
    return {
        "environments": _count(environments), "hints": _count(environments.exclude(hint_state="")),
        "nohint": _count(environments.filter(hint_state="none")), **played,
        "regret": _count(RegretPoint.objects.filter(run=run, superseded=False)), "out": _count(out),
    }  # fmt: skip


def _explain(row: LedgerRow, slots: int, known: dict[str, int]) -> None:
    """What recorded reasons explain of the difference: unfilled slots, environments taken out, no hint. The rest is a loss."""
    unfilled = max(0, slots - row.stored["environments"]) if row.regeneration else 0
    hintless = known["nohint"] if row.regeneration else 0
    if unfilled:
        row.reasons.append(f"{unfilled} of {slots} slots unfilled")
    if known["out"]:
        row.reasons.append(f"{known['out']} taken out meanwhile")
    if hintless:
        row.reasons.append(f"{hintless} without a hint")
    if known["faults"]:
        row.reasons.append(f"{known['faults']} faulty episodes")
    if row.is_open:
        row.reasons.append("under way or cut off")
        return
    absent = {"unhinted": unfilled + known["out"], "hinted": unfilled + known["out"] + hintless}
    for name, expected in row.expected.items():
        a_slot = expected // slots if slots else 0
        if row.stored[name] < expected - a_slot * absent.get(name, unfilled):
            row.short.append(name)


def _count(rows: Any) -> Counter[int]:
    counts = rows.values("rollout").annotate(n=Count("id")).values_list("rollout", "n")
    return Counter({rollout: n for rollout, n in counts if rollout is not None})


def coverage_of(rows: Sequence[LedgerRow]) -> float | None:
    """Share of the announced episodes of finished rollouts that are stored; None when nothing was announced."""
    done = [row for row in rows if not row.is_open]
    expected = sum(row.expected[arm] for row in done for arm in ("unhinted", "hinted"))
    stored = sum(min(row.stored[arm], row.expected[arm]) for row in done for arm in ("unhinted", "hinted"))
    return stored / expected if expected else None


def list_rewards(*, run: Run, skill: str = "", cursor: str = "", size: int = PAGE_ROWS) -> Page[DesignerReward]:
    """Designer rewards with their parts, newest first. Raises BadRequest for a damaged cursor."""
    rows = (
        DesignerReward.objects.filter(run=run, superseded=False)
        .select_related("environment")
        .defer("environment__code")
    )
    if skill:
        rows = rows.filter(skill=skill)
    return keyset_page(rows, order=("-id",), cursor=cursor, size=size)
