"""Making a run directory with its frozen settings, and reading them back. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.config import FORMAT_VERSION, RunConfig
from trainer.errors import UserError
from trainer.eventlog import disk_error
from trainer.presets import validated
from trainer.provenance import commit, hardware, versions
from trainer.rundir import RunDirectory


def create(root: Path, config: RunConfig) -> RunDirectory:
    """Make the run directory with its frozen settings. Raises `UserError` when it already holds another run."""
    run = RunDirectory(root)
    if run.config.exists():
        raise UserError(f"{root} already holds a run; give another directory, or resume it")
    # The supervisor may have been here first, or a trainer that was killed before its settings were in place.
    expected = {run.control.name, run.log.name, _aside(run).name}
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file; give a new directory")
    if root.exists() and any(p.name not in expected for p in root.iterdir()):
        raise UserError(f"{root} is not empty; give a new directory")
    write_config(run, config)
    return run


def write_config(run: RunDirectory, config: RunConfig, *, forked_from: Mapping[str, Any] | None = None) -> None:
    """Write config.json: settings, where the code and the machine come from, and the run this one is a fork of."""
    values: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "format_version": FORMAT_VERSION,
        "commit": commit(),
        "versions": versions(),
        "hardware": hardware(),
    }
    if forked_from is not None:
        values["forked_from"] = dict(forked_from)
    try:
        run.root.mkdir(parents=True, exist_ok=True)
        aside = _aside(run)
        aside.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        aside.rename(run.config)
    except OSError as error:
        raise disk_error(error, str(run.config)) from error


def read_config(run: RunDirectory) -> RunConfig:
    """The frozen settings of a run directory. Raises `UserError` when they are missing or not readable."""
    values = _read(run)
    if not isinstance(values.get("config"), dict):
        raise UserError(f'{run.config} has no "config" object')
    return validated(values["config"], where=str(run.config))


def forked_from(run: RunDirectory) -> dict[str, Any] | None:
    """What `trainer.fork` wrote about the run's origin; None for a run that is no fork. Raises `UserError`."""
    found = _read(run).get("forked_from")
    return found if isinstance(found, dict) else None


def _aside(run: RunDirectory) -> Path:
    return run.config.with_suffix(".json.part")


def _read(run: RunDirectory) -> dict[str, Any]:
    try:
        values = json.loads(run.config.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(
            f"{run.root} holds no config.json: it is no run directory; `run` starts a run in a new one"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{run.config} is not readable: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{run.config} must hold one JSON object")
    return values
