"""A run directory with a checkpoint of the built-in model's own weights, made in a second: nothing is trained for it.

python -m tests.trainer.starter_run DIR
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from trainer.checkpoint_files import CHECKPOINT_FORMAT, digests_and_sync, write_marker
from trainer.config import RunConfig
from trainer.creation import create
from trainer.fixed_pool import BUILTIN_POOLS
from trainer.presets import load_preset
from trainer.rundir import RunDirectory
from trainer.weights import STARTER_DIRECTORY


def program(identifier: str) -> tuple[str, str]:
    """Code and hint of one environment of the demo pool, which the built-in model wrote."""
    lines = (json.loads(line) for line in BUILTIN_POOLS["builtin:demo"].read_text().splitlines())
    return next((line["code"], line["hint"]) for line in lines if line["id"] == identifier)


def add_checkpoint(run: RunDirectory, name: str, config: RunConfig) -> Path:
    """The built-in model's weights as a checkpoint of that name."""
    folder = run.checkpoints / name
    shutil.copytree(STARTER_DIRECTORY, folder / "model")
    (folder / "state").mkdir()
    (folder / "state" / "state.json").write_text("{}")
    best = {"metric": config.checkpoint.best_metric, "value": None}
    marker = {"format": CHECKPOINT_FORMAT, "next_rollout": int(name), "files": digests_and_sync(folder), "best": best}
    write_marker(folder, marker)
    return folder


def make(directory: Path, *, checkpoint: str = "000001", environment: str = "r0000-s00") -> RunDirectory:
    """A run of the demo preset with one checkpoint and one environment with its hint."""
    config = load_preset("demo")
    run = create(directory, config)
    add_checkpoint(run, checkpoint, config)
    code, hint = program(environment)
    folder = run.environment(environment)
    folder.mkdir(parents=True)
    (folder / "code.py").write_text(code)
    (folder / "hint.txt").write_text(hint)
    return run


if __name__ == "__main__":
    make(Path(sys.argv[1]))
