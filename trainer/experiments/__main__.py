"""`python -m trainer experiments run|explore|report|evaluate|sets|ladder`: the comparison of section "Proof of learning"."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.assignments import assignments
from trainer.errors import UserError
from trainer.experiments.arms import ARMS, SEEDS, Plan, arm_named

PAGE = Path("docs/experiments.md")
NOTES = Path("docs/experiments/notes.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors are `TrainerError`s."""
    options = _parser().parse_args(arguments)
    code: int = options.command(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer experiments", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    names = [arm.name for arm in ARMS]
    plan = Plan()

    run = commands.add_parser("run", help="do every run whose result is missing, then write the page")
    run.add_argument("--arms", nargs="+", choices=names, default=names, help="only these arms")
    run.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), help="only these seeds (0 1 2)")
    run.add_argument("--results", type=Path, default=plan.results, help="where results are kept")
    run.add_argument("--work", type=Path, default=plan.work, help="where runs go on; removed when a result is stored")
    run.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one setting of every arm")
    run.add_argument("--model", type=Path, metavar="MODEL_DIR", help="another start model than the built-in one")
    run.add_argument("--keep-runs", action="store_true", help="keep the run directories")
    run.set_defaults(command=_run)

    explore = commands.add_parser("explore", help="try other settings of SPADE, judged by the probe set alone")
    explore.add_argument("--set", action="append", default=[], metavar="a.b=VALUE", help="change one setting")
    explore.add_argument("--model", type=Path, metavar="MODEL_DIR", help="another start model than the built-in one")
    explore.add_argument("--seeds", nargs="+", type=int, default=[0])
    explore.add_argument("--results", type=Path, default=plan.results)
    explore.add_argument("--work", type=Path, default=plan.work)
    explore.set_defaults(command=_explore)

    report = commands.add_parser("report", help="write the page and its charts from the stored results")
    report.add_argument("--results", type=Path, default=plan.results)
    report.set_defaults(command=lambda options: _report(options.results))

    evaluate = commands.add_parser("evaluate", help="win rate of a model directory on the two sets, without hints")
    evaluate.add_argument("model", type=Path, metavar="MODEL_DIR")
    evaluate.add_argument("--sets", nargs="+", choices=("probe", "heldout"), default=["probe", "heldout"])
    evaluate.add_argument("--plays", type=int, default=plan.plays, help="plays of every program")
    evaluate.set_defaults(command=_evaluate)

    sets = commands.add_parser(
        "sets", help="draw the two sets again from their seed (they are stored: no comparison needs this)"
    )
    sets.set_defaults(command=_sets)
    ladder = commands.add_parser("ladder", help="draw the pool of the RLVE-like baseline again (it is stored)")
    ladder.set_defaults(command=_ladder)
    return parser


def _run(options: argparse.Namespace) -> int:
    from trainer.experiments.runner import Comparison, stored_sets

    if options.set and options.results == Plan().results:
        raise UserError("--set makes other runs than those that are reported: say with --results where theirs go")
    plan = Plan(
        results=options.results,
        work=options.work,
        overrides=assignments(options.set),
        keep_runs=options.keep_runs,
        model=options.model,
    )
    comparison = Comparison(plan, stored_sets(), say=lambda text: print(text, flush=True))
    comparison.run([arm_named(name) for name in options.arms], options.seeds)
    return 0 if options.set else _report(options.results)


def _explore(options: argparse.Namespace) -> int:
    from trainer.experiments.runner import Comparison, stored_sets

    plan = Plan(results=options.results, work=options.work, model=options.model)
    comparison = Comparison(plan, stored_sets(), say=lambda text: print(text, flush=True))
    for seed in options.seeds:
        comparison.explore(assignments(options.set), seed)
    return _report(options.results)


def _report(results: Path) -> int:
    from trainer.experiments.charts import draw_charts
    from trainer.experiments.report import load_results, report
    from trainer.experiments.results import read_explorations

    notes = NOTES.read_text(encoding="utf-8") if NOTES.exists() else ""
    page = report(
        load_results(results),
        notes=notes,
        plays=Plan().plays,
        explorations=read_explorations(results),
        charts=lambda model: draw_charts(model, NOTES.parent / "charts", seen_from=PAGE.parent),
    )
    PAGE.write_text(page, encoding="utf-8")
    print(f"{PAGE} written")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from trainer.experiments.arms import COMMON
    from trainer.experiments.evaluate import Evaluator
    from trainer.experiments.sets import load_set
    from trainer.presets import load_preset, with_overrides
    from trainer.weights import resolve_model_path

    config = with_overrides(load_preset("demo"), COMMON)
    with Evaluator.of_model(resolve_model_path(str(options.model)), config) as evaluator:
        for name in options.sets:
            score = evaluator.play(load_set(name), plays=options.plays)
            print(json.dumps({"set": name, **score.to_dict()}), flush=True)
    return 0


def _sets(_options: argparse.Namespace) -> int:
    from sandbox import Sandbox
    from trainer.experiments.sets import SET_NAMES, draw_set, write_set

    with Sandbox() as sandbox:
        for name in SET_NAMES:
            print(f"{write_set(name, draw_set(name, sandbox))} written")
    return 0


def _ladder(_options: argparse.Namespace) -> int:
    from trainer.experiments.ladder import write_ladder

    print(f"{write_ladder()} environments written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
