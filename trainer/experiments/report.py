"""`docs/experiments.md` from the stored results: nothing in it is typed by hand but the notes, which are taken over as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.experiments.arms import ARMS, LONG_SPADE, SPADE, Arm
from trainer.experiments.intervals import Interval, interval, t95
from trainer.experiments.results import UNTOUCHED, Exploration, Result, Untouched, read_result, read_untouched
from trainer.experiments.sets import SET_NAMES, load_set

NONE = "–"
LAST_ROLLOUTS = 10
DIVERSITY = "diversity/vendi_share"  # of sets of one size: Vendi over n falls as n grows, whatever is in the set
_HEAD = """\
# Experiments: does the loop teach?

<!-- Made by `python -m trainer experiments report` from docs/experiments/results; the notes come from docs/experiments/notes.md. -->

`make experiments` trains every arm with every seed from the built-in model, at the same number of rollouts, environments and plays (two
arms, apart from the others, for 100 rollouts instead of 40 at half the learning rate), and plays the model before and after on two sets
of programs that were fixed before the first run (`trainer/experiments/sets/`), without hints, every program {plays} times, all through
the sandbox:

- **held-out** ({heldout} programs): the known families with knobs beyond the range they are ever drawn from, and four families nobody
  was trained on (Drift, Relay, Wells, Return). No setting was chosen by looking at it.
- **probe** ({probe} programs): what the families draw ordinarily, with themes of documents the model was not taught on. Settings may
  be chosen by it.

Gains are in percentage points over the untouched model. Intervals are 95 % Student's t over seeds; a single seed has none. A figure that
was not measured is "–". Vendi/n: `trainer/diversity.py` (cosine of the sets of token 3-grams), of each set as it is written.
"""


@dataclass(frozen=True, slots=True)
class ModelResults:
    """All that is stored for one model. `settings`: the fingerprints of each arm; more than one is reported, not mixed."""

    untouched: Untouched
    results: tuple[Result, ...]

    def of(self, arm: str) -> list[Result]:
        """Results of an arm, by seed."""
        return sorted((r for r in self.results if r.arm == arm), key=lambda r: r.seed)


def load_results(directory: Path) -> list[ModelResults]:
    """Everything stored, one entry per model, newest first by the number of results. Raises `UserError` for a broken file."""
    found = []
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []:
        if (folder / f"{UNTOUCHED}.json").exists():
            names = sorted(path for path in folder.glob("*.json") if path.stem != UNTOUCHED)
            found.append(
                ModelResults(read_untouched(folder / f"{UNTOUCHED}.json"), tuple(read_result(path) for path in names))
            )
    return sorted(found, key=lambda model: -len(model.results))


def gain(result: Result, which: str) -> float | None:
    """Points gained by training on "probe" or "heldout"."""
    after = result.probe.win_rate if which == "probe" else result.heldout.win_rate
    before = result.probe_before if which == "probe" else result.heldout_before
    return None if after is None or before is None else 100 * (after - before)


def gains(results: Sequence[Result], which: str) -> Interval | None:
    """Mean gain over seeds."""
    return interval([value for result in results if (value := gain(result, which)) is not None])


def difference(one: Sequence[Result], other: Sequence[Result], which: str) -> Interval | None:
    """Mean difference of two arms' gains with Welch's interval; `n` is the smaller number of seeds. None when one has no result."""
    a, b = ([v for r in results if (v := gain(r, which)) is not None] for results in (one, other))
    if not a or not b:
        return None
    mean = math.fsum(a) / len(a) - math.fsum(b) / len(b)
    if min(len(a), len(b)) < 2:
        return Interval(mean, None, min(len(a), len(b)))
    parts = [_variance(values) / len(values) for values in (a, b)]
    total = sum(parts)
    weights = parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)
    freedom = max(1, int(total**2 / weights)) if weights else len(a) + len(b) - 2
    return Interval(mean, t95(freedom) * math.sqrt(total), min(len(a), len(b)))


def report(
    models: Sequence[ModelResults],
    *,
    notes: str,
    plays: int,
    charts: Callable[[ModelResults], Sequence[str]],
    explorations: Sequence[Exploration] = (),
) -> str:
    """The page. `charts` draws a model's charts and returns their paths as seen from the page."""
    sizes = {str(name): len(load_set(name).environments) for name in SET_NAMES}
    parts = [_HEAD.format(plays=plays, **sizes)]
    if not models:
        parts.append("No result is stored yet.\n")
    for place, model in enumerate(models):
        shown = [arm for arm in ARMS if place == 0 or model.of(arm.name)]
        parts.append(_of_model(model, shown, charts(model) if model.results else ()))
    return "\n".join([*parts, *_explorations(explorations), notes.strip() + "\n"])


def _of_model(model: ModelResults, arms: Sequence[Arm], charts: Sequence[str]) -> str:
    """One section. The model with most results lists all arms, so that what is missing is seen; others those that were run."""
    untouched = model.untouched
    size = f", {untouched.parameters / 1e6:.2f} million parameters" if untouched.parameters else ""
    lines = [
        f"## Model `{untouched.model}`{size}",
        "",
        f"Untouched: held-out {_rate(untouched.heldout.win_rate, untouched.heldout.half_interval)}, probe "
        f"{_rate(untouched.probe.win_rate, untouched.probe.half_interval)} (95 % interval over programs).",
        "",
    ]
    if not model.results:
        return "\n".join([*lines, "No run is stored for this model.", ""])
    if missing := [arm.title for arm in ARMS if arm not in arms]:
        lines += [f"Not run from this model: {', '.join(missing)}.", ""]
    lines += [
        *_main_table(model, arms),
        "",
        *_quality_table(model, arms),
        "",
        "### Targets",
        "",
        *_targets(model, arms),
        "",
    ]
    lines += [line for path in charts for line in (f"![{Path(path).stem}]({path})", "")]
    train = sum(r.train_seconds for r in model.results)
    lines += [
        f"{len(model.results)} runs, {train / 60:.0f} minutes of training in all ({_range([r.train_seconds / 60 for r in model.results])} "
        f"a run, one thread), {sum(r.evaluate_seconds for r in model.results) / 60:.0f} minutes of evaluation.",
        *_mixed(model),
        *_ended_early(model),
        "",
    ]
    return "\n".join(lines)


def _explorations(explorations: Sequence[Exploration]) -> list[str]:
    """All that was tried on the probe set, in the order it was tried."""
    if not explorations:
        return []
    rows = [
        "## Explorations",
        "",
        "`python -m trainer experiments explore --set a.b=VALUE`: SPADE with settings changed, one run a line, probe set only.",
        "",
        "| model | changed | seed | rollouts: probe win rate | gain |",
        "|---|---|---|---|---|",
    ]
    for one in explorations:
        changed = ", ".join(f"{name} = {value}" for name, value in one.changed.items()) or "nothing"
        after = list(one.probe_curve.values())[-1] if one.probe_curve else None
        gained = (
            None if after is None or one.probe_before is None else Interval(100 * (after - one.probe_before), None, 1)
        )
        curve = ", ".join(f"{done}: {_percent(rate)}" for done, rate in one.probe_curve.items())
        end = f"; ended: {one.ended_early.replace('|', ' ')}" if one.ended_early else ""
        rows.append(f"| `{one.model}` | {changed} | {one.seed} | {curve}{end} | {_signed(gained)} |")
    return [*rows, ""]


def _main_table(model: ModelResults, arms: Sequence[Arm]) -> list[str]:
    rows = [
        "| arm | seeds | unhinted episodes | held-out | gain | over fixed pool | probe | gain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in arms:
        mine = model.of(arm.name)
        cells = [arm.title, str(len(mine)), _range([float(r.episodes_unhinted) for r in mine])]
        for which in ("heldout", "probe"):
            after = [getattr(r, which).win_rate for r in mine]
            cells += [_percent(_mean([v for v in after if v is not None])), _signed(gains(mine, which))]
            if which == "heldout":
                cells.append(NONE if arm.name == arm.pool else _signed(difference(mine, model.of(arm.pool), which)))
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _quality_table(model: ModelResults, arms: Sequence[Arm]) -> list[str]:
    columns = (
        ("win rate, own environments", "win_rate/unhinted"), ("regret", "regret/mean"), ("learnable share", "band/learnable_share"),
        ("gates passed", "gates/pass_rate"), ("Vendi/n", DIVERSITY),
    )  # fmt: skip
    rows = [
        f"First and last {LAST_ROLLOUTS} rollouts, mean over seeds:",
        "",
        "| arm | " + " | ".join(title for title, _ in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for arm in arms:
        mine = model.of(arm.name)
        cells = [f"{_number(_ends(mine, name)[0])} → {_number(_ends(mine, name)[1])}" for _, name in columns]
        rows.append(f"| {arm.title} | " + " | ".join(cells) + " |")
    return rows


def _targets(model: ModelResults, arms: Sequence[Arm]) -> list[str]:
    rows = []
    for arm in (arm for arm in arms if arm.name in (SPADE, LONG_SPADE)):
        mine = model.of(arm.name)
        rows += [
            (f"{arm.title} beats the untouched model on the held-out set", gains(mine, "heldout"), 15.0),
            (
                f"{arm.title} beats its fixed pool on the held-out set",
                difference(mine, model.of(arm.pool), "heldout"),
                5.0,
            ),
        ]
    spade = model.of(SPADE)
    rows.append(
        ("the demo's rate and rollouts raise the unhinted win rate on the probe set", gains(spade, "probe"), 10.0)
    )
    start, end = _ends(spade, DIVERSITY)
    kept = None if start is None or end is None else 100 * end / start
    lines = ["| target | points asked | measured | |", "|---|---|---|---|"]
    lines += [f"| {text} | {asked:g} | {_signed(value)} | {_verdict(value, asked)} |" for text, value, asked in rows]
    share = NONE if kept is None else f"{kept:.0f} % of it"
    verdict = NONE if kept is None else "reached" if kept >= 50 else "**missed**"
    return [
        *lines,
        f"| diversity with the corpus does not collapse (at least half of the first Vendi/n is left) | – | {share} | {verdict} |",
    ]


def _verdict(value: Interval | None, asked: float) -> str:
    if value is None:
        return "not measured"
    seeds = "" if value.n >= 3 else f" ({value.n} seed{'s' if value.n > 1 else ''} only)"
    return ("reached" if value.mean >= asked else "**missed**") + seeds


def _mixed(model: ModelResults) -> list[str]:
    """Says so when results of one arm were made with different settings."""
    mixed = [arm.title for arm in ARMS if len({r.settings for r in model.of(arm.name)}) > 1]
    return (
        [
            f"**Results of different settings stand side by side in: {', '.join(mixed)}.** Run the command again to replace them."
        ]
        if mixed
        else []
    )


def _ended_early(model: ModelResults) -> list[str]:
    """One line for each run that has fewer rollouts than it was to have."""
    return [
        f"- {arm.title}, seed {one.seed}, was scored after {one.rollouts} rollouts, where it ended: {one.ended_early}."
        for arm in ARMS
        for one in model.of(arm.name)
        if one.ended_early
    ]


def _ends(results: Sequence[Result], name: str) -> tuple[float | None, float | None]:
    """Means of a metric over the first and the last rollouts, over all seeds; None where nothing was measured."""
    first: list[float] = []
    last: list[float] = []
    for result in results:
        values = result.curve.get(name, [])
        first += [v for v in values[:LAST_ROLLOUTS] if v is not None]
        last += [v for v in values[-LAST_ROLLOUTS:] if v is not None]
    return _mean(first), _mean(last)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _rate(mean: float | None, half: float | None) -> str:
    return _percent(mean) if half is None else f"{_percent(mean)} ± {100 * half:.1f}"


def _signed(value: Interval | None) -> str:
    if value is None:
        return NONE
    return f"{value.mean:+.1f}" if value.half is None else f"{value.mean:+.1f} ± {value.half:.1f}"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _range(values: Sequence[float]) -> str:
    if not values:
        return NONE
    low, high = round(min(values)), round(max(values))
    return str(low) if low == high else f"{low} to {high}"
