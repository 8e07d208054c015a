"""Curves of the comparison as SVG files, drawn with matplotlib (a requirement of tests and experiments only)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.errors import UserError
from trainer.experiments.arms import ARMS
from trainer.experiments.report import DIVERSITY, ModelResults
from trainer.experiments.results import Result

# Colours that stay apart for people with red-green weakness (Okabe and Ito), on white.
_COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
# One per arm, in their order; the two longer ones are dashed in the colours of those they extend.
_STYLES = (*((colour, "solid") for colour in _COLOURS), (_COLOURS[0], "dashed"), (_COLOURS[1], "dashed"))
_SIZE_INCHES = (8.0, 4.2)

Points = Mapping[int, float]


def draw_charts(model: ModelResults, directory: Path, *, seen_from: Path) -> list[str]:
    """Draw all charts of a model into `directory`; returns their paths relative to `seen_from`. Same results, same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    charts: tuple[tuple[str, str, str, Callable[[Result], Points]], ...] = (
        ("probe", "Unhinted win rate on the fixed probe set", "win rate", _probe),
        (
            "own",
            "Unhinted win rate on the environments of the run (they change)",
            "win rate",
            _curve("win_rate/unhinted"),
        ),
        (
            "diversity",
            "Vendi score over n of each set of environments",
            "Vendi/n",
            _curve(DIVERSITY),
        ),
    )
    for name, title, unit, points in charts:
        path = directory / f"{model.untouched.model}-{name}.svg"
        lines = {arm.title: mean_points([points(r) for r in model.of(arm.name)]) for arm in ARMS}
        _draw(path, title, unit, lines)
        made.append(path.relative_to(seen_from).as_posix())
    return made


def mean_points(runs: Sequence[Points]) -> Points:
    """Mean over the runs that go as far as a place, where all of them have a value: the mean of others jumps as runs come and go."""
    means = {}
    for place in sorted({place for points in runs for place in points}):
        reaching = [points for points in runs if points and place <= max(points)]
        if all(place in points for points in reaching):
            means[place] = sum(points[place] for points in reaching) / len(reaching)
    return means


def _probe(result: Result) -> Points:
    return {int(done): value for done, value in result.probe_curve.items() if value is not None}


def _curve(name: str) -> Callable[[Result], Points]:
    def points(result: Result) -> Points:
        return {number + 1: value for number, value in enumerate(result.curve.get(name, [])) if value is not None}

    return points


def _draw(path: Path, title: str, unit: str, lines: Mapping[str, Points]) -> None:
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=_SIZE_INCHES, layout="constrained")
    for (label, points), (colour, dash) in zip(lines.items(), _STYLES, strict=True):
        if points:
            marker = "o" if len(points) < 12 else None
            axes.plot(
                list(points),
                list(points.values()),
                label=label,
                color=colour,
                linestyle=dash,
                linewidth=1.4,
                marker=marker,
                markersize=4,
            )
    axes.set(title=title, xlabel="rollouts", ylabel=unit)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(
            "charts need matplotlib: `make experiments` installs it, or pip install -r requirements/test.txt"
        ) from error
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "experiments", "svg.fonttype": "none", "font.family": "sans-serif"})
    from matplotlib import pyplot

    return pyplot
