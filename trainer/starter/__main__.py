"""`python -m trainer.starter build|measure`: make the built-in model from its recipe, or measure it through the sandbox."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from trainer.errors import UserError

MODEL_DIRECTORY = Path(__file__).parent / "model"


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and run one command; exit code 0 on success."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)  # leave by an exception, so that the processes we started end too
    run: dict[str, Any] = {"build": _build, "measure": _measure}
    print(json.dumps(run[options.command](options), indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.starter", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make the model directory (about 90 minutes on one slow core)")
    build.add_argument("--out", type=Path, default=MODEL_DIRECTORY, help="directory to write")
    build.add_argument("--work", type=Path, default=Path("starter-build"), help="where an interrupted build continues")
    build.add_argument("--anew", action="store_true", help="throw away what is in --work and begin again")
    build.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a number of the recipe (hidden=192)"
    )
    build.add_argument("--processes", type=int, default=2, help="processes of one thread each")
    measure = commands.add_parser("measure", help="pass rates, win rates and regret, through the sandbox")
    measure.add_argument("--model", type=Path, default=MODEL_DIRECTORY, help="model directory")
    measure.add_argument("--prompts", type=int, default=200, help="designer prompts")
    measure.add_argument("--environments", type=int, default=60, help="accepted environments that are played")
    measure.add_argument("--plays", type=int, default=8, help="plays of one environment and arm")
    measure.add_argument("--designer-temperature", type=float, default=0.6)
    measure.add_argument("--agent-temperature", type=float, default=1.0)
    measure.add_argument("--seed", type=int, default=0)
    measure.add_argument("--json", type=Path, default=None, help="also write the report to this file")
    return parser


def _build(options: argparse.Namespace) -> dict[str, Any]:
    from trainer.assignments import assignments
    from trainer.starter.build import build
    from trainer.starter.recipe import Recipe, changed

    recipe = changed(Recipe(), assignments(options.set))
    if recipe != Recipe() and options.out == MODEL_DIRECTORY:
        raise UserError("--set makes another model than the built-in one: say with --out where it goes")
    return build(recipe, work=options.work, out=options.out, processes=options.processes, anew=options.anew)


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    from trainer.starter.measure import Settings, measure

    settings = Settings(
        prompts=options.prompts,
        environments=options.environments,
        plays=options.plays,
        designer_temperature=options.designer_temperature,
        agent_temperature=options.agent_temperature,
        seed=options.seed,
    )
    report = measure(options.model, settings)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


if __name__ == "__main__":
    from trainer.__main__ import main as trainer_main  # says errors as all commands of the trainer do

    sys.exit(trainer_main(["starter", *sys.argv[1:]]))
