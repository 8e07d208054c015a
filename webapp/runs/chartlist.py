"""Which metrics are drawn together, and how: titles, labels, colours, band, range."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainer.metrics import METRICS

#: Measured only in a rollout that writes a new set; between two of them there is nothing due, so the line goes on.
PER_REGENERATION = (
    "win_rate/hinted", "regret/", "gates/", "hints/", "environment/", "diversity/", "time/design", "time/gates", "time/hints",
)  # fmt: skip
#: Measured only in rollouts in which designs come due.
WHEN_DUE = ("designer/", "advantage/designer", "reward/designer")
#: Panels that are sent at a time.
PIECE = 48
#: Fractions far below 1, which an axis from 0 to 1 would flatten.
SMALL_FRACTIONS = ("policy/", "sampler_gap/")
TITLES = {
    "win_rate": "Win rate", "regret": "Regret", "designer": "Designer reward", "group": "Groups", "band": "Learnable band",
    "gates": "Gates", "loss": "Loss", "policy": "Policy", "optim": "Optimiser", "sampler_gap": "Sampler gap", "perf": "Speed",
    "time": "Time", "learn": "Learner", "tokens": "Tokens", "episode": "Episodes", "stop": "How episodes end", "success": "Success",
    "hints": "Hints", "environment": "Environments", "diversity": "Diversity", "pool": "Current set",
    "reward": "Rewards", "advantage": "Advantages", "samples": "Samples", "staleness": "Staleness", "memory": "Memory", "corpus": "Corpus",
}  # fmt: skip
METRIC_TITLES = {
    "win_rate/unhinted": "unhinted", "win_rate/hinted": "hinted", "designer/reward_mean": "reward", "designer/anchor_mean": "anchor",
    "designer/regret_term_mean": "regret term", "perf/tokens_per_s_sampled": "sampled", "perf/tokens_per_s_trained": "trained",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ChartSeries:
    """One line. ``band`` names the metric that holds its standard error.

    ``sparse``: due only at regenerations (every ``every`` rollouts, 0: as the page says); ``bridge``: due at rollouts that cannot be
    told from its number, so no gap is drawn. ``run``: the run it belongs to, where several are drawn together. ``quiet``: gaps are drawn
    and not counted.
    """

    name: str
    label: str
    color: str
    dash: bool = False
    band: str = ""
    sparse: bool = False
    bridge: bool = False
    every: int = 0
    run: str = ""
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One panel. ``low``/``high`` fix the axis (a share is always drawn from 0 to 1); ``zero`` draws a line at 0."""

    key: str
    title: str
    series: tuple[ChartSeries, ...]
    low: float | None = None
    high: float | None = None
    zero: bool = False
    unit: str = ""
    meaning: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        """For json_script: what charts.js draws."""
        return asdict(self)

    @property
    def spec_json(self) -> str:
        """The same as text, for an attribute: fragments that htmx fetches may not hold script elements."""
        return json.dumps(self.spec)

    @property
    def names(self) -> list[str]:
        """Every metric the panel needs."""
        return [name for one in self.series for name in (one.name, one.band) if name]


def _line(name: str, color: str, **more: Any) -> ChartSeries:
    return ChartSeries(name=name, label=METRIC_TITLES.get(name, name.partition("/")[2] or name), color=color, sparse=is_sparse(name),
                       bridge=name.startswith(WHEN_DUE), **more)  # fmt: skip


def is_sparse(name: str) -> bool:
    """True for metrics that are due only at regenerations."""
    return name.startswith(PER_REGENERATION)


#: What a run is judged by, in the order of the overview.
OVERVIEW_CHARTS: tuple[Chart, ...] = (
    Chart(key="win-rate", title="Win rate by arm", low=0, high=1,
          series=(_line("win_rate/unhinted", "--arm-unhinted"), _line("win_rate/hinted", "--arm-hinted", dash=True))),
    Chart(key="regret", title="Regret, 95 % interval", zero=True,
          series=(ChartSeries(name="regret/mean", label="regret", color="--ink", band="regret/standard_error", sparse=True),)),
    Chart(key="designer", title="Designer reward", zero=True,
          series=(_line("designer/reward_mean", "--ink"), _line("designer/anchor_mean", "--run-0"),
                  _line("designer/regret_term_mean", "--run-1"))),
    Chart(key="band", title="Learnable band share", low=0, high=1,
          series=(ChartSeries(name="band/learnable_share", label="win rate in band", color="--run-7"),)),
    # Not the loss: within a group the advantages cancel, so it stays near 0 whatever happens.
    Chart(key="entropy", title="Entropy of the policy", unit="nats",
          meaning="falls as the policy grows sure of itself; near 0 it explores no more",
          series=(ChartSeries(name="loss/entropy", label="entropy", color="--run-1"),)),
    Chart(key="grad-norm", title="Gradient norm", low=0, meaning="before clipping; spikes are updates to look at",
          series=(ChartSeries(name="optim/grad_norm", label="norm", color="--run-5"),)),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ChartGroup:
    """The panels of one prefix."""

    key: str
    title: str
    charts: tuple[Chart, ...]


def matching(names: Sequence[str], text: str) -> list[str]:
    """The names that have the text in them, whatever its case; all of them without a text."""
    return [name for name in names if text.lower() in name.lower()]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some panels of a group, from the one numbered ``start`` on; ``following`` is where the next piece starts, None at the end."""

    group: ChartGroup
    charts: tuple[Chart, ...]
    following: int | None


def piece_of(group: ChartGroup, *, start: int, size: int = PIECE) -> Piece:
    """At most ``size`` panels: a page with thousands of metrics draws them as they come into view."""
    end = start + size
    return Piece(group=group, charts=group.charts[start:end], following=end if end < len(group.charts) else None)


def first_pieces(groups: Sequence[ChartGroup], *, size: int = PIECE) -> list[Piece]:
    """What a page holds from the start: the first ``size`` panels over all groups; of the other groups nothing yet."""
    pieces: list[Piece] = []
    left = size
    for group in groups:
        piece = piece_of(group, start=0, size=max(0, left))
        pieces.append(piece)
        left -= len(piece.charts)
    return pieces


def charts_of(names: Sequence[str]) -> list[ChartGroup]:
    """One group per prefix, one panel per metric; what people look at first comes first."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("/")[0] if "/" in name else "other", []).append(name)
    order = list(TITLES)
    ranked = sorted(groups, key=lambda prefix: (order.index(prefix) if prefix in order else len(order), prefix))
    return [
        ChartGroup(key=prefix, title=TITLES.get(prefix, prefix), charts=tuple(_panels(prefix, groups[prefix])))
        for prefix in ranked
    ]


def _panels(prefix: str, names: Sequence[str]) -> list[Chart]:
    if prefix == "win_rate":
        known = [chart for chart in OVERVIEW_CHARTS if chart.key == "win-rate"]
        return known + [_panel(name) for name in names if name not in known[0].names]
    if prefix == "regret" and "regret/mean" in names:
        known = [chart for chart in OVERVIEW_CHARTS if chart.key == "regret"]
        return known + [_panel(name) for name in names if name not in known[0].names]
    return [_panel(name) for name in names]


def _panel(name: str) -> Chart:
    known = METRICS.get(name)
    is_share = known is not None and known.unit == "fraction" and not name.startswith(SMALL_FRACTIONS)
    unit = known.unit if known and known.unit not in ("fraction", "reward", "factor") else ""
    return Chart(
        key=name, title=name, series=(_line(name, _color(name)),), low=0 if is_share else None, high=1 if is_share else None,
        unit=unit, meaning=known.description if known else "",
    )  # fmt: skip


def _color(name: str) -> str:
    if name.endswith("/unhinted") or "unhinted" in name:
        return "--arm-unhinted"
    return "--arm-hinted" if "hinted" in name else "--ink"
